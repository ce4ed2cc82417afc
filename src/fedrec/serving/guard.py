"""What stands before every request: who may ask, how often and how much; and what is counted of it."""

from __future__ import annotations

import hmac
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/", "/page.js", "/page.css", "/docs", "/docs.js", "/openapi.json", "/api/health")
"""What needs no token: it tells nothing of the model."""
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_ADDRESSES = 10_000


class Rates:
    """A bucket of requests for every address; of the addresses only the latest are remembered."""

    def __init__(
        self, per_second: float, burst: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """0 a second: no limit."""
        self.per_second, self.burst, self.clock = per_second, float(burst or max(1.0, 2 * per_second)), clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Whether one more request of an address may pass now."""
        if not self.per_second:
            return True
        now = self.clock()
        left, since = self._left.pop(address, (self.burst, now))
        left = min(self.burst, left + (now - since) * self.per_second)
        self._left[address] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > _ADDRESSES:
            self._left.popitem(last=False)
        return left >= 1


class Meter:
    """Counts of requests and how long they took; nothing of what was in them."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = {}
        self.within = [0] * len(BUCKETS)
        self.count, self.seconds = 0, 0.0

    def note(self, route: str, status: int, seconds: float) -> None:
        """One request."""
        self.requests[route, status] = self.requests.get((route, status), 0) + 1
        self.count += 1
        self.seconds += seconds
        for k, bound in enumerate(BUCKETS):
            self.within[k] += seconds <= bound

    def text(self) -> str:
        """In the text format of Prometheus."""
        lines = ["# HELP fedrec_requests_total Requests by route and status.", "# TYPE fedrec_requests_total counter"]
        for (route, status), count in sorted(self.requests.items()):
            lines.append(f'fedrec_requests_total{{route="{route}",status="{status}"}} {count}')
        lines += ["# HELP fedrec_request_seconds Time to answer.", "# TYPE fedrec_request_seconds histogram"]
        lines += [f'fedrec_request_seconds_bucket{{le="{b}"}} {n}' for b, n in zip(BUCKETS, self.within, strict=True)]
        lines += [
            f'fedrec_request_seconds_bucket{{le="+Inf"}} {self.count}',
            f"fedrec_request_seconds_sum {self.seconds}",
        ]
        return "\n".join([*lines, f"fedrec_request_seconds_count {self.count}", ""])


class TooLargeError(Exception):
    """A body beyond the limit."""


class Guard:
    """Wraps a service."""

    def __init__(self, app: App, *, token: str | None, rates: Rates, most_bytes: int, meter: Meter) -> None:
        """Without a ``token`` only requests that were addressed to this machine by its local name are answered."""
        self.app, self.token, self.rates, self.most_bytes, self.meter = app, token, rates, most_bytes, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status, started, received = time.perf_counter(), 500, False, 0

        async def answer(message: MutableMapping[str, Any]) -> None:
            nonlocal status, started
            if received > self.most_bytes and not started:
                return  # whatever the service makes of half a body
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        async def limited() -> MutableMapping[str, Any]:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.most_bytes:
                raise TooLargeError
            return message

        refusal = self._refusal(scope)
        try:
            if refusal is not None:
                await _refuse(answer, *refusal)
            else:
                await self.app(scope, limited, answer)
        except TooLargeError:
            pass
        finally:
            if received > self.most_bytes and not started:
                received, status = 0, 413
                await _refuse(answer, 413, f"a request has {self.most_bytes:,} bytes at most")
            # The router leaves the pattern of the route, so no id of an item or a user becomes a label.
            route = getattr(scope.get("route"), "path", "other")
            self.meter.note(route, status, time.perf_counter() - begin)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        if self.token is None and _name(headers.get(b"host", b"").decode("latin-1")) not in _LOCAL:
            return 421, "without a token this service answers on this machine only, as localhost"
        if not self.rates.take((scope.get("client") or ("", 0))[0]):
            return 429, "too many requests; ask again in a second"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.most_bytes:
            return 413, f"a request has {self.most_bytes:,} bytes at most"
        if self.token is not None and scope["path"] not in OPEN:
            given = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
            if not hmac.compare_digest(given, self.token.encode()):
                return 401, "a token is needed: send the header 'Authorization: Bearer TOKEN'"
        return None


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    return host.rsplit(":", 1)[0] if not host.endswith("]") and ":" in host else host


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"detail": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
