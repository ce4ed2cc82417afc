"""A run's way to the sites: messages go to the link and are fetched from it, from the process that runs the rounds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http.superexec_auth import SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid

from fedrec.deploy.flower import home
from fedrec.deploy.flower.control import Control
from fedrec.deploy.flower.envelope import KIND, unwrapped, wrapped
from fedrec.deploy.transport import Missing, Replies
from fedrec.errors import FedrecError

POLL = 0.3
"""Seconds between two looks for answers."""
SERVER_GONE = 60.0
"""Seconds to try to reach the link before a run gives up."""


class FlowerTransport:
    """Sites behind the link, by the names their keys are registered under."""

    def __init__(self, grid: HttpGrid) -> None:
        """``grid`` is that of a run."""
        self.grid = grid
        self.sent: dict[str, int] = {}
        self.received: dict[str, int] = {}

    def _nodes(self) -> dict[str, int]:
        return {node.name: node.node_id for node in self.grid.get_nodes() if node.name}

    def online(self) -> list[str]:
        """Sites that are connected."""
        return list(self._nodes())

    def ask(self, requests: Mapping[str, bytes], deadline: float) -> Replies:
        """Send every connected site its message, and wait for the answers until the deadline."""
        nodes, replies, waiting = self._nodes(), Replies(), dict[str, str]()
        for name, data in requests.items():
            if name not in nodes:
                replies[name] = Missing("it is not connected")
                continue
            message = Message(wrapped(data), nodes[name], KIND, ttl=deadline + 60)
            pushed = list(self.grid.push_messages([message]))
            if pushed and pushed[0]:
                waiting[pushed[0]] = name
            else:
                replies[name] = Missing("the server could not pass its message on")
        end = time.monotonic() + deadline
        while waiting and time.monotonic() < end:
            for message in self.grid.pull_messages(list(waiting)):
                name = waiting.pop(message.metadata.reply_to_message_id)
                replies[name] = found = _content(message)
                if isinstance(found, bytes):
                    self.received[name] = self.received.get(name, 0) + len(requests[name])
                    self.sent[name] = self.sent.get(name, 0) + len(found)
            if waiting:
                time.sleep(POLL)
        for name in waiting.values():
            replies[name] = Missing(f"it did not answer within {deadline:g} s")
        return replies


def _content(message: Message) -> bytes | Missing:
    if message.has_error():
        return Missing(f"no answer came ({message.error.reason or message.error.code})")
    data = unwrapped(message.content)
    return Missing("its answer is none of fedrec") if data is None else data


@contextmanager
def connected(folder: Path, port: int) -> Iterator[FlowerTransport]:
    """A run of the link, and in the end its end; this process serves it, so no other one is started."""
    home(folder)
    address, authority = f"127.0.0.1:{port}", (folder / "ca.crt").read_bytes()
    number = Control(folder, port).start_run()
    grid = HttpGrid(address, False, authority, token=_token(address, authority, folder / "secret", number))
    grid._retry_invoker.max_time = SERVER_GONE
    beat = HeartbeatSender(make_task_heartbeat_fn_http(grid._runtime_client))
    beat.start()
    status, details = SubStatus.FAILED, "the run has stopped"
    try:
        given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
        TaskIdentity.node_id = given.context.node_id
        grid.set_run(run_from_proto(given.run))
        yield FlowerTransport(grid)
        status, details = SubStatus.COMPLETED, ""
    except httpx.HTTPError as error:
        raise FedrecError(f"the server on port {port} has gone ({error}); start it again and resume the run.") from None
    finally:
        beat.stop()
        grid._retry_invoker.max_tries = 1
        with suppress(httpx.HTTPError):
            grid._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        grid.close()


def _token(address: str, authority: bytes, secret: Path, run: int) -> str:
    """What lets this process serve the run; runs that were left behind by others are passed over."""
    auth = SuperExecAuthHttpInterceptor(
        master_secret=secret.read_bytes(), protected_methods={"/flwr.proto.Runtime/AcquireTask"}
    )
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    client = RuntimeHttpClient.from_server_address(address, False, authority, [version, auth])
    try:
        for _ in range(100):
            found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
            if found.HasField("task") and found.token and found.task.run_id == run:
                return str(found.token)
            if not found.HasField("task"):
                time.sleep(0.1)
    except httpx.HTTPStatusError as error:
        raise FedrecError(f"the server refused to hand out the run: {error.response.text[:300]}") from None
    finally:
        client.close()
    raise FedrecError("the server did not hand out the run; restart it and try again.")
