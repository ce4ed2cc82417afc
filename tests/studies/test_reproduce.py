import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import fedrec
from fedrec.errors import ConfigError
from fedrec.running.lock import locked
from fedrec.running.saved import read_result
from fedrec.studies import pool
from fedrec.studies import study as studies
from fedrec.studies.cell import Cell
from fedrec.studies.grid import Wanted, grid_of
from fedrec.studies.result import StudyResult
from fedrec.studies.runner import reproduce
from fedrec.studies.study import parse

SMALL = """
title = "Small"
data = ["demo"]
protocols = ["honest", "paper"]
columns = ["hr@10", "full ndcg@10", "bytes.up_per_client_round", "groups.hr@10.0.mean", "diagnostics.no.such"]
rounds = 2

[[rows]]
label = "Popular"
method = "popularity"
rounds = 1
published = { demo = [0.5] }

[[rows]]
label = "MF"
method = "fedmf"
sweep = { lr = [0.02, 0.05] }

[[rows]]
label = "Too fast"
method = "fedmf"
settings = { lr = 1e30, optimizer = "sgd" }
protocols = ["honest"]

[[rows]]
label = "No such setting"
method = "fedmf"
settings = { leer = 1 }
protocols = ["honest"]

[[rows]]
label = "Elsewhere"
method = "popularity"
data = ["demo"]
protocols = ["paper"]
rounds = 1
"""
QUIET = {"progress": False}


@pytest.fixture(scope="module")
def small():
    return studies.parse(SMALL, "small")


@pytest.fixture(scope="module")
def done(small, tmp_path_factory):
    """The study, run by two workers."""
    out = tmp_path_factory.mktemp("studies")
    return out, reproduce(small, out=out, jobs=2, **QUIET)


def row(result, label, protocol="honest"):
    return next(r for r in result.rows if (r.label, r.protocol) == (label, protocol))


def times(out):
    """When every file of every cell was last written, locks apart."""
    return {path: path.stat().st_mtime_ns for path in (out / "cells").rglob("*") if path.name != "lock"}


def plain(result):
    """What does not depend on the clock."""
    content = result.model_dump(mode="json")
    for each in content["rows"]:
        for name in ("seconds", "seconds_per_round"):
            each.pop(name)
    return content


def test_values_are_those_of_the_runs_and_published_ones_stand_only_where_published(done):
    out, result = done
    popular = row(result, "Popular")
    folder = out / "small" / popular.cells[0].folder
    run = read_result(folder)
    found = [value.mean for value in popular.values]
    assert found[:4] == [
        run.test.sampled["hr@10"], run.test.full["ndcg@10"], run.bytes.up_per_client_round, run.groups["hr@10"][0].mean
    ]  # fmt: skip
    assert found[4] is None
    assert popular.values[0].published == 0.5
    assert popular.values[0].difference == pytest.approx(run.test.sampled["hr@10"] - 0.5)
    elsewhere = [v for r in result.rows if r.protocol == "paper" or r.label != "Popular" for v in r.values]
    assert {value.published for value in elsewhere + popular.values[1:]} == {None}
    assert [row.leaks for row in result.rows] == [row.protocol == "paper" for row in result.rows]
    assert row(result, "MF, lr=0.02").sweep == {"lr": 0.02}
    assert row(result, "MF, lr=0.02").rounds == 2
    assert not (folder / "model").exists()


def test_a_cell_that_fails_is_named_with_its_reason_and_the_others_are_run(done):
    _, result = done
    fast, setting = row(result, "Too fast").cells[0], row(result, "No such setting").cells[0]
    assert (fast.state, setting.state) == ("failed", "failed")
    assert "lower lr" in fast.why
    assert "did you mean 'lr'" in setting.why or "unknown setting of fedmf 'leer'" in setting.why
    states = {cell.state for r in result.rows for cell in r.cells if r.label not in ("Too fast", "No such setting")}
    assert states == {"finished"}
    assert len(result.missing) == 2


