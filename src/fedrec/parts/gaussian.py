"""Gaussian noise on a sum over clients: how much a budget asks for, and what noise costs."""

from __future__ import annotations

from typing import Any

from fedrec.errors import ConfigError


def noise_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """Ratio of noise to sensitivity at which so many Gaussian releases cost ``epsilon``, by the exact curve."""
    # So many Gaussian releases are one with the root of that many times less noise.
    return float(releases**0.5 * _accounting().get_sigma_gaussian(epsilon, delta))


def spent_epsilon(multiplier: float, delta: float, releases: int) -> float:
    """What the accountant says so many Gaussian releases cost."""
    return float(_accounting().get_epsilon_gaussian(multiplier / releases**0.5, delta))


def report(epsilon: float, delta: float, noise_std: float, releases: int = 1) -> dict[str, Any]:
    """What a result says of a noisy sum."""
    multiplier = noise_multiplier(epsilon, delta, releases)
    spent = spent_epsilon(multiplier, delta, releases)
    return {
        "epsilon": spent,
        "delta": delta,
        "noise_multiplier": multiplier,
        "noise_std": noise_std,
        "verdict": f"what the server sees is (epsilon {spent:.4g}, delta {delta:g}) differentially private "
        "for adding or removing one client, if the sum is secure, every client contributes its history once and the noise comes "
        "from secrets of theirs; here it follows from the run's seed, so that a run can be repeated",
    }


def _accounting() -> Any:
    try:
        import dp_accounting
    except ImportError:
        raise ConfigError("noise needs the extra 'privacy': pip install 'fedrec[privacy]'.") from None
    return dp_accounting
