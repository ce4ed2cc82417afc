"""What was observed: named data sets, your own files and frames, filters, and what a trainer sees."""

from fedrec.data.catalogue import Entry, catalogue
from fedrec.data.filters import filter_interactions, stats
from fedrec.data.interactions import Interactions
from fedrec.data.item_table import ItemTable, read_items
from fedrec.data.loading import load
from fedrec.data.reading import from_frame, read, read_csv
from fedrec.data.training import Ragged, TrainingView

__all__ = [
    "Entry",
    "Interactions",
    "ItemTable",
    "Ragged",
    "TrainingView",
    "catalogue",
    "filter_interactions",
    "from_frame",
    "load",
    "read",
    "read_csv",
    "read_items",
    "stats",
]
