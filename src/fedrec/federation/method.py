"""The four arrows every federated method is made of.

    server --broadcast--> clients --train--> clients --upload--> server --aggregate--> server

A method says what each arrow does. The engine owns who takes part, cohorts, negatives, randomness, bytes, privacy
stages, checkpoints and evaluation. Every tensor of a client has a leading client axis; one client is a batch of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from fedrec.data.training import TrainingView
from fedrec.errors import ConfigError, unknown
from fedrec.federation.payload import Payload, State, Upload
from fedrec.federation.result import Result, ResultTable
from fedrec.federation.store import ClientState
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

if TYPE_CHECKING:
    from fedrec.federation.simulation import Simulation
    from fedrec.federation.trainer import Setup, Trainer


class MethodConfig(BaseModel):
    """Hyper-parameters of a method. Rounds, seed and device are options of a run, not of a method."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class LearnedConfig(MethodConfig):
    """The names every method that learns by gradient steps shares."""

    dim: int = Field(16, ge=1, le=4096)
    """Size of an embedding."""
    epochs: int = Field(5, ge=1)
    """Passes over the client's samples per round."""
    batch_size: int = Field(256, ge=1)
    lr: float = Field(0.01, gt=0)
    optimizer: Literal["adam", "sgd"] = "adam"
    negatives: int = Field(4, ge=1)
    """Drawn per training positive, anew every round."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of clients that train in a round."""
    init_std: float = Field(0.1, gt=0)
    """Standard deviation of the initial embeddings."""


@dataclass(frozen=True, eq=False)
class Task:
    """What a method may know of the data before training: sizes, never interactions."""

    n_clients: int
    n_items: int
    counts: Tensor  # [n] int64: training positives per client
    seed: int
    device: torch.device

    def generator(self) -> torch.Generator:
        """The server's random numbers for initial values, the same on every device."""
        return torch.Generator().manual_seed(self.seed)

    def normal(self, *shape: int, std: float, generator: torch.Generator) -> Tensor:
        """Initial values N(0, std^2), drawn on the CPU so that devices agree."""
        return (torch.randn(*shape, generator=generator) * std).to(self.device)

    def client_normal(self, clients: Tensor, *shape: int, std: float, common: bool = False, stream: int = 0) -> Tensor:
        """Initial values N(0, std^2) of each client, [c, *shape]; the same for all clients if ``common``."""
        who = torch.zeros(1, dtype=torch.int64) if common else clients.cpu()
        keys = streams.child(streams.keys(self.seed, streams.Purpose.INIT, 0, who), stream)
        size = torch.Size(shape).numel()
        values = streams.normal(keys[:, None], torch.arange(size)).float() * std
        return values.expand(len(clients), size).reshape(len(clients), *shape).to(self.device)


def participation_rng(seed: int, round: int) -> np.random.Generator:
    """The random numbers that choose a round's participants."""
    return np.random.default_rng([seed, int(streams.Purpose.PARTICIPATION), round])


def _sentence(error: ValidationError) -> str:
    """Which setting is wrong and why; of a setting of several forms, the complaint that got furthest."""
    first = max(error.errors(), key=lambda found: sum(isinstance(part, int) for part in found["loc"]))
    places = "".join(f"[{part}]" for part in first["loc"][1:] if isinstance(part, int))
    where = f"setting {first['loc'][0]}{places}: " if first["loc"] else ""
    hint = ", written as a list, such as [1,2]" if first["type"] in ("tuple_type", "list_type") else ""
    return f"{where}{first['msg'].removeprefix('Value error, ')}{hint}"


