"""FedCIA: ``method`` (the arrows), ``alignment`` (of a client's table with the mean), ``graph_filter`` (its spectral variant)."""

from fedrec.methods.fedcia.method import FedCIA, FedCIAConfig, Spectral

__all__ = ["FedCIA", "FedCIAConfig", "Spectral"]
