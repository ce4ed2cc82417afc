"""The server's half of a federation: who takes part, what clients download, and what the server makes of their uploads."""

from __future__ import annotations

from torch import Tensor

from fedrec.federation.arrows import Arrows, Gathering
from fedrec.federation.payload import Payload, State
from fedrec.federation.task import Task


class Server:
    """A method's server with its state."""

    def __init__(self, method: Arrows, task: Task) -> None:
        """Before the first round."""
        self.method, self.task = method, task
        self.state: State = method.server_state(task)

    def participants(self, number: int) -> Tensor:
        """Who takes part in a round, ascending or not."""
        return self.method.participants(self.task, self.state, number)

    def kinds(self, clients: Tensor) -> Tensor | None:
        """A label per client where downloads differ in shape."""
        return self.method.kinds(self.task, self.state, clients)

    def payload(self, clients: Tensor) -> Payload:
        """What these clients, of one kind, download."""
        return self.method.broadcast(self.task, self.state, clients)

    def step(self, gathering: Gathering, number: int) -> None:
        """Go on with what the clients of a round sent."""
        self.state = gathering.step(self.state, number)

    def load_state(self, state: State) -> None:
        """Continue from a saved state."""
        for name, value in state.items():
            # Some server tensors live on the CPU on purpose, so each goes back to where it was.
            self.state[name] = value.to(self.state[name].device, copy=True)
