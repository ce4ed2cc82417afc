"""``fedrec bench`` on a shape small enough for a test."""

import numpy as np
import pytest

import fedrec
from command_line import run, strict
from fedrec import bench

ROUNDS = 3


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(bench.SHAPES, "tiny", lambda: bench.synthetic(30, 150, 900))


def test_every_number_of_a_benchmark_is_there_and_fits_the_others(capsys, tiny, other_threads):
    words = (
        "bench",
        "--here",
        "--shape",
        "tiny",
        "--case",
        "fedmf",
        "--case",
        "fedgram",
        "--rounds",
        str(ROUNDS),
        "--json",
    )
    code, out, _ = run(capsys, *words, "--threads", other_threads)
    assert code == 0
    first, second = strict(out)["results"]
    assert (first["case"], second["case"]) == ("fedmf", "fedgram")
    assert (first["clients"], first["items"], first["threads"], first["device"]) == (30, 150, other_threads, "cpu")
    data = bench.synthetic(30, 150, 900)
    assert first["rows"] == len(data)
    for found in (first, second):
        assert found["clients_per_second"] == pytest.approx(30 / found["seconds_per_round"])
        assert set(found["phases"]) >= {"sampling", "training", "aggregation", "evaluation"}
        assert all(value >= 0 for value in found["phases"].values())
    # All but two of a client's rows are trained on, with 4 negatives each, in batches of 256, ten times over.
    samples = [(count - 2) * 5 for count in counts(data)]
    steps = sum(-(-rows // 256) for rows in samples) * 10
    assert first["local_steps_per_second"] == pytest.approx(steps / first["seconds_per_round"])


def counts(data):
    return [int((data.users == user).sum()) for user in range(data.n_users)]


def test_a_table_has_a_row_per_case(capsys, tiny):
    code, out, _ = run(
        capsys, "bench", "--here", "--shape", "tiny", "--case", "fedgram", "--case", "ease", "--rounds", "1"
    )
    assert code == 0
    assert all(word in out for word in ("tiny", "fedgram", "ease"))


def test_what_happens_once_has_a_table_and_a_file_is_read_by_the_command(capsys, tiny, monkeypatch):
    monkeypatch.setattr(bench, "WRITTEN", ("tiny",))
    words = ("bench", "--here", "--shape", "tiny", "--case", "ease", "--case", "split", "--rounds", "1")
    code, out, err = run(capsys, *words, "--json")
    assert code == 0
    trained, split = strict(out)["results"]
    assert "seconds_per_round" not in split
    assert set(split["once"]) == set(split["once_cpu"]) == {"data", "data stats", "split"}
    assert split["once_cpu"]["data stats"] < split["once"]["data stats"]  # spent elsewhere
    assert set(trained["once"]) == {*split["once"], "trainer", "lists"}
    data = bench.synthetic(30, 150, 900)
    size = len("user_id,item_id,rating,timestamp") + sum(
        len(f"{u},{i}") for u, i in zip(data.users, data.items, strict=True)
    )
    for found in (trained, split):
        assert (found["clients"], found["rows"]) == (30, len(data))
        assert found["once"]["data stats"] > 0.1  # a process of its own
        assert found["stats_peak_memory_mb"] > 50
        assert found["csv_mb"] * 1e6 == pytest.approx(size + len(data) * len(",1,1000000000\n"), abs=50)
    stages = [line.removeprefix("split on tiny: ") for line in err.splitlines() if line.startswith("split on tiny")]
    assert stages == ["data", "writing a CSV", "data stats", "split"]
    _, out, _ = run(capsys, *words)
    once = out[out.index("seconds, once") :]
    assert all(word in once for word in ("ease", "split", "lists", "trainer"))
    assert "split" not in out[: out.index("seconds, once")]


def test_a_file_that_cannot_be_read_ends_the_benchmark(capsys, tiny, monkeypatch):
    monkeypatch.setattr(bench, "WRITTEN", ("tiny",))
    monkeypatch.setattr(bench, "_write", lambda data, path: path.write_text("nothing"))
    code, _, err = run(capsys, "bench", "--here", "--shape", "tiny", "--case", "split")
    assert code == 2
    assert "fedrec data stats ended with exit code 2" in " ".join(err.split())


def test_cases_are_measured_in_processes_of_their_own(capsys):
    words = ("bench", "--shape", "ml-100k-shape", "--case", "ease", "--rounds", "1", "--threads", "1", "--json")
    code, out, err = run(capsys, *words)
    found = strict(out)["results"][0]
    assert code == 0
    assert (found["case"], found["clients"], found["threads"]) == ("ease", 943, 1)
    assert found["peak_memory_mb"] > 50
    said = err.splitlines()
    assert [line for line in said if line.startswith("ease on ml-100k-shape: round")] == [
        f"ease on ml-100k-shape: round {number} of 3" for number in (1, 2, 3)
    ]
    assert said[-1].startswith("ease on ml-100k-shape:")
    assert said[-1].endswith("s per round")


@pytest.mark.parametrize("shape", [(50, 200, 2000), (7, 100, 300)])
def test_synthetic_data_have_the_shape_asked_for(shape):
    clients, items, rows = shape
    data = bench.synthetic(*shape)
    assert (data.n_users, len(set(data.items.tolist()))) == (clients, items)
    assert len({*zip(data.users.tolist(), data.items.tolist(), strict=True)}) == len(data)
    assert rows * 0.8 <= len(data) <= rows * 1.2


def test_large_shapes_are_drawn_by_trial_and_look_like_exact_ones(monkeypatch):
    exact = bench.synthetic(300, 400, 9000)
    monkeypatch.setattr("fedrec.data.synthetic.EXACT", 0)
    data = bench.synthetic(300, 400, 9000)
    assert len({*zip(data.users.tolist(), data.items.tolist(), strict=True)}) == len(data)
    assert len(set(data.items.tolist())) == 400
    shares = [np.bincount(found.items, minlength=400)[:40].sum() / len(found) for found in (exact, data)]
    assert shares[0] == pytest.approx(shares[1], rel=0.1)
    assert shares[0] > 0.25


def test_shapes_that_cannot_be_made_up_are_refused():
    with pytest.raises(fedrec.ConfigError, match="no shape that can be made up"):
        bench.synthetic(10, 10, 90)
