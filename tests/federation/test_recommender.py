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


@pytest.mark.parametrize(
    ("method", "settings", "advice"),
    [
        ("fedmf", {"lr": 0.5}, "lower lr (now 0.5)"),
        ("fedmf", {"lr": 0.5, "merge": "elastic", "adapter_lr": 1e6}, "lower adapter_lr (now 1e+06)"),
        ("fedem", {"lr": 0.001}, "lower lr (now 0.001)"),
        ("fedrap", {"lr_args": 1e9, "l2": 0}, "lower lr_args (now 1e+09)"),
        ("hetefedrec", {"lr_own": 1e9}, "lower lr_own (now 1e+09)"),
        ("mf", {"lr": 3.0}, "lower lr (now 3)"),
        ("ease", {}, "check the settings"),
    ],
)
def test_after_divergence_the_rate_that_was_raised_is_the_one_to_lower(method, settings, advice):
    assert fedrec.create(method, settings).when_diverged == advice
