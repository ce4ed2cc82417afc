import itertools

import numpy as np
import pytest
from scipy import stats

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


def test_without_options_ten_thousand_samples_are_drawn_from_seed_zero():
    a, b = np.random.default_rng(7).random((2, 40))
    assert paired_bootstrap(a, b) == paired_bootstrap(a, b, samples=10_000, seed=0)
    row = compare({"a": a, "b": b})[0]
    boot = paired_bootstrap(a, b)
    assert (row.difference, row.low, row.high, row.bootstrap_p) == (boot.difference, boot.low, boot.high, boot.p)
    seeded, other = compare({"a": a, "b": b}, samples=500, seed=3)[0], paired_bootstrap(a, b, samples=500, seed=3)
    assert (seeded.low, seeded.high) == (other.low, other.high)


def test_one_sample_is_enough_for_a_bootstrap():
    assert paired_bootstrap([1.0, 2.0], [0.0, 0.0], samples=1).p in (0.5, 1.0)


def test_the_interval_is_the_percentile_interval_of_an_independent_bootstrap():
    differences = np.random.default_rng(8).exponential(size=60) - 0.7  # skewed: both ends matter
    ours = paired_bootstrap(differences, np.zeros(60), samples=20_000)
    theirs = stats.bootstrap((differences,), np.mean, n_resamples=20_000, method="percentile", random_state=0)
    spread = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval), abs=0.03 * spread)


@pytest.mark.parametrize("place", [0, -1])
def test_every_user_can_be_drawn(place):
    values = np.linspace(0, 1e-6, 10)
    values[place] = 100.0
    result = paired_bootstrap(values, np.zeros(10), samples=2000)
    assert result.low < 1
    assert result.high > 20  # 100 users' worth for one of ten, drawn twice or more in a quarter of the samples


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


class Recorder:
    """A generator that notes how much is drawn at a time, and how."""

    def __init__(self):
        self.rng, self.drawn = np.random.default_rng(0), []

    def integers(self, *bounds, size, **options):
        self.drawn.append(("single", *size))
        return self.rng.integers(*bounds, size=size, **options)

    def multinomial(self, n, p, size):
        self.drawn.append(("grouped", size, len(p)))
        return self.rng.multinomial(n, p, size=size)


@pytest.mark.parametrize(
    ("values", "how", "numbers"), [(30, "single", 30), (400, "grouped", 4), (1500, "single", 1500)]
)
def test_resamples_are_drawn_in_pieces_and_few_distinct_values_together(monkeypatch, values, how, numbers):
    monkeypatch.setattr(significance, "CHUNK_NUMBERS", 1000)
    rng = Recorder()
    sample = np.arange(400) % 4 if how == "grouped" else np.arange(values)
    means = significance._resampled_means(sample / 1.0, 2100, rng)
    assert len(means) == 2100
    piece = max(1, 1000 // numbers)
    assert {(kind, width) for kind, _, width in rng.drawn} == {(how, numbers)}
    assert [size for _, size, _ in rng.drawn][:-1] == [piece] * (len(rng.drawn) - 1)


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


def test_wilcoxon_is_the_share_of_sign_patterns_that_are_as_extreme():
    differences = np.array([0.3, -0.1, 0.7, 1.2, -0.4, 0.9, 2.0, 0.2])
    ranks = np.abs(differences).argsort().argsort() + 1
    patterns = np.array(list(itertools.product([0, 1], repeat=8))) @ ranks
    observed = ranks[differences > 0].sum()
    extreme = (np.abs(patterns - ranks.sum() / 2) >= abs(observed - ranks.sum() / 2)).mean()
    assert wilcoxon(differences, np.zeros(8)) == pytest.approx(extreme)


def test_differences_below_the_rounding_of_a_metric_are_none():
    a = np.random.default_rng(9).random(30)
    assert wilcoxon(a + 4e-13, a) == 1
    assert paired_bootstrap(a + 4e-13, a).difference == 0
    assert wilcoxon(a + 4e-12, a) < 1e-4


def test_holm_rejects_what_stepping_down_rejects():
    rng = np.random.default_rng(10)
    for _ in range(50):
        p = rng.random(6) ** 3
        corrected = holm(p)
        for level in (0.01, 0.05, 0.2):
            rejected, tests = set(), sorted(range(6), key=p.__getitem__)
            for step, test in enumerate(tests):
                if p[test] * (6 - step) > level:
                    break
                rejected.add(test)
            assert set(np.flatnonzero(corrected <= level)) == rejected


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]).tolist() == [1, 1]
    assert holm([]).tolist() == []
    assert holm([0, 1]).tolist() == [0, 1]
    for wrong in (float("nan"), -0.1, 1.5):
        with pytest.raises(DataError, match=r"^p-values must lie between 0 and 1; check the test that produced them$"):
            holm([0.5, wrong])


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
    with pytest.raises(ConfigError, match=r"^unknown baseline 'bas'.*did you mean 'base'"):
        compare(runs(), baseline="bas")
    with pytest.raises(DataError, match=r"cannot compare 'a' with 'b'.*\(2,\) and \(3,\)"):
        compare({"a": [1.0, 2.0], "b": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match=r"^per-user values contain NaN or infinity.*from both runs$"):
        paired_bootstrap([1.0, np.nan], [1.0, 2.0])
    with pytest.raises(DataError, match=r"^a paired test needs at least one user; the runs hold none$"):
        wilcoxon([], [])
    with pytest.raises(ConfigError, match="at least 1 sample"):
        paired_bootstrap([1.0], [2.0], samples=0)
