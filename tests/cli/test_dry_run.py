"""``--dry-run`` says what a run will need and leaves nothing behind."""

from __future__ import annotations

import pytest

import fedrec
from command_line import refused, run, strict
from fedrec.running.estimate import estimate
from fedrec.running.options import RunOptions

WORDS = ("--data", "demo", "--quiet", "--device", "cpu")


@pytest.mark.parametrize(
    ("name", "options"),
    [("fedmf", {"epochs": 1}), ("fedmf", {"epochs": 1, "participation": 0.1}), ("fedem", {"epochs": 1, "dim": 4})],
)
def test_sizes_are_those_of_the_run(honest, name, options):
    method = fedrec.create(name, options, protocol="none")
    run_options = RunOptions(rounds=2, progress=False, device="cpu")
    found = estimate(method, honest, run_options)
    wanted = fedrec.train(method, honest, run_options).result
    assert found["private_bytes"] == pytest.approx(wanted.private_state_mb * 1e6, rel=0.01)
    # The second round: FedEM downloads nothing in the first one.
    assert found["bytes_up_per_round"] == pytest.approx(wanted.bytes.up_total / 2, rel=0.15)
    assert found["fits"]
    assert found["seconds"] > 0


def test_tables_in_half_precision_take_half_and_their_uploads_are_copies(honest):
    method = fedrec.create("fedem", {"epochs": 1, "dim": 16}, protocol="none")
    full, half = (
        estimate(method, honest, RunOptions(rounds=2, store=store, out="x")) for store in ("disk", "disk-half")
    )
    assert half["private_bytes"] == pytest.approx(0.55 * full["private_bytes"], rel=0.03)
    assert half["server_bytes"] == pytest.approx(2 * full["server_bytes"], rel=0.02)


def test_the_command_prints_and_writes_no_folder(capsys, tmp_path):
    folder = tmp_path / "run"
    code, out, err = run(capsys, "train", "fedmf", *WORDS, "--out", folder, "--dry-run")
    assert (code, err) == (0, "")
    assert "state of all clients" in out
    assert not folder.exists()
    code, out, _ = run(capsys, "train", "fedmf", *WORDS, "--dry-run", "--json")
    found = strict(out)
    assert (found["clients"], found["items"]) == (500, 400)


def test_what_does_not_fit_is_said(capsys, monkeypatch):
    monkeypatch.setattr("fedrec.running.estimate.available", lambda device: 1000)
    _, out, err = run(capsys, "train", "fedem", *WORDS, "--dry-run")
    assert "does not fit into memory" in err
    assert "1 kB" in out


def test_centralised_models_cannot_be_told_from_a_few_users(capsys):
    assert "ease is centralised" in refused(capsys, "train", "ease", *WORDS, "--dry-run")


def test_what_a_blend_needs_is_what_its_parts_need(capsys):
    err = refused(capsys, "train", "blend", *WORDS, "--dry-run")
    assert "blend trains other methods, and needs what they need" in err
    assert "centralised" not in err
