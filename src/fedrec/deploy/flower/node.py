"""A site as a node of a Flower federation: one process that pulls messages, answers them, and pushes the answers.

Flower's own node starts a new process per message and runs code that the server sends there. This one speaks the same
protocol (node keys, heartbeats, chunks) and runs nothing but the installed package.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.supercore import heartbeat
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    pull_objects,
    push_object_contents_from_iterable,
)
from flwr.supercore.run import RunNotRunningException
from flwr.supernode import fleet_http_connection

from fedrec.deploy.flower.envelope import unwrapped, wrapped
from fedrec.deploy.flower.greeting import greet
from fedrec.errors import FedrecError

log = logging.getLogger("fedrec.site")

POLL = 0.3
"""Seconds between two looks for a message."""
HEARTBEAT = 10
"""Seconds between signs of life; a site that stops without a word counts as gone after two of them."""
ACTIVATION = 45.0
"""Seconds to wait until the server lets a site in again that had stopped without a word."""

RETRY = 3.0
"""Seconds between two attempts to be let in."""


class RefusedError(Exception):
    """The server does not let a site in; the text is Flower's reason."""


def _refused(code: int, message: str = "", **details: Any) -> None:
    raise RefusedError(" ".join(message.replace("Failed to initialize the connection to the SuperLink.", "").split()))


fleet_http_connection.flwr_exit = _refused
heartbeat.HEARTBEAT_DEFAULT_INTERVAL = HEARTBEAT
fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = HEARTBEAT


class Traffic:
    """Bytes of HTTP a site has sent and received, encryption aside: messages, looks for them, signs of life."""

    def __init__(self) -> None:
        """None yet."""
        self.sent = self.received = 0

    def watch(self, client: httpx.Client) -> None:
        """Count what this client sends and receives."""
        client.event_hooks = {"request": [self._out], "response": [self._in]}

    def _out(self, request: httpx.Request) -> None:
        self.sent += len(request.content) + _head(request.headers) + len(str(request.url)) + 16

    def _in(self, response: httpx.Response) -> None:
        self.received += int(response.headers.get("content-length", 0)) + _head(response.headers) + 17


def _head(headers: httpx.Headers) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers.raw)


TRAFFIC = Traffic()
"""Of this process."""


class _Counted(fleet_http_connection.FleetHttpClient):  # type: ignore[misc]
    @classmethod
    def from_server_address(cls, *places: Any, **options: Any) -> Any:
        made = super().from_server_address(*places, **options)
        TRAFFIC.watch(made._client)
        return made


fleet_http_connection.FleetHttpClient = _Counted


def serve(
    address: str, authority: Path, key: Path, answer: Callable[[bytes], bytes], connected: Callable[[int], None]
) -> None:
    """Answer the server's messages until the process is stopped; connections that break are made anew."""
    private = _private_key(key)
    end = time.monotonic() + ACTIVATION
    while True:
        greet(address, authority)
        try:
            with fleet_http_connection.http_request_response(
                address, False, authority.read_bytes(), (private, private.public_key())
            ) as link:
                end = time.monotonic() + ACTIVATION
                connected(link[0])
                _work(link, answer)
            log.warning("the connection to %s has ended; making it anew", address)
        except RefusedError as error:
            # The same answer to a key nobody knows, and to a site whose former process may still be there.
            if time.monotonic() > end:
                raise FedrecError(
                    f"the server at {address} does not let this site in ({error}): it does not know the key in {key}, or the "
                    "site runs a second time elsewhere; carry the site's folder here anew, or stop the other one."
                ) from None
            log.warning("not let in (%s); trying for another %.0f s", error, end - time.monotonic())
        time.sleep(RETRY)


def _private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise FedrecError(f"{path} is no private key of a site ({error}); carry the site's folder here anew.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FedrecError(f"{path} is a key of another kind; carry the site's folder here anew.")
    return key


def _work(link: tuple, answer: Callable[[bytes], bytes]) -> None:  # type: ignore[type-arg]
    _, receive, send, _, _, pull_object, push_object, confirm = link
    while True:
        got = receive()
        if got is None:
            time.sleep(POLL)
            continue
        start, (header, tree) = time.monotonic(), got
        run, number = header.metadata.run_id, header.metadata.message_id
        try:
            wanted = [node.object_id for node in iterate_object_tree(tree)]
            contents = pull_objects(wanted, pull_object_fn=partial(pull_object, run))
            message = inflate_object_from_contents(number, contents)
            message.metadata.__dict__["_message_id"] = number
            confirm(run, number)
            data = unwrapped(message.content) if message.has_content() else None
            reply = Message(wrapped(answer(data if data is not None else b"")), reply_to=message)
            reply.metadata.__dict__["_message_id"] = reply.object_id
            objects = get_all_nested_objects(reply)
            needed, session = send(reply, get_object_tree(reply), time.monotonic() - start)
            push_object_contents_from_iterable(
                ((name, objects[name].deflate()) for name in needed), push_object_fn=partial(push_object, run, session)
            )
        except RunNotRunningException:
            log.info("the run has ended before this site could answer")
        except Exception as error:
            log.error("a message could not be received or answered: %s", error)
