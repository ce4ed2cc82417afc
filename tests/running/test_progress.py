"""What is seen while a run goes on, on a terminal of 80 columns and in a log."""

import io
import re

import pytest

import fedrec
from fedrec.evaluation import Evaluator
from fedrec.running import progress
from fedrec.running.listeners import Listener, RunStart
from fedrec.running.progress import ProgressDisplay
from fedrec.screen import Screen

LINE = {"round": 1, "loss": 0.5, "clients_per_second": 1234.0, "bytes_up": 0, "bytes_down": 0, "seconds": {}}
MEANS = {"sampled": {}, "full": {"ndcg@10": 0.25}}
TITLE = "fedem on a-data-set-with-a-very-long-name-indeed (honest)"


def display(terminal, note=None, width=80):
    console = Screen(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)
    return ProgressDisplay(fedrec.HONEST, note, console), console.file


def last_frame(shown):
    text = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "\r", shown.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    return lines[-2:]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_bar_counter_and_time_stay_after_a_round(width):
    shown_by, shown = display(True, lambda: "epsilon 2.5e+04 (delta 1e-05)", width)
    shown_by.start(RunStart(TITLE, 120))
    shown_by.round(LINE | {"round": 80, "validation": MEANS})
    shown_by.end()
    bar, words = last_frame(shown)
    assert "━" * 10 in bar
    assert "80/120" in bar
    assert re.search(r"\d+:\d\d:\d\d|-:--:--", bar)
    assert "fedem on a" in bar
    assert words.startswith("loss 0.5000, validation ndcg@10 0.2500, 1234 clients/s")
    assert len(bar) <= width >= len(words)


def test_what_is_being_done_is_shown(demo, honest):
    shown_by, shown = display(True)
    shown_by.start(RunStart("ease on demo (honest)", 1))
    shown_by.working("training, round 1", 0, 1)
    shown_by._bar.refresh()
    assert last_frame(shown)[1] == "training, round 1"
    shown_by.working("evaluating clients", 2_000, 6_040)
    shown_by._bar.refresh()
    assert last_frame(shown)[1] == "evaluating clients, 2,000 of 6,040"
    shown_by.round(LINE)
    shown_by.working("training, round 2", 1, 2)
    shown_by._bar.refresh()
    assert last_frame(shown)[1].endswith("1234 clients/s; training, round 2")
    shown_by.end()


def test_a_log_says_that_one_round_is_on_and_that_evaluation_takes_long(monkeypatch):
    shown_by, shown = display(False)
    shown_by.start(RunStart("ease on demo", 1))
    shown_by.working("evaluating clients", 10, 30)
    assert shown.getvalue() == "ease on demo: training\n"
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    shown_by.working("evaluating clients", 20, 30)
    shown_by.working("evaluating clients", 30, 30)
    assert shown.getvalue().splitlines()[1:] == ["ease on demo: evaluating clients, 20 of 30"]


@pytest.mark.parametrize("terminal", [True, False])
def test_titles_are_shown_as_they_are(terminal):
    shown_by, shown = display(terminal)
    shown_by.start(RunStart("mf on [/x28] [rec] :star:", 2))
    shown_by.round(LINE)
    shown_by.end()
    assert "mf on [/x28] [rec] :star:" in shown.getvalue()


@pytest.mark.parametrize("method", ["popularity", "ease", "itemknn", "fedgram"])
def test_a_method_without_a_loss_shows_none(method, small, capsys, tmp_path):
    fedrec.train(method, small, out=tmp_path / "run")
    err = capsys.readouterr().err
    assert f"{method} on small" in err
    assert "round 1/1, validation" in err
    assert "loss" not in err
    assert '"loss": null' in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_listeners_hear_how_evaluation_goes_on(small):
    class Ear(Listener):
        def __init__(self):
            self.heard = []

        def working(self, what, done, total):
            self.heard.append((what, done, total))

    ear = Ear()
    fedrec.train(fedrec.create("fedmf", epochs=1), small, rounds=2, listeners=[ear], progress=False)
    assert ear.heard == [
        ("training, round 1", 0, 2),
        ("evaluating clients", 40, 40),
        ("training, round 2", 1, 2),
        ("evaluating clients", 40, 40),
    ]
    ear = Ear()
    fedrec.train("random", small, listeners=[ear], progress=False)
    assert ear.heard == [("evaluating clients", 40, 40)]


def test_progress_of_an_evaluation_counts_clients(small):
    import torch

    heard, evaluator = [], Evaluator(small)
    evaluator.chunk = 15
    evaluator.evaluate(lambda clients: torch.zeros(len(clients), 60), "test", progress=heard.append)
    assert heard == [15, 30, 40]
