"""FedGram: ``method`` (the arrows) and ``symmetric`` (the matrices that cross them)."""

from fedrec.methods.fedgram.method import FedGram, FedGramConfig

__all__ = ["FedGram", "FedGramConfig"]
