"""Colours, light and dark, once for the page and the image files. Neighbours differ for the colour-blind, too."""

from __future__ import annotations

LIGHT = ("#2a6fc9", "#d9622b", "#17876a", "#8a4fbf", "#b8860b", "#c2387a", "#4d7c0f", "#0e7490")
DARK = ("#6aa5f2", "#f0935f", "#3fbf97", "#b58cf0", "#d9ad3c", "#ea7fb1", "#9cc54a", "#4fb8cf")
DASHES = ("solid", "dash", "dot", "dashdot")
"""After the last colour the first comes again, with the next dash and symbol."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
INK, PAPER, GRID, FAINT = "#1c2128", "#ffffff", "#e2e5e9", "#a9b0b9"
"""Of image files: text, ground, grid, what is in the background."""
