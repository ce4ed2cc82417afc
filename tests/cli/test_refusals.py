"""Bad input gets one sentence and exit code 2, and nonsense is not accepted."""

import os
import subprocess
import sys

import pytest

from command_line import refused, run, strict
from fedrec import bench

LONG = "a" * 5000
TRAIN = ("train", "fedmf", "--data", "demo", "--rounds", "1", "--quiet")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--device", "cpu:abc"), "unknown device 'cpu:abc'"),
        (("--device", "cpu:7"), "unknown device 'cpu:7'"),
        (("--device", "cuda:x"), "unknown device"),
        (("--threads", "100000"), "100,000 CPU threads are asked for"),
        (("--threads", "20000"), "use 1 to "),
        (("--set", "batch_size=99999999999999999999999"), "batch_size"),
        (("--set", "lr=true"), "lr"),
        (("--set", "dim=true"), "dim"),
        (("--set", "lr=1e999"), "finite"),
        (("--merge", "elastic", "--set", "adapter_lr=1e999"), "finite"),
        (("--set", "lr=-Infinity"), "lr"),
        (("--out", ""), "a path is empty"),
        (("--split-file", ""), "a path is empty"),
        (("--data-dir", ""), "a path is empty"),
        (("--user-column", "who"), "--user-column is for files of your own"),
        (("--time-column", "when"), "--time-column is for files of your own"),
        (("--seed", "-1"), "--seed is -1"),
        (("--seed", str(2**63)), "--seed is"),
        (("--split-file", "x.csv", "--protocol", "paper"), "leave one out"),
        (("--split-file", "x.csv", "--protocol", "honest"), "leave one out"),
        (("--out", "/proc/nowhere"), "/proc/nowhere cannot be made"),
        (("--ldp", "laplace", "--ldp-scale", "nan"), "--ldp-scale"),
        (("--protocol", ""), "unknown protocol ''"),
        (("--set", "dim=3", "--set", "dim=4"), "--set gives dim twice"),
        (("--protocol-set", "metrics=hr@5"), "written as a list"),
        (("--protocol-set", "select_metric=foo@3"), "protocol: select_metric 'foo@3' is not among"),
        (("--protocol-set", 'metrics=["hr@1e9"]'), "unknown metric"),
        (("--protocol-set", 'full_metrics=["ndcg@10","hr@99999999999999999999"]'), "use a smaller k"),
        (("--merge", "elastic", "--set", "adapter_hidden=[999999999999]"), "adapter_hidden[0]"),
    ],
)
def test_options_of_a_run(capsys, words, hint):
    assert hint in refused(capsys, *TRAIN, *words)


@pytest.mark.parametrize(
    "words",
    [
        ("train", "fedmf", "--data", LONG),
        ("train", "fedmf", "--data", "a/" * 2500),
        (*TRAIN, "--out", LONG),
        (*TRAIN, "--out", LONG, "--resume"),
        (*TRAIN, "--split-file", LONG),
        ("train", "fedmf", "--data", "ml-100k", "--data-dir", LONG),
        ("recommend", LONG, "--user", "1"),
        ("data", "stats", LONG),
    ],
)
def test_names_longer_than_a_file_can_have(capsys, words):
    assert "name too long" in refused(capsys, *words)


@pytest.mark.parametrize(
    ("method", "setting"),
    [("gpfedrec", "hidden=[0]"), ("fedncf", "tower=[0]"), ("ncf", "tower=[-1]"), ("hetefedrec", "hidden=[0]")],
)
def test_layers_without_width(capsys, method, setting):
    assert "greater than or equal to 1" in refused(capsys, "train", method, "--data", "demo", "--set", setting)


def test_a_method_without_settings(capsys):
    assert "'dim'; there are none" in refused(capsys, "train", "popularity", "--data", "demo", "--set", "dim=3")


def test_what_does_not_fit_into_memory(capsys):
    words = ("train", "ials", "--data", "demo", "--rounds", "1", "--set", "dim=1000000000000", "--quiet")
    assert "not enough memory" in refused(capsys, *words)


def test_a_list_longer_than_the_catalogue(capsys, tmp_path):
    run(capsys, "train", "popularity", "--data", "demo", "--quiet", "--out", tmp_path / "run")
    for k in (1000, 99999999999999999999):
        code, out, _ = run(capsys, "recommend", tmp_path / "run", "--user", "u1", "-k", k, "--json")
        assert code == 0
        assert 0 < len(strict(out)["items"]) < 400


@pytest.mark.parametrize(
    "words",
    [("tune", "fedmf", "--data", "demo"), ("reproduce",), ("report", "x"), ("plot", "x"), ("compare", "a", "b")],
)
def test_an_empty_path_is_not_the_folder_one_is_in(capsys, words):
    assert "a path is empty" in refused(capsys, *words, "--out", "")


