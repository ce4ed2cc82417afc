"""Settings of every kind refuse what nobody means, and say what they mean."""

import importlib
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field, ValidationError

from fedrec import methods
from fedrec.errors import ConfigError
from fedrec.federation.privacy import Privacy
from fedrec.methods import create
from fedrec.protocol import HONEST
from fedrec.running.options import RunOptions
from fedrec.settings import Settings


class Old(Settings):
    """Some settings."""

    rate: float = Field(0.1, gt=0)
    """How fast."""
    norm: Literal["l1", "none"] | None = "l1"
    """Which one."""
    snap: float | None = 0.5
    title: str | None = None
    place: Path | None = None
    sizes: tuple[int, ...] = (1,)
    sure: bool = False


class New(Old):
    """Declares one of them anew."""

    rate: float = Field(1.0, gt=0)
    share: float | tuple[float, ...] | None = None


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": True},
        {"snap": False},
        {"sizes": [1, True]},
        {"share": True},
        {"share": [0.5, True]},
        {"sizes": [2**63]},
        {"sizes": 2**63},
        {"rate": float("inf")},
        {"share": [float("nan")]},
        {"speed": 1},
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValidationError):
        New(**wrong)


def test_sense_is_taken():
    taken = New(sizes=[2**63 - 1, -5], sure=True, rate=1, share=[1, 0.5])
    assert (taken.sizes, taken.sure, taken.rate, taken.share) == ((2**63 - 1, -5), True, 1.0, (1.0, 0.5))


def test_none_is_a_choice_where_there_is_one_so_named_and_else_no_value():
    made = Old(norm="none", snap="none", title="none", place="none")
    assert (made.norm, made.snap, made.title, made.place) == ("none", None, "none", Path("none"))
    assert Old(norm=None).norm is None
    with pytest.raises(ValidationError):
        Old(rate="none")


def test_a_setting_declared_anew_keeps_its_meaning():
    assert New.meaning("rate") == "How fast."
    assert New.meaning("share") == ""


def test_all_kinds_of_settings_share_the_rules():
    with pytest.raises(ConfigError, match="true or false"):
        HONEST.with_options(candidates=True)
    with pytest.raises(ConfigError, match="true or false"):
        RunOptions(rounds=True)
    with pytest.raises(ValidationError, match="true or false"):
        Privacy(scale=True)
    with pytest.raises(ConfigError, match="setting lr: this is a number, not true or false"):
        create("fedmf", lr=True)
    with pytest.raises(ConfigError, match="batch_size: a whole number can be"):
        create("fedmf", batch_size=10**22)


@pytest.mark.parametrize("name", [*methods.BUILT_IN, "fedmf+static"])
def test_every_setting_of_every_method_has_a_meaning(name):
    base, _, merge = name.partition("+")
    config = type(create(base, merge=merge or None)).Config
    assert [field for field in config.model_fields if len(config.meaning(field).split()) < 2] == []


@pytest.mark.parametrize("method", ["fedem", "hetefedrec", "fedmf", "fedncf"])
def test_every_way_to_merge_reaches_the_method_and_has_its_own_label(method):
    modes = ("replace", "static", "dynamic", "elastic", "none")
    made = [create(method, {"merge": mode}) for mode in modes]
    assert [one.config.merge for one in made] == list(modes)
    assert len({one.label for one in made}) == len(modes)


def test_a_merge_mode_without_a_value_is_no_default():
    with pytest.raises(ConfigError, match="unknown merge mode 'None'; did you mean 'none'"):
        create("fedem", {"merge": None})


@pytest.mark.parametrize(
    "name", [name for name in methods.names() if "variant" in methods.find(name).Config.model_fields]
)
def test_a_variant_that_is_no_name_is_refused(name):
    with pytest.raises(ConfigError, match="variant"):
        create(name, {"variant": ["code"]})
    with pytest.raises(ConfigError, match="merge_variant"):
        create("fedmf", {"merge": "elastic", "merge_variant": ["code"]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[honest", "is no TOML"),
        ("honest = 1", "has a value where the settings for honest belong"),
        ("[honest]\ndemo = 1", "has a value where the settings for honest belong"),
        ("[honest]\nrounds = true", "has rounds = True; give a whole number"),
        ("[honest]\nrounds = -1", "has rounds = -1; give a whole number"),
        ("[honest]\nlr = true", "setting lr: this is a number, not true or false"),
    ],
)
def test_a_tuned_configuration_that_is_none_is_refused(tmp_path, monkeypatch, text, words):
    (tmp_path / "fedmf.toml").write_text(text)
    monkeypatch.setattr(importlib.import_module("fedrec.methods.tuned"), "files", lambda _: tmp_path)
    with pytest.raises(ConfigError, match=words):
        create("fedmf", data="demo")
