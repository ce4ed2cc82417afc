"""Blend: the scores of two or more recommenders, added up after each is brought to the same scale for every user.

A part is a method, trained with the blend, or a run that has finished. The first round trains the parts; it and every round after
it tries other weights, and the protocol's selection keeps the best on validation, as it keeps the best round of any method.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, Self, cast

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fedrec.data.training import TrainingView
from fedrec.errors import ConfigError
from fedrec.federation.config import MethodConfig
from fedrec.federation.recommender import Recommender
from fedrec.federation.trainer import Setup, Trainer
from fedrec.methods.blend.trainer import BlendTrainer
from fedrec.running.saved import is_finished, read_result
from fedrec.settings import Settings

SEES = ("nothing", "sums only", "every upload", "all data")
"""From the least a server sees to the most."""
USUAL = ("fedsasrec", "fedslist")
MOST = 2000
"""Weights that are tried at most."""


class Part(Settings):
    """One of what is blended."""

    method: str
    settings: dict[str, Any] = Field(default_factory=dict)
    """By default those tuned for the data, and where the blend is made without data the method's own."""
    rounds: int | None = Field(None, ge=0)
    """Of its training; by default the method's own number."""
    run: str | None = None
    """A finished run's folder, whose model is taken as it is."""

    @field_validator("settings")
    @classmethod
    def _as_the_method_reads_them(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """A part's settings from a file say "none" for no value, as those of any method."""
        from fedrec.methods import installed

        name = str(info.data.get("method", "")).partition("+")[0]
        return installed(name).Config.without_word(value) if name else value

    @field_validator("run")
    @classmethod
    def _no_run(cls, value: str | None) -> str | None:
        return None if value == "none" else value


class BlendConfig(MethodConfig):
    """Settings of a blend."""

    parts: tuple[Part, ...] = tuple(Part(method=name) for name in USUAL)
    """Names of methods, or folders of finished runs on the same data and split; two or more."""
    weights: tuple[float, ...] | None = None
    """Of the parts, in their order; none: those that are best on validation."""
    steps: int = Field(20, ge=1, le=1000)
    """Weights that are tried are the multiples of 1/steps that add up to 1."""

    @field_validator("parts", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [value]
        return [{"method": part} if isinstance(part, str) else part for part in value]

    @model_validator(mode="after")
    def _fit(self) -> BlendConfig:
        if len(self.parts) < 2:
            raise ValueError('a blend needs two parts or more, such as ["fedsasrec","fedslist"]')
        if self.weights is not None and len(self.weights) != len(self.parts):
            raise ValueError(f"{len(self.weights)} weights for {len(self.parts)} parts; give one each")
        return self

    @property
    def uses_order(self) -> bool:
        """Where a part may."""
        return True

    def made(self) -> list[Recommender]:
        """The methods of the parts."""
        from fedrec.methods import rebuild

        return [rebuild(part.method, part.settings) for part in self.parts]

    def candidates(self) -> list[tuple[float, ...]]:
        """The weights to try, one tuple per round."""
        if self.weights is not None:
            return [self.weights]
        parts, n = len(self.parts), self.steps
        found: list[tuple[float, ...]] = []
        for bars in combinations(range(n + parts - 1), parts - 1):
            ends = (-1, *bars, n + parts - 1)
            found.append(tuple((ends[i + 1] - ends[i] - 1) / n for i in range(parts)))
            if len(found) > MOST:
                raise ConfigError(
                    f"blend: {n} steps for {parts} parts are more than {MOST} weights to try; lower steps."
                )
        return found


class Blend(Recommender):
    """Weighted sums of z-scores."""

    name = "blend"
    sees = "sums only"
    title = "a blend of trained recommenders: z-scores per user, weights chosen on validation"
    private = "what its parts keep private"
    uploaded = "what its parts upload"
    server_keeps = "what the servers of its parts keep, and a weight per part"
    Config = BlendConfig
    config: BlendConfig
    logits = False
    of_parts = True
    folds_in = True
    evaluate_every = 1  # a round is a choice, and one that is not evaluated is not made

    def __init__(self, config: MethodConfig | None = None, **options: Any) -> None:
        """As many rounds as there are weights to try."""
        super().__init__(config, **options)
        self.rounds = len(self.config.candidates())

    @classmethod
    def kind_for(cls, config: MethodConfig) -> type[Self]:
        """One whose server sees the most that the server of a part sees."""
        assert isinstance(config, BlendConfig)
        sees = max((method.sees for method in config.made()), key=SEES.index)
        return cls if sees == cls.sees else cast(type[Self], _seeing(sees))

    @property
    def label(self) -> str:
        """Its parts."""
        return f"blend({' + '.join(part.method for part in self.config.parts)})"

    @classmethod
    def completed(cls, options: dict[str, Any], protocol: str, data: str) -> dict[str, Any]:
        """Parts that are named get the settings tuned for them; those that are runs the settings of the run."""
        given = options.get("parts", USUAL)
        if not isinstance(given, list | tuple):
            return options
        return options | {"parts": [_part(part, protocol, data) if isinstance(part, str) else part for part in given]}

    def trainer(self, view: TrainingView, setup: Setup) -> Trainer:
        """All parts, and the weights."""
        if setup.privacy is not None:
            raise ConfigError(
                "a blend passes nothing through a privacy stage; train its parts with one and blend their runs."
            )
        parts = self.config.made()
        rounds = [
            method.rounds if part.rounds is None else part.rounds
            for method, part in zip(parts, self.config.parts, strict=True)
        ]
        runs = [part.run for part in self.config.parts]
        return BlendTrainer(parts, rounds, runs, self.config.candidates(), view, setup)


@cache
def _seeing(sees: str) -> type[Blend]:
    return type("Blend", (Blend,), {"sees": sees, "__doc__": Blend.__doc__})


def _part(name: str, protocol: str, data: str) -> dict[str, Any]:
    from fedrec.methods import create, names

    if name not in names() and (is_finished(Path(name)) or "/" in name):
        result = read_result(name)
        return {"method": result.method, "settings": result.config, "rounds": result.model_round, "run": name}
    made = create(name, protocol=protocol, data=data)
    return {"method": made.name, "settings": made.describe_config(), "rounds": made.rounds}
