"""FedSasrec (ours): a transformer learned from devices, exactly.

SASRec has no personal parameters: a user is a sequence. So a round in which a block of clients sends the gradients of their
own losses, and the server takes one step with their sum, is the step that ``sasrec`` takes on the data of these clients. What
is dropped and who is in a block follow from seed, step and client, so both take the same steps, to rounding.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrec.data.training import TrainingView
from fedrec.federation.payload import Summed
from fedrec.method import (
    ClientState,
    Ledger,
    Payload,
    Samples,
    State,
    SumMethod,
    Task,
    Total,
    Upload,
    broadcast,
    tensor,
    touched_rows,
)
from fedrec.methods.fedsasrec.config import LEARNED, SasrecConfig
from fedrec.methods.fedsasrec.local import train_alone
from fedrec.parts.adamw import stepped
from fedrec.parts.recent import appended, own_history
from fedrec.parts.sequences import block, blocks, newest, shuffled


class FedSasrecConfig(SasrecConfig):
    """Settings of FedSasrec."""

    local: Literal["gradient", "epochs"] = "gradient"
    """What a client sends: the gradient of its loss, or what some steps of its own changed."""
    epochs: int = Field(2, ge=1)
    """Steps on the own sequence (local=epochs); one is the gradient."""
    local_lr: float = Field(0.1, gt=0)
    """Learning rate of these steps."""


class FedSasrec(SumMethod):
    """Gradients of a block of clients, one step with their sum."""

    name = "fedsasrec"
    title = "a transformer over a client's items, from summed gradients: equal to centralised training (ours)"
    paper = "ours, after Kang and McAuley 2018"
    private = "the client's own history, in order"
    uploaded = "gradients of item table and network, for a sum over clients only"
    server_keeps = "item table, network, and the moments of AdamW"
    Config = FedSasrecConfig
    config: FedSasrecConfig
    rounds = 60
    logits = False
    folds_in = True
    telling = ("local",)

    def privacy_problem(self) -> str | None:
        """Gradients are only ever held as sums."""
        if self.config.local == "epochs":
            return None
        return "its gradients are held as sums over clients; set local=epochs, where with epochs=1 every client sends its own"

    def central_problem(self) -> str | None:
        """Everybody would weigh the same, which here is nothing."""
        return super().central_problem() or (
            "its sums weigh a client by how many items it has, so one client could move them by more than the clipping norm; "
            "take noise on each upload (local)"
        )

    def blocks(self, task: Task) -> int:
        """Steps until all clients have taken part once."""
        return blocks(task, self.config.block)

    def participants(self, task: Task, server: State, round: int) -> Tensor:
        """One block of clients."""
        return block(task, self.config.block, round)

    def server_state(self, task: Task) -> State:
        """Random values, and AdamW before its first step."""
        return self.config.initial(task)

    def client_state(self, task: Task, clients: Tensor) -> State:
        """Nothing beside the history."""
        return {}

    def own_data(self, view: TrainingView, clients: Tensor) -> State:
        """The history, oldest first, and whether the data have time."""
        return own_history(view, clients) | {"timed": torch.full((len(clients),), view.history is not None)}

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """Item table and network."""
        return {name: broadcast(server[name], len(clients)) for name in LEARNED}

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """The gradients of these clients, added up, or what each of them changed in some steps."""
        c, history = self.config, private["history"]
        if not private["timed"].all():
            history = shuffled(history, task, samples.clients, round)
        model = {name: tensor(payload, name)[0] for name in LEARNED}
        if c.local == "epochs":
            return train_alone(c, task, model, history, samples.clients, round, epochs=c.epochs, lr=c.local_lr)
        sums, losses, lengths = c.gradient(task, model, history, samples.clients, round)
        table = torch.full_like(lengths, 4 * sums["items"].numel())
        if c.sampled is not None:
            table = self._touched(task, history, round) * (4 * c.dim + 4)
        rest = torch.full_like(lengths, 4)
        parts: Payload = {
            "items": Summed(sums["items"], table),
            "network": Summed(sums["network"], rest * len(sums["network"])),
            "places": Summed(lengths.sum(), rest),
        }
        return parts, losses / lengths.clamp(min=1)

    def _touched(self, task: Task, history: Tensor, step: int) -> Tensor:
        """How many items each of these clients has a gradient for."""
        window, counts = newest(history, self.config.length + 1)
        drawn = self.config.drawn_items(task, step)
        assert drawn is not None
        return counts + len(drawn) - (window[:, :, None] == drawn).sum((1, 2))

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """Sums over places of sequences: of gradients, or of the changes that stand for them."""
        if isinstance(upload.parts["items"], Summed):
            for name, part in upload.parts.items():
                assert isinstance(part, Summed)
                total.add(name, part.value)
            return
        places = (upload.weights - 1).clamp(0, self.config.length)
        owners, items, values = touched_rows(upload.parts["items"])
        scale = -places / self.config.local_lr
        total.add_rows("items", task.n_items, items, values * scale[owners, None])
        total.add("network", scale @ tensor(upload.parts, "network"))
        total.add("places", places.sum())

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """One step of AdamW with the mean."""
        if not total:
            return server
        places = total["places"].clamp(min=1)
        slopes = {name: total[name] / places for name in LEARNED}
        return stepped(server, slopes, lr=self.config.lr, weight_decay=self.config.weight_decay)

    def fold_in(self, task: Task, private: ClientState, later: Tensor) -> State:
        """The history goes on."""
        return {"history": appended(private["history"], later)}

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """What comes next in the own history."""
        return self.config.scores(tensor(payload, "items")[0], tensor(payload, "network")[0], private["history"])

    def diagnostics(self, task: Task, server: State, ledger: Ledger) -> dict[str, Any]:
        """Size of the network."""
        return self.config.about()
