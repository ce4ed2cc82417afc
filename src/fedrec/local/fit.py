"""Local training of a cohort: every client runs its own optimiser on its own batches, all clients at once.

``fit`` is the readable reference: any loss, any device, gradients by autograd. Problems that have compiled twins are
trained through ``fedrec.local.problem``, which calls ``fit`` where no twin applies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import embedding, softplus

from fedrec.compute import rows as row_copies
from fedrec.compute.rows import by_kernel
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # Adam's customary constants

Params = dict[str, Tensor]
Optimizer = Literal["adam", "sgd"]


@dataclass(frozen=True)
class Schedule:
    """How long a client trains in a round."""

    epochs: int
    batch_size: int
    early_stop_tol: float = 0.0  # a client stops when its mean loss changes less than this, relatively; 0: never


@dataclass(frozen=True)
class Step:
    """One optimiser step per batch: a fresh forward pass, then a joint update of the named parameters."""

    names: Sequence[str]
    lr: float | Mapping[str, float]  # one rate, or one per name
    optimizer: Optimizer = "adam"
    weight_decay: float = 0.0  # added to the gradient as weight_decay * parameter
    lr_decay: float = 1.0  # factor on the rate after every batch
    loss: Callable[[Params, Batch], Tensor] | None = None  # of this step alone, where steps minimise different things

    @property
    def rates(self) -> dict[str, float]:
        """The learning rate of every parameter that moves."""
        return {name: self.lr if isinstance(self.lr, float | int) else self.lr[name] for name in self.names}

    @property
    def rate(self) -> float:
        """The one learning rate of all parameters that move."""
        (rate,) = set(self.rates.values())
        return rate

    def is_plain(self, *names: str) -> bool:
        """Whether it moves exactly these parameters, at one rate, and neither decays nor has a loss of its own."""
        one_rate = set(self.names) == set(names) and len(set(self.rates.values())) == 1
        return one_rate and self.loss is None and not self.weight_decay and self.lr_decay == 1


@dataclass(frozen=True, eq=False)
class Batch:
    """The current batch of ``c`` clients, padded to ``b`` samples."""

    clients: Tensor  # [c] int64
    items: Tensor  # [c, b] int32
    slots: Tensor  # [c, b] int32
    labels: Tensor  # [c, b] float32
    mask: Tensor  # [c, b] bool: False is padding

    def mean(self, values: Tensor) -> Tensor:
        """Mean of ``values`` [c, b] over each client's valid samples."""
        return torch.where(self.mask, values, 0).sum(1) / self.mask.sum(1)

    def bce(self, logits: Tensor) -> Tensor:
        """Each client's mean binary cross-entropy of ``logits`` [c, b]."""
        # For labels 0 and 1. Unlike torch's own form its gradient stays exact for confident negatives, too.
        return self.mean(softplus((1 - 2 * self.labels) * logits))


Loss = Callable[[Params, Batch], Tensor]


@dataclass(frozen=True, eq=False)
class Memory:
    """State of Adam that outlives a call of ``fit``, which updates it in place."""

    first: Params  # like the parameters: mean of their gradients
    second: Params  # mean of their squares
    taken: Tensor  # [c] float64: steps so far


def fit(
    params: Params,
    loss: Loss,
    samples: Samples,
    schedule: Schedule,
    steps: Sequence[Step],
    memory: Memory | None = None,
) -> Tensor:
    """Train ``params`` in place and return each client's mean loss over its last epoch.

    Every tensor of ``params`` has a leading client axis. ``loss`` gets the rows of the clients that have a
    batch now and returns each one's mean loss; it must not mix clients. A client is done with an epoch after
    its own last, possibly short batch: its parameters and optimiser state then rest. With several ``steps``
    the loss of the last one is reported. After every epoch but the first a client stops for good when its
    mean loss since the start of the call changed by less than the schedule's ``early_stop_tol``, relatively.
    Optimisers start afresh unless there is a ``memory``. Clients sorted by size, largest first, train on
    views; any other order costs copies.
    """
    counts, batch_size, tol = samples.counts, schedule.batch_size, schedule.early_stop_tol
    sizes = counts.cpu()
    longest = int(sizes.max()) if len(sizes) else 0
    running = sizes > 0
    fresh = torch.zeros(len(counts), dtype=torch.float64, device=counts.device)
    taken = fresh.clone() if memory is None else memory.taken  # batches per client
    updates = [_Update(step, params, memory) for step in steps]
    samples_each = counts.clamp(min=1)
    last, total = fresh.clone(), fresh.clone()
    for epoch in range(schedule.epochs):
        shuffled = _shuffle(samples, epoch)
        epoch_sum = fresh.clone()
        for start in range(0, longest, batch_size):
            who = _choose(running & (sizes > start), counts.device)
            if who is None:
                break
            batch = _cut(samples, shuffled, who, start, min(start + batch_size, longest))
            taken[who] += 1
            for update in updates:
                value = update(params, loss, batch, who, taken[who])
            epoch_sum[who] += value * batch.mask.sum(1)
        last = torch.where(running.to(counts.device), epoch_sum / samples_each, last)
        if tol > 0:
            before = total / (samples_each * max(epoch, 1))
            total += epoch_sum
            change = total / (samples_each * (epoch + 1)) - before
            if epoch > 0:
                running &= (change.abs() / (before + 1e-5).abs() >= tol).cpu()
    return last.float()