def test_processes_that_cannot_be_started_fail_their_cells(small, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    found = reproduce(small, out=tmp_path, protocols=["honest"], jobs=2, **QUIET)
    assert "its process cannot be run" in row(found, "Popular").cells[0].why
    assert {cell.state for r in found.rows for cell in r.cells} == {"failed"}


def test_a_cell_whose_process_is_killed_fails_and_the_next_one_is_run(small, tmp_path, monkeypatch):
    """The worker says so; one that is killed itself is replaced."""
    killed = []
    made = pool.Worker.run

    def run(self, job, hear):
        if not killed:
            killed.append(job.folder)
            os.killpg(self.process.pid, signal.SIGKILL)
        made(self, job, hear)

    monkeypatch.setattr(pool.Worker, "run", run)
    found = reproduce(small, out=tmp_path, protocols=["honest"], jobs=1, rounds=1, **QUIET)
    assert "the worker process ended" in row(found, "Popular").cells[0].why
    assert row(found, "MF, lr=0.02").cells[0].state == "finished"


def test_a_worker_that_says_no_more_is_given_no_other_cell(tmp_path):
    mine, heard = pool.Worker(1), []
    mine.end()
    mine.words = (tmp_path / "words").open("wb+")
    code = "import os, time; os.close(1); time.sleep(60)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    mine.process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **pipes)
    job = pool.Job(cell=Cell(method="popularity", data="demo", protocol="honest", seed=0), folder=tmp_path / "run")
    mine.run(job, heard.append)
    alive = mine.alive
    mine.kill()
    mine.end()
    assert [said["state"] for said in heard] == ["failed"]
    assert not alive


def test_the_result_is_written_in_all_its_forms(done):
    out, result = done
    assert StudyResult.model_validate_json((out / "small" / "study.json").read_text()) == result
    assert pq.read_table(out / "small" / "table.parquet").to_pylist() == result.flat()
    text = (out / "small" / "table.md").read_text()
    assert "protocol paper, LEAKS" in text
    assert "| Popular |" in text
    assert "No such setting on demo (honest), seed 0: failed" in text
    assert (out / "small" / "table.csv").read_text().count("\n") == len(result.flat()) + 1


def test_a_second_call_trains_nothing_but_what_failed(small, done):
    out, first = done
    before = times(out)
    again = reproduce(small, out=out, jobs=1, **QUIET)
    assert plain(again) == plain(first)
    after = times(out)
    failed = row(first, "Too fast").cells[0].folder.split("/")[-1]
    assert {path for path in after if after[path] != before.get(path) and failed not in path.parts} == set()


def test_other_studies_find_the_same_cells(small, done):
    out, _ = done
    before = set((out / "cells").iterdir())
    other = studies.parse(SMALL, "other").model_copy(update={"rows": small.rows[:2]})
    found = reproduce(other, out=out, protocols=["honest"], run=False, **QUIET)
    assert found.missing == []
    assert set((out / "cells").iterdir()) == before


def test_without_running_what_is_missing_is_named(small, tmp_path):
    found = reproduce(small, out=tmp_path, run=False, **QUIET)
    assert {cell.state for r in found.rows for cell in r.cells} == {"missing", "failed"}
    assert row(found, "Popular").cells[0].why == "not run"
    assert row(found, "Popular").values[0].mean is None
    assert not (tmp_path / "cells").exists()


def test_several_at_a_time_give_the_numbers_of_one_after_the_other(small, done, tmp_path):
    _, parallel = done
    serial = reproduce(small, out=tmp_path, jobs=1, **QUIET)
    assert plain(serial) == plain(parallel)


def test_seeds_are_averaged_and_change_the_split(small, done):
    out, first = done
    both = reproduce(small, out=out, seeds=2, protocols=["honest"], **QUIET)
    popular = row(both, "Popular")
    values = popular.values[0]
    assert values.per_seed[0] == row(first, "Popular").values[0].mean
    assert values.mean == pytest.approx(sum(values.per_seed) / 2)
    assert values.spread == pytest.approx(abs(values.per_seed[0] - values.per_seed[1]) / 2**0.5)
    assert len({cell.split_hash for cell in popular.cells}) == 2


def test_rounds_may_be_changed_but_rows_with_few_keep_them(small, done):
    out, _ = done
    found = reproduce(small, out=out, rounds=3, protocols=["honest"], run=False, **QUIET)
    assert row(found, "Popular").rounds == 1
    assert row(found, "MF, lr=0.02").rounds == 3
    with pytest.raises(ConfigError, match="at least 1 seed"):
        reproduce(small, out=out, seeds=0)
    with pytest.raises(ConfigError, match="unknown protocol"):
        reproduce(small, out=out, protocols=["papr"])
    with pytest.raises(ConfigError, match="did you mean 'ml-100k'"):
        reproduce(small, out=out, data=["ml100k"])


def test_rows_may_be_chosen(small, done):
    out, whole = done
    found = reproduce(small, out=out, rows=["Popular"], run=False, **QUIET)
    assert found.rows == [row for row in whole.rows if row.label == "Popular"] != []
    with pytest.raises(ConfigError, match="unknown row of small 'Populer'; did you mean 'Popular'"):
        reproduce(small, out=out, rows=["Populer"], run=False)


def test_the_best_settings_are_chosen_on_validation(small, tmp_path):
    choosing = small.rows[1].model_copy(update={"sweep": {}, "choose": {"lr": (1e-9, 0.05)}})
    choice = small.model_copy(update={"rows": (choosing,)})
    (none,) = reproduce(choice, out=tmp_path, protocols=["honest"], run=False, **QUIET).rows
    assert none.chosen == {}, "nothing was run, so nothing was chosen"
    found = reproduce(choice, out=tmp_path, protocols=["honest"], **QUIET)
    (one,) = found.rows
    assert (one.chosen, one.tried, one.label) == ({"lr": 0.05}, 2, "MF")
    best = [read_result(folder) for folder in (tmp_path / "cells").iterdir()]
    by_lr = {run.config["lr"]: run.validation.full["ndcg@10"] for run in best}
    assert by_lr[0.05] > by_lr[1e-9]


def test_a_row_may_keep_its_models_and_then_serves_rows_that_need_none(small, tmp_path):
    plain_row = small.rows[0].model_copy(update={"published": {}})
    keeping = plain_row.model_copy(update={"label": "Kept", "keep_model": True})
    first = reproduce(small.model_copy(update={"rows": (keeping,)}), out=tmp_path, protocols=["honest"], **QUIET)
    folder = tmp_path / "small" / first.rows[0].cells[0].folder
    assert fedrec.load_run(folder).result == read_result(folder)
    both = small.model_copy(update={"rows": (plain_row, keeping)})
    again = reproduce(both, out=tmp_path, protocols=["honest"], run=False, **QUIET)
    assert {row.cells[0].folder for row in again.rows} == {first.rows[0].cells[0].folder}
    assert again.missing == []


LONG = """
title = "Long"
data = ["demo"]
protocols = ["honest"]
columns = ["hr@10"]
rounds = 60

[[rows]]
label = "Popular"
method = "popularity"
rounds = 1

[[rows]]
label = "MF"
method = "fedmf"

[[rows]]
label = "MF again"
method = "fedmf"
settings = { lr = 0.01 }
"""


def begin(folder, *more):
    (folder / "long.toml").write_text(LONG)
    arguments = ["reproduce", str(folder / "long.toml"), "--out", str(folder), "--jobs", "1", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "fedrec", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which tests run in the background ignore
    )


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def rounds_logged(folder):
    """Rounds of the cell in flight: the one with most."""
    logs = [path.read_text().count("\n") for path in (folder / "cells").glob("*/metrics.jsonl")]
    return max(logs, default=0)


def children(pid):
    return [int(each) for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_study_leaves_nobody_behind_and_loses_only_what_was_in_flight(tmp_path):
    study = begin(tmp_path)
    until(lambda: rounds_logged(tmp_path) > 25)
    (worker,) = children(study.pid)
    (cell,) = children(worker)
    study.send_signal(signal.SIGKILL)
    study.communicate()
    until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() and _alive(pid) for pid in (worker, cell)), 20)
    finished = {path.parent for path in (tmp_path / "cells").glob("*/manifest.json")}
    assert len(finished) == 1
    before = {path: path.stat().st_mtime_ns for folder in finished for path in folder.iterdir() if path.name != "lock"}
    rounds = rounds_logged(tmp_path)
    again = begin(tmp_path)
    until(lambda: rounds_logged(tmp_path) > rounds or again.poll() is not None)
    begun = next(path for path in (tmp_path / "cells").glob("*/metrics.jsonl") if path.parent not in finished)
    _, words = again.communicate(timeout=300)
    assert again.returncode == 0, words
    assert "1 finished before, 2 to run" in words
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert begun.read_text().count("\n") == 60
    result = StudyResult.model_validate_json((tmp_path / "long" / "study.json").read_text())
    assert result.missing == []
    whole = reproduce(studies.parse(LONG, "long"), out=tmp_path / "whole", **QUIET)
    assert [r.values[0].mean for r in whole.rows] == [r.values[0].mean for r in result.rows]


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_an_interruption_at_the_very_beginning_stops_too(small, tmp_path):
    """The worker process has hardly started; nothing of it is a failure."""
    heard = []

    def tell(number, said):
        heard.append((number, said.get("state")))
        if said.get("state") == "running":
            raise KeyboardInterrupt

    wanted = Wanted(small.data, ("honest",), (0,), rounds=3000)
    cells = [next(row.cells) for row in grid_of(small, wanted, tmp_path)][1:3]
    assert not pool.run_cells(cells, pool.Where(jobs=1), tell)
    assert heard == [(0, "running"), (0, "stopped")]


