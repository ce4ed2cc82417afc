"""What Gaussian noise on sums over clients costs, by an accounting library: composition, sampling, calibration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fedrec.errors import ConfigError

ORDERS = (*range(2, 33), 40, 48, 64, 96, 128, 256)
"""Of Renyi divergences at which sampling is accounted; any choice gives a bound."""


@dataclass(frozen=True)
class Sampling:
    """Who takes part in a round: so many of all clients, drawn without replacement."""

    clients: int
    drawn: int


def gaussian_epsilon(noise: float, releases: int, delta: float) -> float:
    """Epsilon of so many releases with that ratio of noise to sensitivity, by the exact curve of the Gaussian mechanism."""
    # So many Gaussian releases are one with the root of that many times less noise.
    return float(_library().get_epsilon_gaussian(noise / releases**0.5, delta)) if releases else 0.0


def gaussian_noise(epsilon: float, releases: int, delta: float) -> float:
    """Ratio of noise to sensitivity at which so many releases cost ``epsilon``: the inverse of ``gaussian_epsilon``."""
    return float(max(1, releases) ** 0.5 * _library().get_sigma_gaussian(epsilon, delta))


@lru_cache(maxsize=1024)
def sampled_epsilon(noise: float, rounds: int, delta: float, sampling: Sampling) -> float:
    """Epsilon for who does not know who took part in which of the rounds: sampling hides a client among the others.

    The library's bound for sampling without replacement is for one client's data replaced by another's, which moves a sum by
    twice the clipping norm; adding or removing data is a case of it. Where sampling helps less than that costs, the bound
    of a client that is always there holds, too.
    """
    if rounds == 0:
        return 0.0
    library = _library()
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant(list(ORDERS), neighboring_relation=library.NeighboringRelation.REPLACE_ONE)
    once = library.SampledWithoutReplacementDpEvent(
        sampling.clients, sampling.drawn, library.GaussianDpEvent(noise / 2)
    )
    accountant.compose(once, rounds)
    return min(float(accountant.get_epsilon(delta)), gaussian_epsilon(noise, rounds, delta))


def sampled_noise(epsilon: float, rounds: int, delta: float, sampling: Sampling) -> float:
    """Ratio of noise to sensitivity at which so many sampled rounds cost ``epsilon`` at most."""
    low, high = 0.0, gaussian_noise(epsilon, rounds, delta)  # enough without sampling
    for _ in range(40):
        middle = (low + high) / 2
        if sampled_epsilon(middle, rounds, delta, sampling) > epsilon:
            low = middle
        else:
            high = middle
        if high - low < 1e-3 * high:
            break
    return high


def _library() -> Any:
    try:
        import dp_accounting
    except ImportError:
        raise ConfigError("accounting for noise needs the extra 'privacy': pip install 'fedrec[privacy]'.") from None
    return dp_accounting
