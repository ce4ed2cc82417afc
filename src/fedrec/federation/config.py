"""Typed settings of methods, and one clear sentence for a wrong one."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from fedrec.errors import ConfigError, unknown
from fedrec.federation.search import Space, derived
from fedrec.local.fit import Schedule
from fedrec.settings import Settings

Width = Annotated[int, Field(ge=1, le=65536)]
"""Of a layer of a network."""


class MethodConfig(Settings):
    """Hyper-parameters of a method. Rounds, seed and device are options of a run, not of a method."""

    space: ClassVar[Space] = {}
    """Where to look for good values; empty: what is derived from the defaults."""

    @property
    def uses_order(self) -> bool:
        """Whether results depend on the order of a client's training items (``TrainingView.history``)."""
        return False

    @classmethod
    def search_space(cls) -> Space:
        """What tuning searches."""
        return cls.space or derived({name: field.default for name, field in cls.model_fields.items()})


class SampledConfig(MethodConfig):
    """Methods that train against drawn negatives."""

    negatives: int = Field(4, ge=1)
    """Drawn per training positive, anew every round."""


class PartialConfig(MethodConfig):
    """Methods in which a share of the clients takes part in a round."""

    participation: float = Field(1.0, gt=0, le=1)
    """Share of clients that train in a round."""


class LearnedConfig(SampledConfig, PartialConfig):
    """The names every method that learns by gradient steps shares."""

    dim: int = Field(16, ge=1, le=4096)
    """Size of an embedding."""
    epochs: int = Field(5, ge=1)
    """Passes over the client's samples per round."""
    batch_size: int = Field(256, ge=1)
    """Samples per local step."""
    lr: float = Field(0.01, gt=0)
    """Learning rate."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Of local training."""
    init_std: float = Field(0.1, gt=0)
    """Standard deviation of the initial embeddings."""

    @property
    def schedule(self) -> Schedule:
        """Epochs and batches of a client's local training."""
        return Schedule(self.epochs, self.batch_size)


Model = TypeVar("Model", bound=BaseModel)


def validated(kind: type[Model], owner: str, options: dict[str, Any]) -> Model:
    """Settings from plain values; an unknown key or a bad value is one clear sentence that names its ``owner``."""
    for key in options:
        if key not in kind.model_fields:
            raise ConfigError(unknown(f"setting of {owner}", key, kind.model_fields))
    try:
        return kind(**options)
    except ValidationError as error:
        raise ConfigError(f"{owner}: {_sentence(error)}.") from None


def _sentence(error: ValidationError) -> str:
    """Which setting is wrong and why; of a setting of several forms, the complaint that got furthest."""
    first = max(error.errors(), key=lambda found: sum(isinstance(part, int) for part in found["loc"]))
    places = "".join(f"[{part}]" for part in first["loc"][1:] if isinstance(part, int))
    where = f"setting {first['loc'][0]}{places}: " if first["loc"] else ""
    hint = ", written as a list, such as [1,2]" if first["type"] in ("tuple_type", "list_type") else ""
    return f"{where}{first['msg'].removeprefix('Value error, ')}{hint}"
