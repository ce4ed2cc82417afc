"""``fedrec methods``: a line for each, and everything about one."""

import re
from typing import Annotated, Literal

import pytest
from pydantic import Field

from command_line import refused, run, strict
from fedrec import methods
from fedrec.cli import inspect
from fedrec.screen import Screen
from fedrec.settings import Settings


@pytest.fixture(params=[80, 120])
def width(request, monkeypatch):
    from fedrec.cli import tables

    console = Screen(width=request.param)
    for module in (inspect, tables):
        monkeypatch.setattr(module, "out", console)
    return request.param


def test_one_line_each(capsys, width):
    code, out, _ = run(capsys, "methods")
    lines = out.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= width
    assert [line.split()[0] for line in lines[2 : 2 + len(methods.names())]] == methods.names()
    assert len(lines) == len(methods.names()) + 4
    seen = {line.split()[0]: line for line in lines}
    assert "every upload" in seen["gpfedrec"]
    assert "sums only *" in seen["fedem"]
    assert "sums only  " in seen["fedmf"]


def test_details_of_one(capsys, width):
    code, out, _ = run(capsys, "methods", "fedem")
    assert code == 0
    assert max(map(len, out.splitlines())) <= width
    plain = " ".join(out.split())
    for words in (
        "Chen et al.",
        "the server sees: sums only; every upload with other settings",
        "private on the client:",
    ):
        assert words in plain
    for name in methods.find("fedem").Config.model_fields:
        assert re.search(rf"^{name} ", out, re.MULTILINE), name
    assert re.search(r"^adapter_hidden +\[16, 8\] +list of integers +Hidden layers", out, re.MULTILINE)
    assert "agg=mean" in plain, "tuned values are shown"


@pytest.mark.parametrize("name", methods.names())
def test_every_setting_is_explained(capsys, name):
    found = strict(run(capsys, "methods", name, "--json")[1])
    config = methods.find(name).configure({})
    assert {key: one["default"] for key, one in found["settings"].items()} == config.model_dump(mode="json")
    for key, one in found["settings"].items():
        assert len(one["meaning"]) > 8, f"{name}.{key} says nothing of itself"
        assert one["type"], key
        assert not re.search(r"[\[\]<>]\w|typing|Literal|None\b", one["type"]), one["type"]
    code, out, _ = run(capsys, "methods", name)
    assert code == 0
    if sent := found["bytes_ml_1m_d16"]:
        words = f"per client and round: {sent['up'] / 1e3:,.1f} KB up, {sent['down'] / 1e3:,.1f} KB down"
        assert words in " ".join(out.split())


def test_a_method_that_is_not_there(capsys):
    assert "did you mean 'fedmf'" in refused(capsys, "methods", "fedmff")


def test_forms_in_words():
    class Some(Settings):
        whole: int = Field(1, ge=1, le=5)
        share: float | None = Field(None, gt=0)
        kind: Literal["a", "b"] | None = None
        layers: tuple[Annotated[int, Field(ge=1)], ...] = (1,)
        either: float | tuple[float, ...] = 1.0
        text: str = ""
        on: bool = False

    forms = {name: Some.form(name) for name in Some.model_fields}
    assert forms == {
        "whole": "integer >= 1, <= 5",
        "share": "number > 0 or none",
        "kind": "a, b or none",
        "layers": "list of integers",
        "either": "number or list of numbers",
        "text": "text",
        "on": "true, false",
    }
