"""GPFedRec: ``method`` (the arrows) and ``graph`` (who passes tables to whom)."""

from fedrec.methods.gpfedrec.method import GPFedRec, GPFedRecConfig

__all__ = ["GPFedRec", "GPFedRecConfig"]
