"""FedEM: ``method`` (the arrows), ``similarity`` (who is like whom, and the weights), ``approximate`` (for many clients)."""

from fedrec.methods.fedem.method import VARIANTS, FedEM, FedEMConfig

__all__ = ["VARIANTS", "FedEM", "FedEMConfig"]