def test_a_worker_that_does_not_hear_yet_is_ended_by_an_interruption():
    """It may have begun with interruptions ignored, and would lose one."""
    mine = pool.Worker(1)
    mine.interrupt()
    assert mine.process.wait(60) == -signal.SIGKILL
    mine.end()


def test_a_worker_between_two_cells_hears_of_an_interruption(tmp_path):
    mine, heard = pool.Worker(1), []
    for name in ("one", "other"):
        cell = Cell(method="popularity", data="demo", protocol="honest", seed=0, rounds=1)
        mine.run(pool.Job(cell=cell, folder=tmp_path / name), heard.append)
        mine.interrupt()
    mine.end()
    assert [said["state"] for said in heard if "state" in said] == ["finished", "stopped"]


def test_an_interruption_stops_after_the_round_and_says_what_there_is(tmp_path):
    study = begin(tmp_path, "--json")
    until(lambda: rounds_logged(tmp_path) > 5)
    study.send_signal(signal.SIGINT)
    _, said = study.communicate(timeout=60)
    assert study.returncode == 130
    assert said.rstrip().endswith("interrupted; the same command goes on.")
    result = json.loads((tmp_path / "long" / "study.json").read_text())
    assert [cell["state"] for row in result["rows"] for cell in row["cells"]] == ["finished", "missing", "missing"]
    assert list((tmp_path / "cells").glob("*/checkpoints/*"))


