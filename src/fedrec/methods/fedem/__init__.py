"""FedEM: ``method`` (the arrows) and ``similarity`` (who is like whom, and the weights that follow)."""

from fedrec.methods.fedem.method import VARIANTS, FedEM, FedEMConfig

__all__ = ["VARIANTS", "FedEM", "FedEMConfig"]
