import pytest

from fedrec.errors import ConfigError
from fedrec.protocol import HETEFEDREC, HONEST, PAPER, preset
from fedrec.protocol.presets import spelled


@pytest.mark.parametrize("base", [HONEST, PAPER, HETEFEDREC], ids=lambda p: p.name)
def test_a_name_with_choices_means_the_preset_with_these_options(base):
    found = preset(f"{base.name}:min_interactions=7")
    assert found == base.with_options(min_interactions=7)
    assert found.name == f"{base.name}*"
    assert found != base


def test_lists_and_several_choices_are_read():
    text = 'honest: history_at_test=train+validation , full_metrics=["hr@10", "ndcg@10"],candidates=0,metrics=[]'
    expected = HONEST.with_options(
        history_at_test="train+validation", full_metrics=["hr@10", "ndcg@10"], candidates=0, metrics=[]
    )
    assert preset(text) == expected


@pytest.mark.parametrize(
    "options", [{}, {"candidates": 50}, {"history_at_test": "train+validation"}, {"full_metrics": ("ndcg@10", "hr@5")}]
)
def test_a_protocol_is_spelled_as_it_is_read(options):
    changed = PAPER.with_options(**options) if options else PAPER
    assert preset(spelled(changed)) == changed
    assert spelled(HONEST) == "honest"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("honst:candidates=0", "did you mean 'honest'"),
        ("honest:", "is no protocol"),
        ("honest:candidates", "is no protocol"),
        ("honest:candidtes=0", "did you mean 'candidates'"),
        ("honest:candidates=-1", "candidates"),
        ("honest:candidates=0, candidates = 5", "a choice twice"),
    ],
)
def test_what_is_no_protocol_is_refused(name, words):
    with pytest.raises(ConfigError, match=words):
        preset(name)
