import pytest
from pydantic import ValidationError

import fedrec
from fedrec.errors import ConfigError


def test_the_default_is_honest():
    assert fedrec.Protocol() == fedrec.HONEST
    assert not fedrec.HONEST.leaks
    assert fedrec.HONEST.leak_reasons == ()


def test_leaking_presets_say_why():
    assert len(fedrec.PAPER.leak_reasons) == 2
    assert "negatives" in fedrec.PFEDREC.leak_reasons[0]
    assert fedrec.PFEDREC.select_on == "validation"
    assert not fedrec.HETEFEDREC.leaks


def test_selecting_on_test_alone_counts_as_a_leak():
    assert fedrec.HONEST.with_options(select_on="test").leaks


def test_protocols_are_frozen_and_changes_are_renamed():
    with pytest.raises(ValidationError):
        fedrec.HONEST.pool = "all"
    assert fedrec.HONEST.with_options(min_interactions=5).name == "honest*"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_interaction": 5}, "did you mean 'min_interactions'"),
        ({"min_interactions": 0}, "min_interactions"),
        ({"holdout": "ratio"}, "candidates=0"),
        ({"select_metric": "hr@50"}, "hr@50"),
    ],
)
def test_bad_options_get_one_sentence(options, words):
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        fedrec.HONEST.with_options(**options)


def test_unknown_preset_suggests_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'honest'"):
        fedrec.preset("honst")
