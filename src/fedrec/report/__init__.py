"""Runs and studies to look at: one page in a browser, or a file for every figure."""
