"""FedGains: ``method`` (the arrows), ``config`` (settings and what is ranked), ``gains`` (fitting them on a device)."""

from fedrec.methods.fedgains.config import FedGainsConfig
from fedrec.methods.fedgains.method import FedGains

__all__ = ["FedGains", "FedGainsConfig"]
