"""Compiled CPU twins of the local problems."""
