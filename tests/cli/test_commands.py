import json
import subprocess
import sys

import pytest

from command_line import run
from fedrec.cli import main


def test_json_has_the_whole_result(capsys, tmp_path):
    code, out, err = run(capsys, "train", "popularity", "--data", "demo", "--json", "--out", str(tmp_path / "run"))
    result = json.loads(out)
    assert code == 0
    assert {
        "method", "data", "protocol", "leaks", "seed", "rounds", "selected_round", "selected_on", "config", "config_hash",
        "split_hash", "validation", "test", "final", "seconds", "clients_per_second", "bytes", "peak_memory_mb", "device",
        "versions",
    } <= set(result)  # fmt: skip
    assert {"hr@10", "ndcg@10"} <= set(result["validation"])
    assert {"hr@10", "ndcg@10", "recall@20", "ndcg@20"} == set(result["test"]["full"])
    assert {"total", "per_round"} <= set(result["seconds"])
    assert result["leaks"] is False
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    assert "round 1/1" in err


def test_the_same_seed_gives_the_same_numbers(capsys):
    results = [
        json.loads(run(capsys, "train", "popularity", "--data", "demo", "--json", "--quiet")[1]) for _ in range(2)
    ]
    for key in ("split_hash", "config_hash", "test", "final", "validation"):
        assert results[0][key] == results[1][key]


def test_leaking_protocols_are_marked_everywhere(capsys):
    code, out, err = run(capsys, "train", "popularity", "--data", "demo", "--protocol", "paper")
    assert code == 0
    assert "leaks" in out
    assert "leaks" in err
    assert (
        json.loads(run(capsys, "train", "random", "--data", "demo", "--protocol", "paper", "--json")[1])["leaks"]
        is True
    )


def test_a_round_chosen_on_test_among_some_rounds_only_says_so(capsys):
    words = ("train", "random", "--data", "demo", "--rounds", "4", "--json")
    for protocol, every, said in (("paper", 1, False), ("paper", 2, True), ("honest", 2, False)):
        _, out, err = run(capsys, *words, "--protocol", protocol, "--evaluate-every", str(every))
        assert ("--evaluate-every 2 looks at some" in err) == said
        assert ("of every 2 rounds" in json.loads(out)["selected_on"]) == (every == 2)


def test_noise_that_changes_a_rule_says_so_and_is_never_the_same_unless_asked(capsys):
    words = ("train", "fedmf", "--data", "demo", "--rounds", "1", "--ldp", "laplace", "--ldp-scale", "2", "--json")
    found = [run(capsys, *words, *more) for more in ((), (), ("--ldp-reproducible",), ("--ldp-reproducible",))]
    secret, other, first, again = (json.loads(out) for _, out, _ in found)
    assert "every row is averaged over all participants" in found[0][2]
    assert "every row is averaged over all participants" in secret["privacy"]["notes"][0]
    assert secret["privacy"]["verdict"].startswith("each client's uploads are locally differentially private")
    assert secret["final"]["test"]["full"] != other["final"]["test"]["full"]
    assert first["final"] == again["final"]
    assert first["privacy"]["verdict"].startswith("no guarantee")
    assert first["privacy"]["epsilon_total"] is None
    assert not json.loads(run(capsys, *words, "--set", "agg=uniform")[1])["privacy"]["notes"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("train", "popularty", "--data", "demo"), "did you mean 'popularity'"),
        (("train", "popularity", "--data", "dmo"), "did you mean 'demo'"),
        (("train", "popularity", "--data", "demo", "--protocol", "papr"), "did you mean 'paper'"),
        (("train", "fedmf", "--data", "demo", "--set", "epoch=3"), "did you mean 'epochs'"),
        (("train", "fedmf", "--data", "demo", "--set", "epochs"), "key=value"),
        (("train", "fedmf", "--data", "demo", "--set", "epochs=many"), "epochs"),
        (("train", "fedmf", "--data", "demo", "--device", "tpu"), "unknown device"),
        (("train", "fedmf", "--data", "no/such/file.csv"), "no/such/file.csv"),
        (("audit", "--data", "demo", "--rounds", "0"), "--rounds"),
        (("recommend", "no-such-run", "--user", "1"), "no-such-run"),
        (("show", "no-such-run"), "no-such-run"),
    ],
)
def test_mistakes_get_one_sentence_and_code_2(capsys, words, hint):
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert hint in err.replace("\n", " ")
    assert "Traceback" not in err


