"""Runs and a study small enough for tests, on data the project makes."""

import json
from pathlib import Path

import fedrec
from fedrec.running.saved import read_result
from fedrec.studies.result import CellRecord, RowRecord, StudyResult, ValueRecord

WEIGHTS = (0.0, 0.5, 1.0)


def train_all(split, leaking, folder):
    """Run folders by name: two seeds of one method, merging clients, noise, and a leaking protocol."""
    options = {"rounds": 4, "evaluate_every": 2, "progress": False}
    noise = fedrec.Privacy(mechanism="laplace", clip=1.0, scale=1.0)
    wanted = {
        "mf": ("fedmf", {"dim": 4}, split, {}),
        "mf-1": ("fedmf", {"dim": 4}, split, {"seed": 1}),
        "noisy": ("fedmf", {"dim": 4}, split, {"privacy": noise}),
        "popular": ("popularity", {}, split, {}),
        "alone": ("local", {"dim": 4}, leaking, {}),
    }
    for place, rho in enumerate(WEIGHTS):
        wanted[f"merged-{place}"] = ("fedem", {"dim": 4, "merge": "static", "rho": rho}, split, {})
    wanted["adapted"] = ("fedem", {"dim": 4}, split, {})
    for name, (method, settings, data, more) in wanted.items():
        fedrec.train(fedrec.create(method, **settings), data, out=folder / name, **options | more)
    return {name: folder / name for name in wanted}


def cell(run, folder):
    result = read_result(run)
    place = Path("..", "..", *run.relative_to(folder.parents[1]).parts).as_posix()
    return CellRecord(
        seed=result.seed, state="finished", folder=place, config_hash=result.config_hash, split_hash=result.split_hash
    )


def row(label, runs, folder, published=None, **more):
    results = [read_result(run) for run in runs]
    first = results[0]
    values = [result.test.sampled["hr@10"] for result in results]
    mean = sum(values) / len(values)
    spread = abs(values[0] - values[1]) / 2**0.5 if len(values) == 2 else None
    value = ValueRecord(
        column="HR@10", mean=mean, spread=spread, per_seed=values, published=published,
        difference=None if published is None else mean - published,
    )  # fmt: skip
    return RowRecord(
        label=label, data=first.data, protocol=first.protocol, leaks=first.leaks, method=first.method, values=[value],
        rounds=first.rounds, selected_rounds=[result.selected_round for result in results], seconds=1.5, seconds_per_round=0.25,
        cells=[cell(run, folder) for run in runs], bytes_up=first.bytes.up_per_client_round,
        bytes_down=first.bytes.down_per_client_round, **{"settings": {}} | more,
    )  # fmt: skip


def write_study(runs, folder, name="tiny", **changes):
    """A study with published values, a leaking protocol, a sweep, and a run that is missing."""
    folder.mkdir(parents=True)
    rows = [
        row("MF", [runs["mf"], runs["mf-1"]], folder, published=0.5),
        row("Alone", [runs["alone"]], folder, published=0.25),
        *(
            row(f"Merged, rho={rho:g}", [runs[f"merged-{place}"]], folder, sweep={"rho": rho})
            for place, rho in enumerate(WEIGHTS)
        ),
    ]
    lost = rows[0].cells[0].model_copy(update={"seed": 2, "state": "failed", "folder": "", "why": "no room"})
    rows[0] = rows[0].model_copy(update={"cells": [*rows[0].cells, lost]})
    study = StudyResult(
        kind="study", name=name, title="A small study", paper="Somebody et al., Table 1", note="A note.", columns=["HR@10"],
        data=["small"], protocols=["honest*", "paper*"], seeds=[0, 1, 2], rows=rows, versions={"fedrec": "1"},
    ).model_copy(update=changes)  # fmt: skip
    (folder / "study.json").write_text(json.dumps(study.model_dump(mode="json")))
    return folder
