"""FedSlist: ``method`` (the arrows) and ``config`` (its settings, shared with the centralised twin)."""

from fedrec.methods.fedslist.method import FedSlist, FedSlistConfig

__all__ = ["FedSlist", "FedSlistConfig"]
