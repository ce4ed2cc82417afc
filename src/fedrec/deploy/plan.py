"""What a run of a federation is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from fedrec.data.interactions import Ids
from fedrec.federation.central_privacy import CentralPrivacy
from fedrec.federation.stages import Noise
from fedrec.protocol.protocol import Protocol


@dataclass(frozen=True)
class Plan:
    """Options of a run that server and sites need."""

    run: str
    """Name of the run; sites keep what belongs to it under this name."""
    catalogue: Ids
    protocol: Protocol
    seed: int = 0
    split_seed: int = 0
    deadline: float = 600.0
    """Seconds a site has for an answer; later ones are not waited for."""
    min_sites: int = 1
    """Sites that must answer for a round to count."""
    hashed: bool = False
    """The catalogue is the union of the sites' items under keyed hashes, which the server cannot read; asked for if empty."""
    secure: bool = False
    """Behind secure aggregation: the server learns sums over sites, and nothing of any one of them."""
    privacy: Noise | None = None
    """Noise of clients on their uploads, or shares of noise that sites add to their secure sums."""
    rounds: int = 0
    """Rounds of the whole run, for which noise is calibrated."""
    wait: float = 60.0
    """Seconds to wait for sites to connect before a run begins."""

    @property
    def central(self) -> bool:
        """Whether sites add noise to their sums, so that no sum is without."""
        return isinstance(self.privacy, CentralPrivacy)