class Method(ABC):
    """One published method: a typed Config and the arrows."""

    name: ClassVar[str]
    title: ClassVar[str]
    """One line for lists."""
    paper: ClassVar[str] = ""
    private: ClassVar[str] = "nothing"
    uploaded: ClassVar[str] = "nothing"
    server_keeps: ClassVar[str] = "nothing"
    Config: ClassVar[type[MethodConfig]] = MethodConfig
    rounds: int = 100
    """Default number of rounds of a run."""
    defining: ClassVar[tuple[str, ...]] = ("variant",)
    """Settings that bring their own defaults: chosen by hand, they are run as defined, not with what was tuned for others."""
    telling: ClassVar[tuple[str, ...]] = ("variant",)
    """Settings that tell runs of this method apart in a table."""
    logits: ClassVar[bool] = True
    """Whether scores are logits of a probability; protocols that rank sigmoids leave other scores as they are."""

    def __init__(self, config: MethodConfig | None = None, **options: Any) -> None:
        """Take a config object, or its fields as keyword arguments."""
        self.config: Any = config if config is not None else self.configure(options)

    @classmethod
    def configure(cls, options: dict[str, Any]) -> MethodConfig:
        """A validated config; an unknown key or a bad value is one clear sentence."""
        for key in options:
            if key not in cls.Config.model_fields:
                raise ConfigError(unknown(f"setting of {cls.name}", key, cls.Config.model_fields))
        try:
            return cls.Config(**options)
        except ValidationError as error:
            raise ConfigError(f"{cls.name}: {_sentence(error)}.") from None

    def describe_config(self) -> dict[str, Any]:
        """The config as plain values."""
        values: dict[str, Any] = self.config.model_dump(mode="json")
        return values

    @property
    def label(self) -> str:
        """The name, and the ``telling`` settings that are not at their defaults."""
        fields = type(self.config).model_fields
        chosen = {key: getattr(self.config, key) for key in self.telling if key in fields}
        return " ".join([self.name, *(f"{k}={v}" for k, v in chosen.items() if v != fields[k].default)])

    def trainer(self, view: TrainingView, setup: Setup) -> Trainer:
        """What runs this method: a simulated federation."""
        return self.engine()(
            self, view, seed=setup.seed, device=setup.device, privacy=setup.privacy, store_folder=setup.store_folder
        )

    def engine(self) -> type[Simulation]:
        """The kind of simulation: one where a round is a round of the federation."""
        from fedrec.federation.simulation import Simulation

        return Simulation

    @property
    def negatives(self) -> int:
        """Negatives the engine draws per positive."""
        return int(getattr(self.config, "negatives", 0))

    @abstractmethod
    def server_state(self, task: Task) -> State:
        """Initial state of the server."""

    @abstractmethod
    def client_state(self, task: Task, clients: Tensor) -> State:
        """Initial private state of these clients."""

    def own_data(self, view: TrainingView, clients: Tensor) -> State:
        """What these clients keep of their own training items, beside ``client_state``; it never leaves them."""
        return {}

    def participants(self, task: Task, server: State, round: int, rng: np.random.Generator) -> Tensor:
        """Clients that train this round, by default a random share of those that have training items."""
        able = torch.nonzero(task.counts > 0)[:, 0]
        share = float(getattr(self.config, "participation", 1.0))
        if share == 1.0:
            return able
        chosen = rng.choice(len(able), max(1, int(share * len(able))), replace=False)
        return able[torch.from_numpy(np.sort(chosen))]

    def sampling_round(self, round: int) -> int:
        """The round whose negatives are used: this one, or always 0 for a method that draws them once."""
        return round

    def kinds(self, server: State, clients: Tensor) -> Tensor | None:
        """A label per client where payloads differ in shape; cohorts never mix labels."""
        return None

    def privacy_problem(self) -> str | None:
        """Why this method's uploads cannot pass a privacy stage, if they cannot."""
        return None

    @property
    def views(self) -> tuple[str, ...]:
        """Names of other ways to score that are worth reporting beside ``scores``."""
        return ()

    def view_scores(self, view: str, clients: ClientState, payload: Payload) -> Tensor:
        """Scores [c, m] of one of the ``views``."""
        raise KeyError(view)

    def diagnostics(self, task: Task, server: State) -> dict[str, Any]:
        """What the method itself has to say at the end of a run; goes into the result."""
        return {}

    def client_groups(self, task: Task) -> dict[str, Tensor]:
        """Named groups of clients (their numbers) whose results are reported apart."""
        return {}

    def tables(self, result: Result) -> list[ResultTable]:
        """Tables to print under the result of a run, made from what is in it."""
        return []

    def server_bytes(self, private: int) -> int:
        """Memory the server needs beside ``private`` bytes of client state, where it is of that order."""
        return 0

    @abstractmethod
    def broadcast(self, server: State, clients: Tensor) -> Payload:
        """What these clients download."""

    @abstractmethod
    def train(self, clients: ClientState, payload: Payload, samples: Samples, round: int) -> tuple[Payload, Tensor]:
        """Train these clients, whose private state changes in place; return their upload and losses [c]."""

    @abstractmethod
    def aggregate(self, server: State, uploads: Iterable[Upload], round: int) -> State:
        """New server state. ``uploads`` yields cohort after cohort as clients train: fold it, or collect it if needed."""

    @abstractmethod
    def scores(self, clients: ClientState, payload: Payload) -> Tensor:
        """Scores [c, m] of every item for these clients, computed on the device with what they hold and download."""
