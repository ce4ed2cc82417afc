"""How bytes get to sites and back: over Flower, or within one process (for tests, and to try things out)."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from fedrec.deploy.site import Site


@dataclass(frozen=True)
class Missing:
    """Why there is no answer."""

    reason: str


Replies = dict[str, bytes | Missing]


class Transport(Protocol):
    """Carries messages to sites."""

    @property
    def sent(self) -> dict[str, int]:
        """Bytes of messages that sites sent."""
        ...

    @property
    def received(self) -> dict[str, int]:
        """Bytes of messages that sites received and answered."""
        ...

    def online(self) -> list[str]:
        """Names of the sites that can be reached now."""
        ...

    def ask(self, requests: Mapping[str, bytes], deadline: float) -> Replies:
        """Send every site its message; what has not come back after ``deadline`` seconds is missing."""
        ...


class Local:
    """Sites in this process."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        """By name."""
        self.sites = dict(sites)
        self.sent: dict[str, int] = {}
        self.received: dict[str, int] = {}

    def online(self) -> list[str]:
        """All of them."""
        return list(self.sites)

    def ask(self, requests: Mapping[str, bytes], deadline: float) -> Replies:
        """Answers come at once."""
        with ThreadPoolExecutor(1) as pool:  # one at a time: sites share this process's threads
            replies = dict(zip(requests, pool.map(self._ask, requests.items()), strict=True))
        for name, request in requests.items():
            found = replies[name]
            if isinstance(found, bytes):
                self.received[name] = self.received.get(name, 0) + len(request)
                self.sent[name] = self.sent.get(name, 0) + len(found)
        return replies

    def _ask(self, request: tuple[str, bytes]) -> bytes | Missing:
        name, data = request
        site = self.sites.get(name)
        return Missing("it is not connected") if site is None else site.answer(data)