def test_debug_shows_the_traceback():
    command = [sys.executable, "-m", "fedrec", "train", "nothing", "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" in done.stderr


def test_lists(capsys):
    assert "ml-100k" in run(capsys, "data", "list")[1]
    assert json.loads(run(capsys, "protocols", "--json")[1])["paper"]["leaks"] is True
    sees = {row["name"]: row["sees"] for row in json.loads(run(capsys, "methods", "--json")[1])}
    assert {name for name, seen in sees.items() if "every upload" in seen} == {"fedem", "gpfedrec", "fedfast"}
    assert {name for name, seen in sees.items() if seen == "nothing"} == {"random", "local"}
    assert sees["fedmf"] == "sums only"
    assert sees["ease"] == "all data"
    assert "the server" in run(capsys, "methods")[1]
    stats = json.loads(run(capsys, "data", "stats", "demo", "--json")[1])
    assert (stats["users"], stats["items"]) == (500, 400)
    assert stats["filtered"] == {"min_interactions": 10} | stats["raw"]
    kept = json.loads(run(capsys, "data", "stats", "demo", "--min-interactions", "40", "--json")[1])["filtered"]
    assert (kept["min_interactions"], kept["min_per_user"]) == (40, 40)
    assert kept["users"] < 500


def test_audit(capsys):
    report = json.loads(run(capsys, "audit", "--data", "demo", "--rounds", "1,30", "--json")[1])
    assert report["data"] == "demo"
    assert report["protocols"]["honest"]["leaks"] is False
    assert set(report["protocols"]["paper"]["rounds"]) == {"1", "30"}
    assert "LEAKS" in run(capsys, "audit", "--data", "demo", "--protocol", "paper", "--rounds", "50")[1]


def test_recommend_explains(capsys, tmp_path):
    folder = str(tmp_path / "run")
    run(capsys, "train", "ease", "--data", "demo", "--out", folder, "--quiet")
    found = json.loads(run(capsys, "recommend", folder, "--user", "u1", "-k", "2", "--explain", "--json")[1])
    plain = json.loads(run(capsys, "recommend", folder, "--user", "u1", "-k", "2", "--json")[1])
    assert [one["item"] for one in found["items"]] == [one["item"] for one in plain["items"]]
    for one in found["items"]:
        assert len(one["because"]) == 3
        assert sum(reason["part"] for reason in one["because"]) + one["rest"] == pytest.approx(one["score"])
    reason = found["items"][0]["because"][0]
    words = run(capsys, "recommend", folder, "--user", "u1", "-k", "2", "--explain")[1]
    assert f"{reason['item']} ({reason['part']:+.3f})" in " ".join(words.split())
    run(capsys, "train", "popularity", "--data", "demo", "--out", folder + "2", "--quiet")
    code, _, err = run(capsys, "recommend", folder + "2", "--user", "u1", "--explain")
    assert (code, "popularity cannot say" in err) == (2, True)


def test_recommend_and_show(capsys, tmp_path):
    folder = str(tmp_path / "run")
    run(capsys, "train", "popularity", "--data", "demo", "--out", folder, "--quiet")
    found = json.loads(run(capsys, "recommend", folder, "--user", "u1", "-k", "5", "--json")[1])
    assert len(found["items"]) == 5
    assert "popularity" in run(capsys, "show", folder)[1]
    code, _, err = run(capsys, "recommend", folder, "--user", "nobody")
    assert code == 2
    assert "nobody" in err


def test_sizes_of_clients_are_shown(capsys):
    words = ("train", "hetefedrec", "--data", "demo", "--protocol", "hetefedrec", "--rounds", "1", "--quiet")
    shown = run(capsys, *words, "--set", "mode=direct", "--set", "sizing=interactions")[1]
    assert "mode=direct" in shown
    assert "Recall@20" in shown
    assert "sizes by interactions" in shown
    assert "HR@10" not in shown  # this protocol draws no candidates, and ranks at 20
    result = json.loads(run(capsys, *words, "--json")[1])
    groups, bytes_ = result["client_groups"], result["diagnostics"]["sizes"]
    assert [groups[size]["clients"] for size in ("8", "16", "32")] == [250, 150, 100]
    assert 0 < groups["32"]["test"]["full"]["recall@20"] < 1
    assert bytes_["8"]["bytes_up_per_visit"] < bytes_["16"]["bytes_up_per_visit"] < bytes_["32"]["bytes_up_per_visit"]


def test_an_own_file(capsys, tmp_path):
    path = tmp_path / "mine.csv"
    rows = [f"u{u},i{(u * 7 + k * 3) % 150},1,{k}" for u in range(30) for k in range(12)]
    path.write_text("user,item,rating,timestamp\n" + "\n".join(rows) + "\n")
    out = tmp_path / "run"
    code, _, err = run(capsys, "train", "popularity", "--data", str(path), "--quiet", "--out", str(out))
    assert code == 0, err
    assert json.loads(run(capsys, "recommend", str(out), "--user", "u3", "--json")[1])["items"]


def test_merging_from_the_command_line(capsys):
    short = ("--data", "demo", "--rounds", "2", "--json", "--quiet", "--set", "epochs=1")
    plugged = json.loads(run(capsys, "train", "fedmf", "--merge", "static", "--set", "rho=0.3", *short)[1])
    assert plugged["method"] == "fedmf+static"
    assert plugged["config"]["rho"] == 0.3
    own = [
        json.loads(run(capsys, "train", "fedem", *words, *short)[1])
        for words in (("--merge", "static"), ("--set", "merge=static"))
    ]
    assert own[0]["config"]["merge"] == own[1]["config"]["merge"] == "static"
    assert own[0]["test"] == own[1]["test"]
    assert "downloads no item table" in run(capsys, "train", "popularity", "--merge", "elastic", "--data", "demo")[2]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("train", "popularity", "--data", "x[/b].csv"), "x[/b].csv"),
        (("train", "fedmf", "--data", "demo", "--set", "[/red]=1"), "[/red]"),
        (("train", "fedmf", "--data", "demo", "--set", "data=y"), "unknown setting"),
        (("train", "fedmf", "--data", "demo", "--set", "merge=3"), "merge mode"),
        (("train", "fedmf", "--data", "demo", "--set", "dim=10000000"), "dim"),
        (("train", "fedmf", "--data", "demo", "--resume"), "resuming a run needs a run folder"),
        (("train", "fedmf", "--data", "demo", "--ldp-clip", "0.1"), "no effect without --ldp"),
        (("train", "fedmf", "--data", "demo", "--ldp-reproducible"), "no effect without --ldp"),
        (
            ("train", "fedmf", "--data", "demo", "--ldp", "laplace", "--set", "agg=change"),
            "set agg to uniform, size or",
        ),
        (("train", "fedfast", "--data", "demo", "--ldp", "laplace"), "set agg to uniform, size or sum"),
        (("train", "fedmf", "--data", "demo", "--ldp", "gaussian", "--ldp-delta", "7"), "--ldp-delta"),
        (("train", "fedmf", "--data", "demo", "--ldp", "laplace", "--ldp-scale", "inf"), "--ldp-scale"),
        (("train", "fedmf", "--data", "demo", "--protocol-set", "name=honest"), "unknown protocol option"),
        (("train", "fedmf", "--data", "demo", "--protocol-set", "ties"), "--protocol-set takes"),
        (("train", "fedmf", "--data", ""), "--data is empty"),
        (("quickstart", "--data", "nope"), "unknown data set"),
    ],
)
def test_more_mistakes(capsys, words, hint):
    test_mistakes_get_one_sentence_and_code_2(capsys, words, hint)


