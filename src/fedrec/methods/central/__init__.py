"""Centralised references: what the same data gives when one server may see all of it."""
