"""Every method has a page, and the page says what the server sees."""

import re
from pathlib import Path

import pytest

from fedrec.methods import BUILT_IN, find

DOCS = Path(__file__).parents[2] / "docs" / "methods"
SHARED = {"local": "fedmf", "popularity": "references", "random": "references"}


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_page_says_what_the_server_sees(name):
    kind = find(name)
    sees = kind.kind_for(kind.configure({})).sees
    page = "central" if sees == "all data" else SHARED.get(name, name)
    (said,) = re.findall(r"^\*\*The server sees\*\* (.*)\.$", (DOCS / f"{page}.md").read_text(), re.MULTILINE)
    assert sees in said