def test_folders_that_cannot_be_used(capsys, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    base = ("train", "popularity", "--data", "demo", "--quiet")
    assert run(capsys, *base, "--out", str(file / "x"))[0] == 2
    folder = tmp_path / "run"
    assert run(capsys, *base, "--out", str(folder))[0] == 0
    code, _, err = run(capsys, *base, "--out", str(folder))
    assert code == 2
    assert "already holds a run" in err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model/server.safetensors", None),
        ("model/server.safetensors", b"short"),
        ("private/clients.safetensors", None),
        ("private/split.safetensors", b"short"),
        ("private/users.json", b"{}"),
        ("model/items.json", None),
        ("manifest.json", b"[]"),
        ("per_client.safetensors", None),
        ("result.json", b"{}"),
        ("result.json", b"[]"),
        ("result.json", b"{"),
    ],
)
def test_damaged_runs_get_one_sentence(capsys, tmp_path, name, content):
    folder = tmp_path / "run"
    run(capsys, "train", "popularity", "--data", "demo", "--quiet", "--out", str(folder))
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    code, _, err = run(capsys, "recommend", str(folder), "--user", "u1")
    assert code == 2
    assert "train again" in err.replace("\n", " ")


def test_odd_users_and_own_columns(capsys, tmp_path, monkeypatch):
    path = tmp_path / "mine.csv"
    rows = [f"{u},m{(u * 7 + k * 3) % 150},{k}" for u in range(30) for k in range(12)]
    path.write_text("userId,movieId,when\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    columns = ("--user-column", "userId", "--item-column", "movieId", "--time-column", "when")
    code, _, err = run(capsys, "train", "popularity", "--data", "mine.csv", *columns, "--out", "run", "--quiet")
    assert code == 0, err
    assert (
        run(capsys, "data", "stats", "mine.csv")[2]
        == "mine.csv: columns: user 'userId', item 'movieId', time 'when'.\n"
    )
    assert json.loads(run(capsys, "data", "stats", "mine.csv", *columns, "--json")[1])["raw"]["has_timestamps"]
    assert run(capsys, "data", "get", "mine.csv", *columns)[2].startswith("mine.csv: 30 users")
    audited = run(capsys, "audit", "--data", "mine.csv", *columns, "--protocol", "honest", "--rounds", "1", "--json")
    assert list(json.loads(audited[1])["protocols"]) == ["honest"], audited[2]
    monkeypatch.chdir("/")
    assert json.loads(run(capsys, "recommend", str(tmp_path / "run"), "--user", "3", "--json")[1])["items"]
    for user in ("---5", "²", "99"):
        assert run(capsys, "recommend", str(tmp_path / "run"), "--user", user)[0] == 2


def test_tuned_settings_apply_unless_a_variant_is_chosen():
    from fedrec.methods import create

    assert create("fedem").config.agg == "mean"
    assert create("fedem", protocol="paper").config.variant == "code"
    chosen = create("fedem", variant="code")
    assert chosen.config == type(chosen)(variant="code").config
    assert create("fedmf", data="demo").config.lr == 0.03
    assert create("fedmf", lr=0.5).config.lr == 0.5


def test_version(capsys):
    main(["--version"])
    assert capsys.readouterr().out.strip() == "0.1.0"


def test_none_is_a_merge_mode_and_a_norm_and_no_value_elsewhere(capsys):
    words = ("--data", "demo", "--rounds", "1", "--json", "--quiet", "--set", "epochs=1")
    kept = json.loads(run(capsys, "train", "fedem", "--set", "merge=none", *words)[1])
    assert (kept["config"]["merge"], kept["label"]) == ("none", "fedem merge=none")
    assert json.loads(run(capsys, "train", "fedrap", "--set", "norm=none", *words)[1])["config"]["norm"] == "none"
    assert json.loads(run(capsys, "train", "fedem", "--set", "sim_snap=None", *words)[1])["config"]["sim_snap"] is None
    assert "unknown merge mode" in run(capsys, "train", "fedem", "--set", "merge=null", *words)[2]
    code, _, err = run(capsys, "train", "fedem", "--merge", "static", "--set", "merge=elastic", *words)
    assert code == 2
    assert "contradict" in err
