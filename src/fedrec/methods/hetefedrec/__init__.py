"""HeteFedRec, from the top: ``method`` (the arrows), ``config``, ``roles`` (what a mode means), ``sizes`` (who gets which),
``models``, ``local_work`` (a client), ``server`` with ``padding`` and ``distillation``, and ``decorrelation``."""

from fedrec.methods.hetefedrec.config import ROWS, HeteFedRecConfig
from fedrec.methods.hetefedrec.method import HeteFedRec

__all__ = ["ROWS", "HeteFedRec", "HeteFedRecConfig"]
