"""Is the difference between two runs more than chance? Paired tests over the same users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrec.errors import ConfigError, DataError, unknown

CHUNK_NUMBERS = 2**20  # numbers drawn at a time: 10,000 resamples of all users would not fit into memory


@dataclass(frozen=True)
class Bootstrap:
    """Mean difference, its 95 % confidence interval and the two-sided p-value of "no difference"."""

    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Comparison:
    """One pair of runs; ``difference`` is the mean of ``first`` minus the mean of ``second``.

    The ``holm`` values are corrected for the number of pairs compared together.
    """

    first: str
    second: str
    users: int
    difference: float
    low: float
    high: float
    bootstrap_p: float
    bootstrap_holm: float
    wilcoxon_p: float
    wilcoxon_holm: float


def paired_bootstrap(a: ArrayLike, b: ArrayLike, *, samples: int = 10_000, seed: int = 0) -> Bootstrap:
    """Resample users with replacement: percentile interval of mean(a - b), and p from the centred resamples.

    The p-value is the share of resamples, after moving their centre to zero, that are at least as far from
    zero as the observed difference; the observed sample counts as one of them, so p is never 0.
    """
    if samples < 1:
        raise ConfigError(f"the bootstrap needs at least 1 sample, not {samples}")
    differences = _differences(a, b)
    observed = float(differences.mean())
    means = _resampled_means(differences, samples, np.random.default_rng(seed))
    low, high = np.quantile(means, [0.025, 0.975])
    slack = 1e-12  # resamples that equal the observed difference up to rounding count as equal
    extreme = int((np.abs(means - observed) >= abs(observed) - slack).sum())
    return Bootstrap(observed, float(low), float(high), (1 + extreme) / (1 + samples))


def wilcoxon(a: ArrayLike, b: ArrayLike) -> float:
    """Two-sided p of the Wilcoxon signed-rank test; users without a difference are dropped; 1 if all are."""
    from scipy import stats  # here because importing it takes longer than most evaluations

    differences = _differences(a, b)
    differences = differences[differences != 0]
    return float(stats.wilcoxon(differences).pvalue) if len(differences) else 1.0


def holm(pvalues: Iterable[float]) -> NDArray[np.float64]:
    """Holm's step-down correction, in the order given."""
    p = np.asarray(list(pvalues), np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise DataError("p-values must lie between 0 and 1; check the test that produced them")
    order = np.argsort(p)
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return corrected.clip(max=1.0)


def compare(
    runs: Mapping[str, ArrayLike], baseline: str | None = None, *, samples: int = 10_000, seed: int = 0
) -> list[Comparison]:
    """Test every run against ``baseline``, or every pair of runs where none is named, on per-user values."""
    if len(runs) < 2:
        raise DataError(f"a comparison needs at least two runs, not {len(runs)}; add another run")
    if baseline is not None and baseline not in runs:
        raise ConfigError(unknown("baseline", baseline, runs))
    pairs = list(combinations(runs, 2))
    if baseline is not None:
        pairs = [(run, baseline) for run in runs if run != baseline]
    boots, signed_ranks = [], []
    for first, second in pairs:
        try:
            boots.append(paired_bootstrap(runs[first], runs[second], samples=samples, seed=seed))
        except DataError as error:
            raise DataError(f"cannot compare '{first}' with '{second}': {error}") from None
        signed_ranks.append(wilcoxon(runs[first], runs[second]))
    return [
        Comparison(
            first=first,
            second=second,
            users=len(np.asarray(runs[first])),
            difference=boot.difference,
            low=boot.low,
            high=boot.high,
            bootstrap_p=boot.p,
            bootstrap_holm=float(boot_holm),
            wilcoxon_p=rank_p,
            wilcoxon_holm=float(rank_holm),
        )
        for (first, second), boot, boot_holm, rank_p, rank_holm in zip(
            pairs, boots, holm(boot.p for boot in boots), signed_ranks, holm(signed_ranks), strict=True
        )
    ]


def _resampled_means(values: NDArray[np.float64], samples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    n = len(values)
    distinct, repeats = np.unique(values, return_counts=True)
    # Users with equal values can be drawn together, as one multinomial count. A count costs about ten single
    # draws, but ranking metrics with one held-out item take few distinct values.
    grouped = 10 * len(distinct) < n

    def draw(size: int) -> NDArray[np.float64]:
        if grouped:
            return np.asarray(rng.multinomial(n, repeats / n, size=size) @ distinct / n)
        return np.asarray(values[rng.integers(0, n, size=(size, n), dtype=np.int32)].mean(axis=1))

    chunk = max(1, CHUNK_NUMBERS // (len(distinct) if grouped else n))
    return np.concatenate([draw(min(chunk, samples - done)) for done in range(0, samples, chunk)])


def _differences(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise DataError(
            f"a paired test needs one value per user from both runs, but their shapes are {first.shape} and "
            f"{second.shape}; evaluate both runs on the same split"
        )
    if len(first) == 0:
        raise DataError("a paired test needs at least one user; the runs hold none")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise DataError("per-user values contain NaN or infinity; drop users without test items from both runs")
    # Rounding noise of the metrics would otherwise break ties among differences, which the tests rely on.
    return np.round(first - second, 12)
