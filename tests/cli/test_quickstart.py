"""``fedrec quickstart``: every method under both protocols, a table, and a list for a user."""

from command_line import run
from fedrec.cli import quickstart
from fedrec.federation.result import Result


def test_it_trains_everything_under_both_protocols_and_recommends(capsys, monkeypatch):
    shown = []
    monkeypatch.setattr(quickstart, "print_results", shown.extend)
    code, out, _ = run(capsys, "quickstart", "--data", "demo", "--rounds", "2", "--seed", "3")
    assert code == 0
    assert all(isinstance(result, Result) for result in shown)
    assert [(result.protocol, result.method) for result in shown] == [
        (protocol, name) for protocol in ("honest", "paper") for name, _ in quickstart.RUNS
    ]
    assert {result.rounds for result in shown if result.method not in ("popularity", "fedslist")} == {2}
    assert {result.seed for result in shown} == {result.split_seed for result in shown} == {3}
    assert [result.leaks for result in shown] == [False] * 5 + [True] * 5
    settings = {(result.protocol, result.method): result.config for result in shown}
    assert settings["paper", "fedem"]["variant"] == "code"
    assert settings["honest", "fedem"]["variant"] != "code"
    assert "fedslist recommends to user" in " ".join(out.split())
    assert "leaks" in out


def test_its_table_names_every_method(capsys):
    code, out, _ = run(capsys, "quickstart", "--data", "demo", "--rounds", "1")
    assert code == 0
    assert all(name in out for name, _ in quickstart.RUNS)
    last = [
        line.strip().partition("#")[0].strip()
        for line in out.split("Three commands to try next:")[1].strip().splitlines()
    ]
    assert [line.split()[1] for line in last] == ["train", "recommend", "export"]
    assert "--data demo" in last[0]
