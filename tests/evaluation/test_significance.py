import numpy as np
import pytest

from fedrec.errors import ConfigError, DataError
from fedrec.evaluation import significance
from fedrec.evaluation.significance import compare, holm, paired_bootstrap, wilcoxon


def test_bootstrap_of_a_clear_difference():
    rng = np.random.default_rng(0)
    base = rng.normal(size=500)
    result = paired_bootstrap(base + 0.2 + 0.1 * rng.normal(size=500), base)
    assert result.difference == pytest.approx(0.2, abs=0.02)
    assert result.low < result.difference < result.high
    # The normal interval is +-1.96 * 0.1 / sqrt(500).
    assert result.high - result.low == pytest.approx(2 * 1.96 * 0.1 / 500**0.5, rel=0.1)
    assert result.p == pytest.approx(1 / 10_001)


def test_bootstrap_sign_and_repeatability():
    rng = np.random.default_rng(1)
    a, b = rng.random((2, 80))
    forward, backward = paired_bootstrap(a, b, seed=3), paired_bootstrap(b, a, seed=3)
    assert forward.difference == pytest.approx(-backward.difference)
    assert forward == paired_bootstrap(a, b, seed=3)
    assert forward != paired_bootstrap(a, b, seed=4)


def test_identical_runs_do_not_differ():
    a = np.random.default_rng(2).random(50)
    result = paired_bootstrap(a, a)
    assert (result.difference, result.low, result.high, result.p) == (0, 0, 0, 1)
    assert wilcoxon(a, a) == 1


def test_grouped_and_single_draws_have_the_same_distribution():
    rng = np.random.default_rng(3)
    differences = rng.choice([-1.0, 0.0, 1.0], p=[0.1, 0.7, 0.2], size=400)
    grouped = paired_bootstrap(differences, np.zeros(400), samples=20_000)
    # Distinct noise far below the differences forces the path that draws every user.
    single = paired_bootstrap(differences + np.linspace(0, 1e-9, 400), np.zeros(400), samples=20_000)
    assert (grouped.low, grouped.high) == pytest.approx((single.low, single.high), abs=0.004)
    assert grouped.p == pytest.approx(single.p, abs=0.003)


def test_small_chunks_draw_every_sample(monkeypatch):
    a = np.random.default_rng(4).random(30)
    monkeypatch.setattr(significance, "CHUNK_NUMBERS", 100)
    means = significance._resampled_means(a, 1000, np.random.default_rng(0))
    assert means.shape == (1000,)
    assert means.mean() == pytest.approx(a.mean(), abs=0.01)


def test_p_values_are_uniform_when_nothing_differs():
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(400, 2, 60))
    boots = np.array([paired_bootstrap(a, b, samples=500).p for a, b in noise])
    ranks = np.array([wilcoxon(a, b) for a, b in noise])
    for p in (boots, ranks):
        assert 0.02 < (p < 0.05).mean() < 0.09
        assert 0.42 < (p < 0.5).mean() < 0.58


def test_wilcoxon_drops_zero_differences():
    # Six positive differences without ties: 2 of the 64 sign patterns are as extreme.
    a = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert wilcoxon(a, np.zeros(6)) == pytest.approx(2 / 64)
    padded = np.concatenate([a, np.full(40, 0.3)])
    assert wilcoxon(padded, np.concatenate([np.zeros(6), np.full(40, 0.3)])) == pytest.approx(2 / 64)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]).tolist() == [1, 1]
    assert holm([]).tolist() == []
    with pytest.raises(DataError, match="between 0 and 1"):
        holm([0.5, float("nan")])


def runs():
    rng = np.random.default_rng(6)
    base = rng.random(200)
    return {"good": base + 0.1 * rng.random(200), "base": base, "same": base.copy()}


def test_compare_all_pairs():
    rows = compare(runs(), samples=999)
    assert [(row.first, row.second) for row in rows] == [("good", "base"), ("good", "same"), ("base", "same")]
    assert rows[0].difference > 0
    assert rows[0].low > 0
    assert rows[0].users == 200
    assert rows[0].bootstrap_p == pytest.approx(1 / 1000)
    assert rows[0].bootstrap_holm == pytest.approx(3 / 1000)
    assert rows[0].wilcoxon_holm == pytest.approx(3 * rows[0].wilcoxon_p)
    assert rows[2].bootstrap_holm == rows[2].wilcoxon_holm == 1


def test_compare_with_a_baseline():
    rows = compare(runs(), baseline="base", samples=999)
    assert [(row.first, row.second) for row in rows] == [("good", "base"), ("same", "base")]
    assert rows[0].bootstrap_holm == pytest.approx(2 / 1000)


def test_mistakes_are_explained():
    with pytest.raises(DataError, match="at least two runs"):
        compare({"only": [1.0]})
    with pytest.raises(ConfigError, match="did you mean 'base'"):
        compare(runs(), baseline="bas")
    with pytest.raises(DataError, match=r"cannot compare 'a' with 'b'.*\(2,\) and \(3,\)"):
        compare({"a": [1.0, 2.0], "b": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="NaN"):
        paired_bootstrap([1.0, np.nan], [1.0, 2.0])
    with pytest.raises(DataError, match="at least one user"):
        wilcoxon([], [])
    with pytest.raises(ConfigError, match="at least 1 sample"):
        paired_bootstrap([1.0], [2.0], samples=0)
