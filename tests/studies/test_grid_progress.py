"""What a user sees while a grid runs: lines where there is no terminal, bars where there is one."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedrec.studies import progress
from fedrec.studies.progress import GridProgress
from fedrec.studies.worker import BUSY, FAILED, FINISHED, STOPPED


def shown(*works: float, known: int = 0, rounds: int = 10, terminal: bool = False) -> tuple[GridProgress, io.StringIO]:
    cells = [SimpleNamespace(title=f"cell {n}", rounds=rounds, work=work) for n, work in enumerate(works)]
    text = io.StringIO()
    return GridProgress(cells, known, Console(file=text, force_terminal=terminal, width=100, color_system=None)), text  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_count_what_is_done_of_all_and_say_why_something_failed() -> None:
    grid, text = shown(1.0, 3.0, known=2)
    with grid:
        grid.hear(0, {"state": FINISHED})
        grid.hear(1, {"state": FAILED, "why": "no memory"})
    assert text.getvalue().splitlines() == [
        "4 cells: 2 finished before, 2 to run", "3/4 cell 0: finished, about 0 s left", "4/4 cell 1: failed: no memory",
    ]  # fmt: skip


def test_a_grid_without_cells_says_so() -> None:
    grid, text = shown(known=3)
    with grid:
        assert grid.share == 1.0
    assert text.getvalue() == "3 cells: all finished before\n"


def test_a_share_is_of_the_work_that_was_to_be_done() -> None:
    """Of two cells with work 1 and 3 over ten rounds; the second one has two rounds behind it from an earlier attempt."""
    grid, _ = shown(1.0, 3.0)
    assert grid.share == 0.0
    grid.hear(0, {"round": 0, "rounds": 10})
    grid.hear(0, {"round": 5})
    assert grid.share == pytest.approx(0.5 / 4)
    grid.hear(1, {"round": 2, "rounds": 10})
    assert grid.share == pytest.approx(0.5 / (1 + 3 * 0.8))
    grid.hear(1, {"round": 6})
    assert grid.share == pytest.approx((0.5 + 3 * 0.4) / (1 + 3 * 0.8))


def test_what_is_left_is_judged_by_the_share_that_is_done(clock: list[float]) -> None:
    grid, text = shown(1.0, 1.0, 2.0)
    with grid:
        clock[0] += 100
        grid.hear(0, {"state": FINISHED})
        clock[0] += 3600 * 3
        grid.hear(1, {"state": FINISHED})
    lines = text.getvalue().splitlines()
    assert lines[1] == "1/3 cell 0: finished, about 5 min left"
    assert lines[2] == "2/3 cell 1: finished, about 3.0 h left"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h"), (36_000, "10.0 h")],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert progress._duration(seconds) == words


def test_without_a_terminal_a_line_a_minute_says_how_far_the_grid_is(clock: list[float]) -> None:
    grid, text = shown(1.0)
    with grid:
        for round in range(5):
            clock[0] += 25
            grid.hear(0, {"round": round})
    lines = text.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("20 % of the work, about 5 min left")


def test_who_waits_for_somebody_else_says_so_once_and_ends_later() -> None:
    grid, text = shown(1.0, known=1)
    with grid:
        for _ in range(3):
            grid.hear(0, {"state": BUSY, "why": "process 7 has it."})
        grid.hear(0, {"state": FINISHED})
    assert text.getvalue().splitlines()[1:] == ["cell 0: process 7 has it. It is waited for.", "2/2 cell 0: finished"]


def test_what_was_stopped_is_not_counted_as_done() -> None:
    grid, text = shown(1.0, 1.0)
    with grid:
        grid.hear(0, {"state": STOPPED, "why": "interrupted"})
        grid.hear(1, {"state": FINISHED})
    assert [line.split(",")[0] for line in text.getvalue().splitlines()[1:]] == [
        "0/2 cell 0: stopped: interrupted", "1/2 cell 1: finished",
    ]  # fmt: skip


def test_a_terminal_has_a_bar_for_every_cell_that_runs() -> None:
    grid, text = shown(1.0, 1.0, terminal=True)
    with grid:
        grid.hear(0, {"state": "running"})
        grid.hear(0, {"round": 4})
        assert grid._bar is not None
        notes = {task.description: (task.completed, task.fields["note"]) for task in grid._bar.tasks}
        assert notes["cell 0"] == (4, "4/10 rounds")
        assert notes["all cells"][0] == pytest.approx(0.2)
        assert notes["all cells"][1].startswith("0/2 cells")
        grid.hear(0, {"state": FINISHED})
        assert [task.description for task in grid._bar.tasks] == ["all cells"]
    assert "1/2 cell 0: finished" in text.getvalue()
