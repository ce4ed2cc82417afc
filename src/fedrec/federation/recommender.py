"""What can be trained and then recommends: a federated method or a centralised model, with its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from fedrec.data.training import TrainingView
from fedrec.federation.config import LearnedConfig, MethodConfig, SampledConfig, validated
from fedrec.federation.result import Result, ResultTable
from fedrec.federation.trainer import Setup, Trainer
from fedrec.local.fit import Schedule


class Recommender(ABC):
    """One published system: a name, typed settings, and a trainer."""

    name: str
    title: ClassVar[str]
    """One line for lists."""
    paper: ClassVar[str] = ""
    private: ClassVar[str] = "nothing"
    uploaded: ClassVar[str] = "nothing"
    server_keeps: ClassVar[str] = "nothing"
    sees: ClassVar[str]
    """What of the clients' uploads the server sees: sums only, every upload, or all data."""
    Config: ClassVar[type[MethodConfig]] = MethodConfig
    config: MethodConfig
    rounds: int = 100
    """Default number of rounds of a run."""
    evaluate_every: ClassVar[int] = 5
    """Rounds between evaluations in studies, comparisons and searches that do not say it."""
    defining: ClassVar[tuple[str, ...]] = ("variant",)
    """Settings that bring their own defaults: chosen by hand, they are run as defined, not with what was tuned for others."""
    telling: ClassVar[tuple[str, ...]] = ("variant",)
    """Settings that tell runs of this method apart in a table."""
    logits: ClassVar[bool] = True
    """Whether scores are logits of a probability; protocols that rank sigmoids leave other scores as they are."""

    def __new__(cls, config: MethodConfig | None = None, **options: Any) -> Self:
        """An instance of the kind that the settings ask for."""
        kind = cls.kind_for(config if config is not None else cls.configure(options))
        return super().__new__(kind if issubclass(kind, cls) else cls)

    def __init__(self, config: MethodConfig | None = None, **options: Any) -> None:
        """Take a config object, or its fields as keyword arguments."""
        self.config = config if config is not None else self.configure(options)

    @classmethod
    def kind_for(cls, config: MethodConfig) -> type[Self]:
        """The subclass that runs these settings, where settings change which arrows there are."""
        return cls

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are made anew from the settings, which are all there is."""
        return (type(self), (self.config,), {"rounds": self.rounds})

    @classmethod
    def configure(cls, options: dict[str, Any]) -> MethodConfig:
        """A validated config; an unknown key or a bad value is one clear sentence."""
        return validated(cls.Config, cls.name, options)

    @classmethod
    def completed(cls, options: dict[str, Any], protocol: str, data: str) -> dict[str, Any]:
        """Settings with what depends on protocol and data filled in, where a method has such settings."""
        return options

    def describe_config(self) -> dict[str, Any]:
        """The config as plain values."""
        return self.config.model_dump(mode="json")

    @property
    def label(self) -> str:
        """The name, and the ``telling`` settings that are not at their defaults."""
        fields = type(self.config).model_fields
        chosen = {key: getattr(self.config, key) for key in self.telling if key in fields}
        return " ".join([self.name, *(f"{k}={v}" for k, v in chosen.items() if v != fields[k].default)])

    @property
    def when_diverged(self) -> str:
        """What to do when training diverges: lower the rate that is furthest above its default, or else ``lr``."""
        fields = type(self.config).model_fields
        rates = {name: getattr(self.config, name) for name in fields if "lr" in name.split("_")}
        rates = {name: rate for name, rate in rates.items() if rate is not None}
        if not rates:
            return "check the settings"
        usual = {name: fields[name].default or fields["lr"].default for name in rates}
        raised = {name: max(1.0, rate / usual[name]) for name, rate in rates.items()}
        name = max(sorted(rates, key=lambda name: name != "lr"), key=raised.__getitem__)
        return f"lower {name} (now {rates[name]:g})"

    def cautions(self, n_items: int) -> list[str]:
        """What whoever runs these settings on data of so many items should know before, in whole sentences."""
        return []

    of_parts: ClassVar[bool] = False
    """Whether it trains other methods, its parts: what it needs and sends is what they do."""
    folds_in: ClassVar[bool] = False
    """Whether scores can count items that came after training: they are a function of what a client has."""
    explains: ClassVar[bool] = False
    """Whether a score is a sum over what a client has, so that it can be said what each of its items adds."""

    @property
    def merges(self) -> bool:
        """Whether clients merge the item table they download with their own."""
        return False

    @property
    def negatives(self) -> int:
        """Negatives drawn per training positive."""
        return self.config.negatives if isinstance(self.config, SampledConfig) else 0

    @property
    def schedule(self) -> Schedule | None:
        """Epochs and batches of local training, where there is any."""
        return self.config.schedule if isinstance(self.config, LearnedConfig) else None

    @abstractmethod
    def trainer(self, view: TrainingView, setup: Setup) -> Trainer:
        """What runs this system on the training part of a split."""

    def tables(self, result: Result) -> list[ResultTable]:
        """Tables to print under the result of a run, made from what is in it."""
        return []
