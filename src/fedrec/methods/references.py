"""The rows a reviewer asks for first: random scores and popularity."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrec.method import (
    ClientState,
    Payload,
    RowUpdate,
    Samples,
    State,
    SumMethod,
    Task,
    Total,
    Upload,
    add_rows,
    broadcast,
    step_rows,
    tensor,
)
from fedrec.sampling import streams


class Popularity(SumMethod):
    """Counts training interactions per item: one secure sum of m integers is all the server needs."""

    name = "popularity"
    title = "items by number of training interactions (one secure sum)"
    uploaded = "the client's own item counts"
    server_keeps = "a count per item"
    rounds = 1
    logits = False

    def server_state(self, task: Task) -> State:
        """No counts yet."""
        return {"counts": torch.zeros(task.n_items, 1, device=task.device)}

    def client_state(self, task: Task, clients: Tensor) -> State:
        """Nothing."""
        return {}

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The counts."""
        return {"counts": broadcast(server["counts"], len(clients))}

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Count the own training items; repeated rows count once per row."""
        values = torch.zeros(*samples.rows.shape, 1, device=samples.rows.device)
        values[..., 0].scatter_add_(1, samples.slots.long(), samples.valid.float())
        return {"counts": RowUpdate(samples.rows, samples.row_counts, values, task.n_items)}, torch.zeros(len(private))

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """Counts."""
        add_rows(total, upload, "counts", "sum")

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """Sum."""
        return {"counts": step_rows(torch.zeros_like(server["counts"]), total, "counts", "sum")}

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """The same for everybody."""
        return tensor(payload, "counts")[:, :, 0]


class Random(SumMethod):
    """Random scores: what chance looks like under a protocol."""

    name = "random"
    title = "random scores"
    sees = "nothing"
    silent = True
    rounds = 0
    logits = False

    def server_state(self, task: Task) -> State:
        """Nothing."""
        return {}

    def client_state(self, task: Task, clients: Tensor) -> State:
        """A stream of random numbers per client."""
        return {"key": streams.keys(task.seed, streams.Purpose.EVALUATION, 0, clients.to(task.device))}

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """Nothing."""
        return {}

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """Learn nothing."""
        return {}, torch.zeros(len(private))

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """Nobody sends anything."""

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """Nothing."""
        return server

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """Independent uniform numbers."""
        items = torch.arange(task.n_items, device=task.device)
        return streams.uniform(private["key"][:, None], items).float()
