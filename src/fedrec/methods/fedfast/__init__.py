"""FedFast: ``method`` (the arrows) and ``clustering`` (k-means)."""

from fedrec.methods.fedfast.method import FedFast, FedFastConfig

__all__ = ["FedFast", "FedFastConfig"]
