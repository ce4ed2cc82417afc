"""The method that docs/add-a-method.md builds works as the page says, also through an entry point."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import fedrec
from fedrec import methods
from fedrec.testing import MethodSuite

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"


def from_the_page():
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    space = {"__name__": "outside"}
    exec(compile(code, "add-a-method.md", "exec"), space)
    return space["FedBias"], code


class TestFedBias(MethodSuite):
    method = from_the_page()[0]
    options = {"lr": 0.05}
    floor = 0.25


def test_the_page_keeps_its_promise_of_length():
    assert len(from_the_page()[1].splitlines()) <= 60


def test_entry_points_are_found(monkeypatch, honest):
    point = EntryPoint("fedbias", "outside:FedBias", "fedrec.methods")
    monkeypatch.setattr(EntryPoint, "load", lambda self: from_the_page()[0])
    monkeypatch.setattr(methods, "_external", lambda: {"fedbias": point})
    assert "fedbias" in methods.names()
    run = fedrec.train(fedrec.create("fedbias", lr=0.05), honest, rounds=2, progress=False, device="cpu")
    assert run.result.method == "fedbias"


def test_merging_plugs_into_it(honest):
    base = from_the_page()[0](lr=0.05, epochs=1)
    run = fedrec.train(fedrec.parts.plugin.Merged(base), honest, rounds=2, progress=False, device="cpu")
    assert run.result.method == "fedbias+elastic"


def test_merging_needs_a_table():
    with pytest.raises(fedrec.ConfigError, match="downloads no item table"):
        fedrec.create("popularity", merge="elastic")
