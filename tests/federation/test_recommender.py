import copy

import pytest

import fedrec


@pytest.mark.parametrize("settings", [{}, {"merge": "static"}])
def test_copies_keep_what_was_set_beside_the_settings(settings):
    method = fedrec.create("fedmf", settings)
    method.rounds = 7
    assert copy.deepcopy(method).rounds == 7


@pytest.mark.parametrize(
    ("name", "settings", "sees"),
    [
        ("local", {}, "nothing"),
        ("fedem", {"agg": "mean"}, "sums only"),
        ("fedem", {"agg": "both"}, "every upload"),
        ("ease", {}, "all data"),
    ],
)
def test_a_result_says_what_the_server_saw(small, name, settings, sees):
    run = fedrec.train(fedrec.create(name, settings), small, rounds=1, device="cpu", progress=False)
    assert run.result.sees == sees
