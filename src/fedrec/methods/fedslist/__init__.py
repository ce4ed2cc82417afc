"""FedSlist: ``method`` (the arrows), ``projected`` (sums in few directions), ``config`` (settings, some shared with the centralised twin)."""

from fedrec.methods.fedslist.config import FedSlistConfig
from fedrec.methods.fedslist.method import FedSlist

__all__ = ["FedSlist", "FedSlistConfig"]
