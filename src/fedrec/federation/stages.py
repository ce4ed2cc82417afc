"""The privacy stages there are: noise of every client on its upload, or noise on sums."""

from __future__ import annotations

from typing import Any

from fedrec.federation.central_privacy import CentralPrivacy, CentralStage
from fedrec.federation.privacy import Privacy, PrivacyStage

Noise = Privacy | CentralPrivacy
"""Settings of a stage."""
Stage = PrivacyStage | CentralStage


def stage_of(settings: Noise, seed: int, share: float = 1.0) -> Stage:
    """The stage with these settings; ``share`` of the variance of a sum's noise is added in this place."""
    if isinstance(settings, CentralPrivacy):
        return CentralStage(settings, seed, share)
    return PrivacyStage(settings, seed)


def noise_from(values: dict[str, Any]) -> Noise:
    """Settings from plain values, whose mechanism says which."""
    return (CentralPrivacy if values.get("mechanism") == "central" else Privacy)(**values)
