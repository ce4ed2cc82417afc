"""The server's process: Flower's link, which keeps messages for the sites, lets in known keys only and runs no code.

Runs are started and served on this machine: requests to do so are answered on loopback only.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from flwr.superlink import extensions
from flwr.superlink.cli.flower_superlink import flower_superlink
from starlette.middleware import Middleware

from fedrec.deploy.flower import home

Scope = MutableMapping[str, Any]
OPEN = ("/v1/fleet",)
"""What sites ask for; everything else is for this machine."""


class LoopbackOnly:
    """Answers from elsewhere only what sites ask for."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        """``app`` is Flower's."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        """Answer, or refuse."""
        if scope["type"] == "http" and not str(scope["path"]).startswith(OPEN) and not _near(scope):
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"runs are started on the server's own machine"})
            return
        await self.app(scope, receive, send)


def _near(scope: Scope) -> bool:
    client = scope.get("client")
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


def serve(folder: Path, host: str, port: int) -> None:
    """Serve until the process is stopped."""
    home(folder)
    extensions.get_middleware = lambda: (Middleware(LoopbackOnly),)
    words = ["--host", host, "--port", str(port), "--database", str(folder / "link.db"), "--enable-supernode-auth"]
    for option, name in (("certfile", "server.crt"), ("keyfile", "server.key"), ("ca-certfile", "ca.crt")):
        words += [f"--ssl-{option}", str(folder / name)]
    words += ["--isolation", "process", "--superexec-auth-secret-file", str(folder / "secret")]
    sys.argv = ["flower-superlink", *words, "--disable-runtime-dependency-installation"]
    flower_superlink()
