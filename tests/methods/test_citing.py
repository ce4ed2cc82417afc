"""What is cited is what the module of the method cites, word for word, and every method with a paper has one."""

import re
import sys

import pytest

from command_line import refused, run
from fedrec import methods
from fedrec.methods.citing import bibtex, field, papers

WITHOUT = {"random", "popularity", "blend"}


def words(text):
    return re.sub(r"[^a-z0-9]+", " ", text.lower())


@pytest.mark.parametrize("name", [name for name in methods.BUILT_IN if name not in WITHOUT])
def test_every_entry_says_what_the_module_says(name):
    kind = methods.find(name)
    about = words(" ".join(sys.modules[kind.__module__].__doc__.split()))
    entries = bibtex(name)
    assert entries, f"{name} has no entry in papers.bib"
    ours = "ours" in kind.paper
    for entry in entries:
        year = field(entry, "year")
        assert year in about or year in kind.paper
        if not ours:  # of what ours are built on, other modules tell
            assert words(field(entry, "title")) in about
            surnames = [author for author in field(entry, "author").split(" and ") if author != "others"]
            assert [words(author) in about for author in surnames] == [True] * len(surnames), surnames


def test_every_entry_is_of_some_method_and_whole():
    used = {entry for name in methods.BUILT_IN for entry in bibtex(name)}
    assert used == set(papers().values())
    for key, entry in papers().items():
        assert re.match(rf"@\w+{{{key},\n", entry)
        assert entry.count("{") == entry.count("}")
        assert all(field(entry, name) for name in ("author", "title", "year")), key


def test_the_command_prints_entries(capsys):
    code, out, err = run(capsys, "methods", "fedmf", "--bibtex")
    assert (code, err) == (0, "")
    assert out == "\n\n".join([papers()["fedmf"], papers()["fcf"]]) + "\n"
    assert run(capsys, "methods", "--bibtex")[1].count("@") == len(papers())
    assert "follows no paper" in refused(capsys, "methods", "popularity", "--bibtex")
