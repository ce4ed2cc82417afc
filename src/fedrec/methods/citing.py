"""Whom to cite for a method: entries of ``papers.bib``, which holds what is known of each paper and nothing else.

Authors are surnames, as the papers are cited throughout this package.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

PAPERS: dict[str, tuple[str, ...]] = {
    "local": ("fedmf", "fcf"),
    "fedmf": ("fedmf", "fcf"),
    "fedgram": ("ease",),
    "fedslist": ("slist", "ease"),
    "fedgains": ("slist", "ease"),
    "blend": (),
    "fedsasrec": ("sasrec",),
    "sasrec": ("sasrec", "klenitskiy2023"),
    "mf": ("koren2009", "bpr"),
    "ials": ("ials", "ials2022"),
}
"""Keys of the papers of a method, where it is not one paper of the method's own name."""


@cache
def papers() -> dict[str, str]:
    """Every entry by its key."""
    text = files(__package__).joinpath("papers.bib").read_text(encoding="utf-8")
    entries = [entry.strip() for entry in text.split("\n\n")]
    return {entry[entry.index("{") + 1 : entry.index(",")]: entry for entry in entries}


def bibtex(name: str) -> list[str]:
    """The entries to cite for a method of this package; none where it follows no paper."""
    known = papers()
    return [known[key] for key in PAPERS.get(name, (name,)) if key in known]


def field(entry: str, name: str) -> str:
    """What stands in a field of an entry, without the braces that keep capitals."""
    found = re.search(rf"^\s*{name} = {{(.*)}},?$", entry, re.MULTILINE)
    return "" if found is None else re.sub("[{}]", "", found[1])
