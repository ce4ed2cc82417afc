"""Evaluation protocols and the splits they make."""

from fedrec.protocol.presets import HETEFEDREC, HONEST, PAPER, PFEDREC, PRESETS, preset
from fedrec.protocol.protocol import Protocol
from fedrec.protocol.split import HeldOut, Split, make_split

__all__ = [
    "HETEFEDREC",
    "HONEST",
    "PAPER",
    "PFEDREC",
    "PRESETS",
    "HeldOut",
    "Protocol",
    "Split",
    "make_split",
    "preset",
]
