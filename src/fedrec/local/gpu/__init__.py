"""Triton twins of the local problems."""