def test_a_folder_below_a_file(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "file/run cannot be made (Not a directory)" in refused(capsys, *TRAIN, "--out", tmp_path / "file" / "run")


def test_the_folder_one_is_in_is_used_only_by_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(capsys, *TRAIN, "--out", "")
    assert not list(tmp_path.iterdir())
    assert run(capsys, *TRAIN, "--out", ".")[0] == 0
    assert (tmp_path / "result.json").exists()


@pytest.mark.parametrize(
    "words", [("protocols", "--json"), ("data", "list"), ("--version",), ("show", "--help"), ("protocols",)]
)
def test_a_full_disk_under_the_output(words):
    command = [sys.executable, "-m", "fedrec", *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the output cannot be written (No space left on device)")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_has_had_enough():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "fedrec", "protocols", "--json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("scale", ["1e-320", "1e-308"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_no_noise_to_speak_of_is_no_guarantee_and_json_knows_no_infinity(capsys, tmp_path, mechanism, scale):
    out = tmp_path / "run"
    words = (*TRAIN, "--json", "--out", out, "--ldp", mechanism, "--ldp-scale", scale, "--ldp-clip", "1000")
    code, text, err = run(capsys, *words)
    assert code == 0, err
    privacy = strict(text)["privacy"]
    assert privacy["epsilon_total"] is None
    assert privacy["verdict"].startswith("no guarantee")
    assert strict((out / "result.json").read_text()) == strict(text)
    assert strict(run(capsys, "show", out, "--json")[1]) == strict(text)


def test_what_a_method_says_of_itself_is_json_too():
    from fedrec.federation.result import Result

    field = Result.model_fields["diagnostics"]
    (clean,) = (rule.func for rule in field.metadata)
    assert clean({"a": float("inf"), "b": [float("nan"), 1.5, {"c": -float("inf")}]}) == {
        "a": None,
        "b": [None, 1.5, {"c": None}],
    }


def test_benchmarks_that_do_not_exist(capsys):
    assert "did you mean 'fedmf'" in refused(capsys, "bench", "--shape", "ml-100k", "--case", "fedmff")
    assert "unknown benchmark case 'nope'" in refused(capsys, "bench", "--shape", "ml-100k", "--case", "nope")
    assert "unknown benchmark shape" in refused(capsys, "bench", "--shape", "ml-100")
    assert "unknown device" in refused(capsys, "bench", "--shape", "ml-100k", "--device", "tpu")
    assert "CPU threads" in refused(capsys, "bench", "--shape", "ml-100k", "--threads", "100000")


def test_a_benchmark_that_fails_says_why(capsys, tmp_path, monkeypatch):
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    (folder / "ratings.csv.gz").write_text("no archive")
    monkeypatch.setenv("FEDREC_DATA", str(tmp_path))
    code, out, err = run(capsys, "bench", "--shape", "ml-100k", "--case", "fedgram", "--rounds", "1")
    assert code == 2
    assert "failed" in out
    assert "not a gzip file" in err
    assert "not here" not in out + err


def test_only_data_that_are_not_here_are_left_out(capsys, monkeypatch):
    from fedrec.errors import AbsentError

    def absent():
        raise AbsentError("it is not on this machine")

    monkeypatch.setitem(bench.SHAPES, "ml-100k", absent)
    code, out, _ = run(capsys, "bench", "--shape", "ml-100k", "--case", "fedgram", "--json")
    assert code == 0
    assert strict(out)["results"] == [{"case": "fedgram", "shape": "ml-100k", "skipped": "the data set is not here"}]


def test_quickstart_takes_other_data_only_where_there_are_none(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDREC_DATA", str(tmp_path / "nowhere"))
    assert "does not exist" in refused(capsys, "quickstart", "--rounds", "1")


def to_full_disk(stream, *words):
    command = [sys.executable, "-m", "fedrec", *map(str, words)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with open("/dev/full", "w") as full:
        return subprocess.run(command, **streams | {stream: full}, text=True, check=False, timeout=200)


def test_no_run_is_lost_to_a_full_disk_under_what_it_says(capsys, tmp_path):
    words = ("train", "popularity", "--data", "demo", "--json", "--out")
    failed = to_full_disk("stdout", *words, tmp_path / "one")
    assert failed.returncode == 2
    assert "what was trained with --out is saved" in failed.stderr
    saved = strict(run(capsys, "show", tmp_path / "one", "--json")[1])
    silent = to_full_disk("stderr", *words, tmp_path / "two")
    assert silent.returncode == 0
    assert strict(silent.stdout)["test"] == saved["test"]
