"""The methods that docs/add-a-method.md builds work as the page says, also through an entry point."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import fedrec
from fedrec import methods
from fedrec.parts.merged_method import merged
from fedrec.testing import MethodSuite

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"


def code_with(text):
    (code,) = (found for found in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if text in found)
    return code


def from_the_page(name):
    space = {"__name__": "outside"}
    exec(compile(code_with(f"class {name}("), "add-a-method.md", "exec"), space)
    return space[name]


FedBias = from_the_page("FedBias")


class TestFedBias(MethodSuite):
    method = FedBias
    options = {"lr": 0.05}
    floor = 0.25


class TestCounts(MethodSuite):
    method = from_the_page("Counts")
    rounds = 1
    floor = 0.28
    deterministic = True


def test_the_page_keeps_its_promise_of_length():
    code = code_with("class FedBias(")
    assert len(code.splitlines()) <= 50
    assert len(re.findall(r"^(?:from|import) ", code, re.MULTILINE)) <= 3


def test_every_setting_of_the_page_does_something(honest):
    found = []
    for decay in (0.0, 1.0):
        run = fedrec.train(FedBias(lr=0.05, bias_decay=decay), honest, rounds=3, progress=False, device="cpu")
        found.append(run.test["full"]["ndcg@10"])
    assert found[0] != found[1]


def test_entry_points_are_found(monkeypatch, honest):
    point = EntryPoint("fedbias", "outside:FedBias", "fedrec.methods")
    monkeypatch.setattr(EntryPoint, "load", lambda self: FedBias)
    monkeypatch.setattr(methods, "_external", lambda: {"fedbias": point})
    assert "fedbias" in methods.names()
    run = fedrec.train(fedrec.create("fedbias", lr=0.05), honest, rounds=2, progress=False, device="cpu")
    assert run.result.method == "fedbias"


def test_merging_plugs_into_it(honest):
    method = merged(FedBias)(lr=0.05, epochs=1, merge="elastic", adapter_epochs=2)
    run = fedrec.train(method, honest, rounds=2, progress=False, device="cpu")
    assert run.result.method == "fedbias+elastic"


def test_merging_needs_a_table():
    with pytest.raises(fedrec.ConfigError, match="downloads no item table"):
        fedrec.create("popularity", merge="elastic")
