"""What commands that train take where nothing is said."""

from __future__ import annotations

from fedrec.running.options import RunOptions

DEFAULTS = RunOptions()
"""Defaults of everything that is an option of a run in Python, too."""
