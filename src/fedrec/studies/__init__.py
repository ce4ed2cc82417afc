"""Grids of runs: the papers' tables and figures, comparisons of methods, and tuning, all on one cache of finished runs."""
