"""Searches good settings of a method on validation; the test part of the split is taken out before anything begins."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from fedrec import api
from fedrec.compute.device import resolve_device
from fedrec.data.loading import load_any
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.search import Space
from fedrec.methods import create
from fedrec.methods.own_file import checksum_of, found_from_anywhere, is_own_file
from fedrec.protocol import Split, preset
from fedrec.protocol.sealed import sealed
from fedrec.running.files import NotWrittenError, read_object, write_json, write_text
from fedrec.running.folder import holds_run
from fedrec.running.lock import InUseError, locked
from fedrec.running.loop import StoppedError
from fedrec.running.options import RunOptions
from fedrec.running.saved import is_finished, read_result
from fedrec.running.toml import toml_lines
from fedrec.screen import Screen
from fedrec.studies.collect import validation_value
from fedrec.studies.result import arrow_table, as_pandas
from fedrec.studies.runner import OUT
from fedrec.studies.trials import TrialRecord, add_trial, load_optuna, read_trials, suggest

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class TuneResult(BaseModel):
    """All trials, and the best one."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    method: str
    data: str
    protocol: str
    seed: int
    metric: str
    """What was compared, on validation."""
    rounds: int
    """Of every trial."""
    trials: list[TrialRecord]
    fixed: dict[str, Any]
    """Settings that were given and not searched."""
    config_file: str
    """The best settings, for ``fedrec train`` with a configuration file."""

    @property
    def best(self) -> TrialRecord:
        """The trial with the best validation value; the earliest of equal ones."""
        return max(self.trials, key=lambda trial: (_worth(trial), -trial.number))

    def to_arrow(self) -> pa.Table:
        """One record per trial."""
        rows = [
            {"number": t.number, "state": t.state, "value": t.value, "selected_round": t.selected_round,
             "seconds": t.seconds, "settings": json.dumps(t.settings)}
            for t in self.trials
        ]  # fmt: skip
        types = {"number": "int64", "state": "string", "value": "double", "selected_round": "int64"}
        return arrow_table(rows, types | {"seconds": "double", "settings": "string"})

    def to_pandas(self) -> pd.DataFrame:
        """The same as a data frame."""
        return as_pandas(self.to_arrow())


def tune(
    method: str,
    *,
    data: str = "ml-100k",
    protocol: str = "honest",
    trials: int = 20,
    seed: int = 0,
    rounds: int | None = None,
    settings: Mapping[str, Any] | None = None,
    evaluate_every: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    out: str | Path = OUT,
    data_dir: str | None = None,
    progress: bool = True,
) -> TuneResult:
    """Try ``trials`` combinations of settings, each for the same number of rounds, and keep the best on validation.

    The first one is what the method has now. ``settings`` are fixed. The same call goes on where an earlier one stopped,
    and with more ``trials`` adds to them. ``evaluate_every`` is 5 unless given, and 1 for methods whose rounds are choices.
    """
    load_optuna()
    fixed = dict(settings or {})
    made = create(method, fixed, protocol=protocol, data=data)
    space: Space = {name: wanted for name, wanted in made.config.search_space().items() if name not in fixed}
    if not space:
        raise ConfigError(f"{method} has no settings to search that are not given.")
    if trials < 1:
        raise ConfigError(f"tuning needs at least 1 trial, not {trials}.")
    resolve_device(device)  # a mistake here would be the end of every trial
    evaluate_every = made.evaluate_every if evaluate_every is None else evaluate_every
    RunOptions(rounds=rounds, evaluate_every=evaluate_every, threads=threads)
    interactions, source = load_any(data, data_dir)
    split = sealed(preset(protocol).split(interactions, seed))
    count = made.rounds if rounds is None or made.rounds == 1 else rounds
    folder = Path(out) / f"tune-{made.name}-{split.data.name}-{protocol.replace(':', '-')}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    console = Screen(stderr=True, quiet=not progress)
    base = made.describe_config()
    search = _Search(method, protocol, data, fixed, split, source, folder, count, evaluate_every, device, threads)
    with locked(folder):
        also = {"order_hash": split.order_hash} if made.config.uses_order else {}
        if is_own_file(method):
            also["method_file"] = checksum_of(method)
        _claim(folder, search, space, also)
        known = read_trials(folder / "trials.jsonl")
        if known:
            console.print(f"{len(known)} trials were made before.")
        while len(known) < trials:
            usual = {name: base[name] for name in space}
            trial = search.run(len(known), suggest(space, known, seed) if known else usual)
            add_trial(folder / "trials.jsonl", trial)
            known.append(trial)
            console.print(_line(trial, trials, known), soft_wrap=True)
        result = TuneResult(
            method=method, data=data, protocol=protocol, seed=seed, metric=search.metric, rounds=count, trials=known,
            fixed=fixed, config_file=str(folder / "best.toml"),
        )  # fmt: skip
        if result.best.value is None:
            raise FedrecError(f"none of the {len(known)} trials came to an end; the first says: {known[0].why}")
        write_text(folder / "best.toml", toml(result))
    return result


