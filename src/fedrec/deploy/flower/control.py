"""What the server's operator asks of the link: register keys, see who is there, begin and end a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, StartRunRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedrec.errors import FedrecError

APP = b"""[project]
name = "fedrec"
version = "1.0.0"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "fedrec"
[tool.flwr.app.components]
serverapp = "fedrec.nothing:app"
clientapp = "fedrec.nothing:app"
"""
"""Flower wants an app for every run. Ours is empty: neither side runs it."""


@dataclass(frozen=True)
class Seen:
    """A site as the link knows it."""

    name: str
    node: int
    status: str
    public_key: bytes


class Control:
    """The link's operator interface."""

    def __init__(self, folder: Path, port: int) -> None:
        """Of the server in ``folder``, on this machine."""
        self.port = port
        self.client = ControlHttpClient.from_server_address(
            f"127.0.0.1:{port}",
            False,
            (folder / "ca.crt").read_bytes(),
            [RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def nodes(self) -> list[Seen]:
        """All registered sites."""
        found = _asked(lambda: self.client.ListNodes(ListNodesRequest()), self.port)
        return [Seen(one.name, one.node_id, one.status, one.public_key) for one in found.nodes_info]

    def register(self, keys: dict[str, Path]) -> None:
        """Let the sites with these public keys in; those that are known stay as they are."""
        known = {one.public_key for one in self.nodes() if one.status != "unregistered"}
        for name, path in keys.items():
            public = public_key_to_bytes(load_ssh_public_key(path.read_bytes()))
            if public not in known:
                request = RegisterNodeRequest(public_key=public, name=name)
                _asked(lambda request=request: self.client.RegisterNode(request), self.port)

    def start_run(self) -> int:
        """Begin a run; returns the link's number for it."""
        content, _ = build_fab_from_files({"pyproject.toml": APP, "app.py": b"app = None\n"})
        fab = fab_to_proto(Fab("", content, {}))
        return int(_asked(lambda: self.client.StartRun(StartRunRequest(fab=fab)), self.port).run_id)


def _asked(call, port: int):  # type: ignore[no-untyped-def]
    try:
        return call()
    except httpx.TransportError as error:
        raise FedrecError(
            f"no server answers on port {port} of this machine ({error}); start it with 'fedrec federation server'."
        ) from None
    except httpx.HTTPStatusError as error:
        raise FedrecError(f"the server refused: {error.response.text[:300]}") from None