class _Update:
    """One ``Step`` and the state of its optimiser."""

    def __init__(self, step: Step, params: Params, memory: Memory | None) -> None:
        self.step = step
        self.rates = step.rates
        if step.optimizer == "adam":
            self.first = memory.first if memory else {name: torch.zeros_like(params[name]) for name in step.names}
            self.second = memory.second if memory else {name: torch.zeros_like(params[name]) for name in step.names}
            self.scratch = {name: torch.empty_like(params[name]) for name in step.names}

    def __call__(self, params: Params, loss: Loss, batch: Batch, who: Tensor | slice, taken: Tensor) -> Tensor:
        local = {name: value[who].detach() for name, value in params.items()}
        for name in self.rates:
            local[name].requires_grad_()
        value = (self.step.loss or loss)(local, batch)
        gradients = torch.autograd.grad(value.sum(), [local[name] for name in self.rates])
        with torch.no_grad():
            scales = self._scales(taken, value.dtype)
            for name, gradient in zip(self.rates, gradients, strict=True):
                self._move(name, local[name].detach(), gradient, who, scales)
                if not isinstance(who, slice):
                    params[name][who] = local[name]
        return value.detach()

    def _scales(self, taken: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """What corrects the second moment, and the learning rate where 1 is asked for, of each client."""
        base = self.step.lr_decay ** (taken - 1) if self.step.lr_decay != 1 else torch.ones_like(taken)
        if self.step.optimizer == "sgd":
            return base, base
        return (1 - BETA2**taken).rsqrt().to(dtype), base / (1 - BETA1**taken)

    def _move(
        self, name: str, param: Tensor, gradient: Tensor, who: Tensor | slice, scales: tuple[Tensor, Tensor]
    ) -> None:
        if self.step.weight_decay:
            gradient = gradient.add(param, alpha=self.step.weight_decay)
        scale, rate = (each.view(-1, *[1] * (param.dim() - 1)) for each in scales)
        rate = (rate * self.rates[name]).to(param.dtype)
        if self.step.optimizer == "sgd":
            param.sub_(gradient * rate)
            return
        first, second = self.first[name][who], self.second[name][who]
        first.lerp_(gradient, 1 - BETA1)
        second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        if not isinstance(who, slice):
            self.first[name][who], self.second[name][who] = first, second
        move = torch.sqrt(second, out=self.scratch[name][: len(param)]).mul_(scale).add_(EPS)
        param.sub_(torch.div(first, move, out=move).mul_(rate))


def _shuffle(samples: Samples, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
    width = samples.items.shape[1]
    order = streams.epoch_orders(samples.seed, samples.round, samples.clients, epoch, samples.counts, width)
    return samples.items.gather(1, order), samples.slots.gather(1, order), samples.labels.gather(1, order)


def _choose(active: Tensor, device: torch.device) -> Tensor | slice | None:
    """The active clients: a slice (a view, no copies) where they are the first ones, else their places."""
    n = int(active.sum())
    if n == 0:
        return None
    return slice(0, n) if bool(active[:n].all()) else active.nonzero().squeeze(1).to(device)


def _cut(
    samples: Samples, shuffled: tuple[Tensor, Tensor, Tensor], who: Tensor | slice, start: int, stop: int
) -> Batch:
    items, slots, labels = (x[who, start:stop] for x in shuffled)
    places = torch.arange(start, stop, device=samples.counts.device)
    return Batch(samples.clients[who], items, slots, labels, places < samples.counts[who, None])


def lookup(block: Tensor, slots: Tensor) -> Tensor:
    """Rows ``slots`` [c, b] of each client's own ``block`` [c, R, d]: [c, b, d], differentiable."""
    c, r, d = block.shape
    first = torch.arange(c, device=block.device) * r
    return embedding(slots + first[:, None], block.reshape(c * r, d))


def take_rows(table: Tensor, samples: Samples) -> Tensor:
    """The rows the clients touch, [c, R, d], from a shared [m, d] or a personal [c, m, d] table."""
    if table.dim() == 3 and table.stride(0) == 0:  # one table behind all clients: looking rows up needs no copies of it
        table = table[0]
    if by_kernel(table):
        owners = torch.arange(len(samples.rows), device=table.device)
        return row_copies.take(table, samples.rows, owners)
    return embedding(samples.rows, table) if table.dim() == 2 else lookup(table, samples.rows)


def put_rows(table: Tensor, samples: Samples, block: Tensor) -> None:
    """Write ``block`` [c, R, d] into the personal ``table`` [c, m, d], in place and without the padding."""
    if by_kernel(table, block):
        owners = torch.arange(len(table), device=table.device)
        return row_copies.put(table, samples.rows, owners, samples.row_counts, block)
    client, row = samples.valid_rows.nonzero(as_tuple=True)
    table[client, samples.rows[client, row].long()] = block[client, row]
