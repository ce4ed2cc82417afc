"""Trials of a search for settings, kept as lines of JSON, and what to try next.

Optuna's sampler is given the trials so far and a seed that is a function of the number of the trial. So what it
suggests does not depend on how often the search was interrupted, and none of Optuna's storages is needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.search import Options, Range, Space
from fedrec.running.files import append_line, write_text

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


class TrialRecord(BaseModel):
    """One combination of settings, and what it reached on validation."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    number: int
    """Counts from 0; what people read counts from 1."""
    settings: dict[str, Any]
    state: Literal["finished", "failed"]
    value: float | None
    """The metric that selects, on validation."""
    selected_round: int | None
    seconds: float | None
    why: str | None = None
    """Why it failed."""


def read_trials(path: Path) -> list[TrialRecord]:
    """The trials of a log; a last line that was cut short is dropped from it."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        write_text(path, "".join(lines[:-1]))
        lines = lines[:-1]
    try:
        trials = [TrialRecord.model_validate_json(line) for line in lines]
    except ValidationError:
        trials = []
    if [trial.number for trial in trials] != list(range(len(lines))):
        raise FedrecError(f"{path} is damaged; tune in another folder.")
    return trials


def add_trial(path: Path, trial: TrialRecord) -> None:
    """Add one to the log."""
    append_line(path, json.dumps(trial.model_dump(mode="json"), allow_nan=False))


def suggest(space: Space, trials: Sequence[TrialRecord], seed: int) -> dict[str, Any]:
    """What to try next."""
    optuna = load_optuna()
    states = optuna.trial.TrialState
    forms = {name: _distribution(wanted) for name, wanted in space.items()}
    sampler = optuna.samplers.TPESampler(seed=(seed * 1_000_003 + len(trials)) % 2**32)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for trial in trials:
        if not all(wanted.holds(trial.settings.get(name)) for name, wanted in space.items()):
            continue  # the first one, where a usual value lies outside the space
        study.add_trial(
            optuna.trial.create_trial(
                params=trial.settings,
                distributions=forms,
                value=trial.value,
                state=states.FAIL if trial.value is None else states.COMPLETE,
            )
        )
    return dict(study.ask(forms).params)


def load_optuna() -> Any:
    """The library, or one sentence where it is missing."""
    try:
        import optuna
    except ImportError:
        raise ConfigError("tuning needs the extra 'tune': pip install 'fedrec[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _distribution(wanted: Range | Options) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(wanted, Options):
        return CategoricalDistribution(wanted.values)
    if wanted.whole:
        return IntDistribution(int(wanted.low), int(wanted.high), log=wanted.log)
    return FloatDistribution(wanted.low, wanted.high, log=wanted.log)