def test_a_cell_somebody_else_is_running_is_waited_for(small, tmp_path):
    one = small.model_copy(update={"rows": small.rows[:1]})
    planned = reproduce(one, out=tmp_path, protocols=["honest"], run=False, **QUIET)
    folder = tmp_path / "small" / planned.rows[0].cells[0].folder
    folder.mkdir(parents=True)
    (tmp_path / "small.toml").write_text(SMALL.split('[[rows]]\nlabel = "MF"')[0])
    with locked(folder):
        other = subprocess.Popen(
            [sys.executable, "-m", "fedrec", "reproduce", str(tmp_path / "small.toml"), "--out", str(tmp_path),
             "--protocol", "honest"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        for line in other.stderr:
            if "is in use by process" in line:
                assert str(os.getpid()) in line
                break
        assert other.poll() is None
    other.communicate(timeout=60)
    assert other.returncode == 0
    assert read_result(folder).method == "popularity"


def test_a_table_that_is_wider_than_the_screen_goes_on_in_another(done):
    out, _ = done
    environment = os.environ | {"COLUMNS": "60"}
    said = subprocess.run(
        [sys.executable, "-m", "fedrec", "reproduce", "fedem-fig2", "--data", "demo", "--no-run", "--out", str(out)],
        capture_output=True, text=True, env=environment, timeout=120,
    )  # fmt: skip
    tables = [line for line in said.stdout.splitlines() if line[:1] in "┏│└"]
    assert max(map(len, tables)) <= 60
    assert said.stdout.count("further columns") >= 2
    heads = [line.split("┃")[1].strip() for line in said.stdout.splitlines() if line.startswith("┃")]
    assert heads.count("row") == said.stdout.count("┏")
    assert said.returncode == 1


SLOW_CELL = """
import os, sys, time
from fedrec.studies import worker
cell = os.fork()
if cell == 0:
    time.sleep(100)
    os._exit(0)
print(cell, flush=True)
worker._attend(cell, sys.stdout)
"""


LAST_WORD = """
import os, signal, sys
from fedrec.studies import worker
worker.run = lambda job, reports: {"state": worker.FINISHED}
worker._say = lambda reports, said: (print(said["state"], flush=True), os.kill(os.getpid(), signal.SIGINT))
worker._in_child(None, sys.stdout)
"""


def test_an_interruption_after_its_last_word_does_not_end_a_cell():
    """It is for the next one, which would count as failed if this process said that it was ended."""
    done = subprocess.run([sys.executable, "-c", LAST_WORD], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, ["finished"])


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_worker_ends_its_cell_when_nobody_feeds_it_any_more():
    """Also in the middle of a round, when the cell has nothing to say for long."""
    pipe = subprocess.PIPE
    attending = subprocess.Popen([sys.executable, "-c", SLOW_CELL], stdin=pipe, stdout=pipe, text=True)
    cell = int(attending.stdout.readline())
    assert _alive(cell)
    attending.stdin.close()
    assert attending.wait(30) == 1
    assert not _alive(cell)
    attending.stdout.close()


def test_the_order_of_histories_makes_another_cell_for_methods_that_learn_from_it(demo, tmp_path):
    """Two files whose parts are the same; in one of them a user's two oldest items are in the other order."""
    rows = np.flatnonzero(demo.users == 0)
    rows = rows[np.argsort(demo.timestamps[rows], kind="stable")][:2]
    swapped = demo.timestamps.copy()
    swapped[rows] = swapped[rows[::-1]]
    assert demo.timestamps[rows[0]] < demo.timestamps[rows[1]]
    cells = {}
    for name, times in (("one", demo.timestamps), ("other", swapped)):
        lines = zip(demo.users.tolist(), demo.items.tolist(), times.tolist(), strict=True)
        (tmp_path / f"{name}.csv").write_text("user,item,timestamp\n" + "".join(f"{u},{i},{t}\n" for u, i, t in lines))
        study = parse(ORDER.replace("DATA", str(tmp_path / f"{name}.csv")), "order")
        grid = grid_of(study, Wanted(study.data, study.protocols, (0,)), tmp_path)
        cells[name] = {row.label: next(row.cells).folder.name for row in grid}
    assert len({fedrec.HONEST.split(fedrec.read_csv(tmp_path / f"{name}.csv")).hash for name in cells}) == 1
    same = {label for label, folder in cells["one"].items() if cells["other"][label] == folder}
    assert same == {"fedmf", "fedgram", "ease", "unordered"}


ORDER = "title = 'Order'\ndata = ['DATA']\nprotocols = ['honest']\ncolumns = ['hr@10']\n" + "".join(
    f"[[rows]]\nlabel = '{label}'\nmethod = '{method}'\nsettings = {settings}\n"
    for label, method, settings in [
        ("fedmf", "fedmf", "{}"), ("fedgram", "fedgram", "{ delta_q = 'none' }"), ("ease", "ease", "{ delta_q = 'none' }"), ("slist", "slist", "{}"),
        ("fedslist", "fedslist", "{}"), ("unordered", "slist", "{ order = 'none' }"), ("fading", "ease", "{ delta_q = 5 }"),
        ("fading sums", "fedgram", "{ delta_q = 5 }"),
    ]
)  # fmt: skip
