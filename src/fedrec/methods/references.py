"""The rows a reviewer asks for first: random scores and popularity."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fedrec.federation.method import Method, Task
from fedrec.federation.payload import Payload, RowUpdate, State, Upload, tensor
from fedrec.federation.store import ClientState
from fedrec.parts.aggregation import fold_rows
from fedrec.parts.scorers import broadcast
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples


class Popularity(Method):
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

    def broadcast(self, server: State, clients: Tensor) -> Payload:
        """The counts."""
        return {"counts": broadcast(server["counts"], len(clients))}

    def train(self, clients: ClientState, payload: Payload, samples: Samples, round: int) -> tuple[Payload, Tensor]:
        """Count the own training items; repeated rows count once per row."""
        values = torch.zeros(*samples.rows.shape, 1, device=samples.rows.device)
        valid = torch.arange(samples.items.shape[1], device=values.device) < samples.counts[:, None]
        values[..., 0].scatter_add_(1, samples.slots.long(), valid.float())
        n_items = tensor(payload, "counts").shape[1]
        return {"counts": RowUpdate(samples.rows, samples.row_counts, values, n_items)}, torch.zeros(len(clients))

    def aggregate(self, server: State, uploads: Iterable[Upload], round: int) -> State:
        """Sum."""
        start = torch.zeros_like(server["counts"])
        return {"counts": fold_rows(start, uploads, "counts", "sum")}

    def scores(self, clients: ClientState, payload: Payload) -> Tensor:
        """The same for everybody."""
        return tensor(payload, "counts")[:, :, 0]


class Random(Method):
    """Random scores: what chance looks like under a protocol."""

    name = "random"
    title = "random scores"
    rounds = 0
    logits = False

    def server_state(self, task: Task) -> State:
        """Nothing."""
        return {}

    def client_state(self, task: Task, clients: Tensor) -> State:
        """A stream of random numbers per client."""
        keys = streams.keys(task.seed, streams.Purpose.EVALUATION, 0, clients.to(task.device))
        return {"key": keys, "n_items": torch.full((len(clients),), task.n_items, device=task.device)}

    def broadcast(self, server: State, clients: Tensor) -> Payload:
        """Nothing."""
        return {}

    def train(self, clients: ClientState, payload: Payload, samples: Samples, round: int) -> tuple[Payload, Tensor]:
        """Learn nothing."""
        return {}, torch.zeros(len(clients))

    def aggregate(self, server: State, uploads: Iterable[Upload], round: int) -> State:
        """Let everybody send nothing."""
        for _ in uploads:
            pass
        return server

    def scores(self, clients: ClientState, payload: Payload) -> Tensor:
        """Independent uniform numbers."""
        keys = clients["key"]
        items = torch.arange(int(clients["n_items"][0]) if len(keys) else 0, device=keys.device)
        return streams.uniform(keys[:, None], items).float()
