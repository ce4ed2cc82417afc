"""FedSasrec: ``method`` (the arrows), ``local`` (steps of a client by itself), ``config`` (model and gradient), ``losses``."""

from fedrec.methods.fedsasrec.method import FedSasrec, FedSasrecConfig

__all__ = ["FedSasrec", "FedSasrecConfig"]