class _Search:
    """What all trials share."""

    def __init__(
        self, method: str, protocol: str, data: str, fixed: dict[str, Any], split: Split, source: dict[str, Any],
        folder: Path, rounds: int, evaluate_every: int, device: str, threads: int | None,
    ) -> None:  # fmt: skip
        self.method, self.protocol, self.data, self.fixed, self.split = method, protocol, data, fixed, split
        self.source, self.folder, self.rounds = source, folder, rounds
        self.evaluate_every, self.device, self.threads = evaluate_every, device, threads

    @property
    def metric(self) -> str:
        """In words."""
        chosen = self.split.protocol
        return f"validation {chosen.select_metric} ({chosen.select_ranking})"

    def run(self, number: int, settings: dict[str, Any]) -> TrialRecord:
        """One trial, in a run folder of its own; one that was cut short goes on."""
        place = self.folder / "trials" / f"{number:04}"
        try:
            made = create(self.method, self.fixed | settings, protocol=self.protocol, data=self.data)
            if not is_finished(place):
                api.train(
                    made, self.split, rounds=self.rounds, seed=self.split.seed, device=self.device, out=place,
                    evaluate_every=self.evaluate_every, keep_model=False, resume=holds_run(place), progress=False,
                    threads=self.threads, source=self.source,
                )  # fmt: skip
            result = read_result(place)
        except StoppedError:
            raise KeyboardInterrupt(f"interrupted in trial {number + 1}; the same command goes on there.") from None
        except (InUseError, NotWrittenError):  # says nothing of the settings, so it is no trial
            raise
        except FedrecError as error:
            return TrialRecord(
                number=number, settings=settings, state="failed", value=None, selected_round=None, seconds=None,
                why=str(error),
            )  # fmt: skip
        value = validation_value(result, self.split.protocol)
        return TrialRecord(
            number=number, settings=settings, state="finished", value=None if math.isnan(value) else value,
            selected_round=result.selected_round, seconds=result.seconds.total,
        )  # fmt: skip


def toml(result: TuneResult) -> str:
    """The best settings as a configuration file."""
    best = result.best
    lines = [
        f"# Trial {best.number + 1} of {len(result.trials)}, by {result.metric}: {best.value:.6f} (round {best.selected_round}).",
        *toml_lines({"method": found_from_anywhere(result.method), "data": result.data, "protocol": result.protocol}),
        "",
        "[run]",
        f"rounds = {result.rounds}",
        "",
        "[settings]",
    ]
    lines += toml_lines(result.fixed | best.settings)
    return "\n".join(lines) + "\n"


def _claim(folder: Path, search: _Search, space: Space, also: dict[str, str]) -> None:
    """Note which search this is, or refuse to go on with another one; ``also`` has hashes of what only some methods have."""
    path = folder / "tuning.json"
    wanted = {
        "format": 1, "method": search.method, "data": search.data, "split_hash": search.split.hash,
        "fixed": search.fixed, "rounds": search.rounds, "evaluate_every": search.evaluate_every,
        "space": {name: vars(each) | {} for name, each in space.items()},
    }  # fmt: skip
    wanted = json.loads(json.dumps(wanted | also))
    if not path.exists():
        write_json(path, wanted)
        return
    known = read_object(path)
    for name, value in wanted.items():
        if known.get(name) != value:
            raise ConfigError(f"{folder} holds a search with other {name}; tune in another folder, or remove this one.")


def _worth(trial: TrialRecord) -> float:
    return -math.inf if trial.value is None else trial.value


def _line(trial: TrialRecord, trials: int, known: list[TrialRecord]) -> str:
    settings = " ".join(f"{name}={_short(value)}" for name, value in trial.settings.items())
    found = f"failed: {trial.why}" if trial.value is None else f"{trial.value:.4f} in {trial.seconds or 0:.0f} s"
    best = max(map(_worth, known))
    return f"trial {trial.number + 1}/{trials}: {found}, best {best:.4f}; {settings}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
