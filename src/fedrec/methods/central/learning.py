"""What centralised methods that learn by gradient steps share: settings, Adam, and the two losses."""

from __future__ import annotations

from abc import abstractmethod

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding, softplus
from torch.optim.adam import adam

from fedrec.compute import graphs
from fedrec.federation.config import SampledConfig
from fedrec.federation.payload import State
from fedrec.federation.task import Task
from fedrec.local.fit import BETA1, BETA2, EPS
from fedrec.methods.central.base import CentralMethod
from fedrec.methods.central.observed import Observed, Sampling, Triple

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class CentralConfig(SampledConfig):
    """The names every centralised method that learns by gradient steps shares."""

    dim: int = Field(16, ge=1)
    """Size of an embedding."""
    lr: float = Field(0.001, gt=0)
    """Learning rate of Adam."""
    batch_size: int = Field(256, ge=1)
    """Samples in a batch, a positive and its negatives counted one by one (BPR: triples)."""
    negatives: int = Field(4, ge=1)
    """Drawn per training positive, anew every epoch, outside the user's training items."""
    reg: float = Field(0.0, ge=0)
    """L2 penalty on the embeddings of a batch, divided by its size."""
    init_std: float = Field(0.1, gt=0)
    """Standard deviation of the initial embeddings."""


class LearnedMethod(CentralMethod):
    """Mini-batches and Adam; the state of Adam is part of the model, so a resumed run goes on bit for bit."""

    Config = CentralConfig
    config: CentralConfig

    @abstractmethod
    def weights(self, data: Observed, task: Task) -> State:
        """Initial parameters."""

    @abstractmethod
    def loss(self, params: State, data: Observed, batch: Triple) -> Tensor:
        """Mean loss of a batch."""

    @property
    def group(self) -> int:
        """Samples that a positive stands for in ``batch_size``."""
        return 1 + self.negatives

    @property
    def sampling(self) -> Sampling:
        """How the rows of an epoch are drawn."""
        return "interaction"

    def start(self, data: Observed, task: Task) -> State:
        """Parameters and the empty moments of Adam."""
        state = self.weights(data, task)
        for name, value in list(state.items()):
            state |= {f"{kind}.{name}": torch.zeros_like(value) for kind in MOMENTS[:2]}
            state[f"step.{name}"] = torch.zeros((), device=task.device)
        return state

    def epoch(self, state: State, data: Observed, task: Task, number: int) -> Tensor:
        """All positives once, in random order, with fresh negatives."""
        names = [name for name in state if name.partition(".")[0] not in MOMENTS]
        # Batches of one size are one recorded step on a GPU, in this epoch and the next ones.
        recorded = graphs.kept(data, self, held=list(state.values()))

        def step(*batch: Tensor) -> tuple[Tensor]:
            return (self._step(names, state, data, (batch[0], batch[1], batch[2])),)

        size = max(1, self.config.batch_size // self.group)
        total = torch.zeros((), device=task.device)  # summed on the device: no waiting for each batch
        for batch in data.batches(size, self.negatives, seed=task.seed, epoch=number, sampling=self.sampling):
            total += recorded(step, *batch)[0]
        return total / max(1, len(data.users))

    def _step(self, names: list[str], state: State, data: Observed, batch: Triple) -> Tensor:
        """Adam on one batch, in place; returns the sum of its losses."""
        params = {name: state[name].detach().requires_grad_() for name in names}
        loss = self.loss(params, data, batch)
        found = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
        # Fused Adam reads gradients as they lie in memory.
        gradients = {name: part.contiguous() for name, part in zip(names, found, strict=True) if part is not None}
        with torch.no_grad():
            adam(
                params=[state[name] for name in gradients],
                grads=list(gradients.values()),
                exp_avgs=[state[f"exp_avg.{name}"] for name in gradients],
                exp_avg_sqs=[state[f"exp_avg_sq.{name}"] for name in gradients],
                max_exp_avg_sqs=[],
                state_steps=[state[f"step.{name}"] for name in gradients],
                fused=True, amsgrad=False, maximize=False,
                lr=self.config.lr, beta1=BETA1, beta2=BETA2, eps=EPS, weight_decay=0.0,
            )  # fmt: skip
        return loss.detach() * len(batch[0])


def embeddings(task: Task, dim: int, std: float) -> State:
    """Random user and item vectors."""
    generator = task.generator()
    return {
        "user": task.normal(task.n_clients, dim, std=std, generator=generator),
        "item": task.normal(task.n_items, dim, std=std, generator=generator),
    }


def pairwise(user: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """BPR, -log sigmoid(s_ui - s_uj), mean over the batch: [b, d], [b, d] and [b, k, d]."""
    above = (user * positive).sum(1, keepdim=True) - (negative @ user.unsqueeze(2)).squeeze(2)
    return softplus(-above).mean()


def pointwise(positive: Tensor, negative: Tensor) -> Tensor:
    """Binary cross-entropy of logits [b] of positives and [b, k] of negatives, mean over all of them."""
    logits = torch.cat([positive[:, None], negative], dim=1)
    labels = torch.zeros_like(logits)
    labels[:, 0] = 1
    return binary_cross_entropy_with_logits(logits, labels)


def penalty(reg: float, *rows: Tensor) -> Tensor | float:
    """L2 penalty on the rows of a batch, half the squared norm per sample."""
    return reg / 2 / len(rows[0]) * sum(part.square().sum() for part in rows) if reg else 0.0


def look_up(users: Tensor, items: Tensor, batch: Triple) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors of a batch's users, positives and negatives."""
    # `embedding` sums the gradients of equal rows without atomics, which is fast and repeatable.
    return embedding(batch[0], users), embedding(batch[1], items), embedding(batch[2], items)
