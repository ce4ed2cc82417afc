"""How a run is made, beside the method and the data: one set of options and defaults for Python and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from fedrec.compute.device import check_threads
from fedrec.errors import ConfigError, unknown
from fedrec.federation.central_privacy import CentralPrivacy
from fedrec.federation.stages import Noise
from fedrec.settings import Settings


class RunOptions(Settings):
    """Options of a run."""

    rounds: int | None = Field(None, ge=0)
    """Rounds of training; by default the method's own number."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of everything random."""
    device: str = "auto"
    """auto (CUDA where there is one), cpu, cuda, or cuda:1 for the second GPU."""
    out: Path | None = None
    """Run folder for logs, checkpoints, result and model."""
    evaluate_every: int = Field(1, ge=1)
    """Evaluate every so many rounds, and after the last."""
    evaluate_users: int | None = Field(None, ge=2)
    """Evaluate a random sample of so many users, always the same ones; by default everybody."""
    checkpoint_every: int = Field(10, ge=0)
    """Write a checkpoint every so many rounds (0: never); means nothing without a run folder."""
    keep_checkpoints: bool = False
    """Keep the checkpoints of a finished run, and write one after the last round, so that rounds can be added later."""
    keep_model: bool = True
    """Keep the model and the clients' private state in the run folder; without them it holds results only."""
    resume: bool = False
    """Continue the run in the run folder; ``rounds`` is then the number it began with, unless given."""
    progress: bool = True
    """Show progress on stderr."""
    privacy: Noise | None = None
    """Noise for differential privacy: on each upload (``Privacy``), or on sums over clients (``CentralPrivacy``)."""
    store: Literal["memory", "disk", "disk-half"] = "memory"
    """Where client state lives: in memory, or in memory-mapped files in the run folder, there with item tables in half precision."""
    tensorboard: bool = False
    """Also log for TensorBoard, in the run folder."""
    threads: int | None = Field(None, ge=1)
    """CPU threads while the run lasts."""

    if not TYPE_CHECKING:  # type checkers see the fields; at run time a mistake becomes one sentence

        def __init__(self, **values: Any) -> None:
            for name in values:
                if name not in type(self).model_fields:
                    raise ConfigError(unknown("option of a run", name, type(self).model_fields))
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError(_sentence(error)) from None

    @field_validator("threads")
    @classmethod
    def _threads_can_start(cls, value: int | None) -> int | None:
        if value is not None:
            check_threads(value)
        return value

    @field_validator("out", mode="before")
    @classmethod
    def _folder_has_a_name(cls, value: Any) -> Any:
        if value == "":  # which would be the folder one is in
            raise ValueError("give the run folder a name, or . for the folder you are in")
        return value

    @model_validator(mode="after")
    def _needs_a_folder(self) -> RunOptions:
        wishes = {
            "resuming a run": self.resume,
            "keeping checkpoints": self.keep_checkpoints,
            "keeping client state on disk": self.store != "memory",
            "logging for TensorBoard": self.tensorboard,
        }
        for wish, wanted in wishes.items():
            if wanted and self.out is None:
                raise ValueError(f"{wish} needs a run folder; give it (out)")
        return self

    def changed(self, **changes: Any) -> RunOptions:
        """A copy with some options changed, checked like new ones."""
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set} | changes)


def _sentence(error: ValidationError) -> str:
    """What is wrong with which option; of the kinds of privacy, with the one that the mechanism says."""
    found = error.errors()
    central = any(one["loc"][-1:] == ("mechanism",) and one["input"] == "central" for one in found)
    of_central = [one for one in found if CentralPrivacy.__name__ in str(one["loc"][1:2])]
    first = (of_central if central and of_central else found)[0]
    text = first["msg"].removeprefix("Value error, ")
    top, *inner = first["loc"] or [""]
    place = [top, *(inner[1:] if top == "privacy" else inner)]  # without the name of the kind
    name = ".".join(map(str, place))
    return f"option {name} is {first['input']!r}: {text}." if name else f"{text}."
