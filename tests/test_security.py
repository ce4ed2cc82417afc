"""Nothing that is read can run code: no way to load a pickle in the source, and planted ones leave no trace."""

import ast
import gzip
import io
import json
import os
import pickle
import shutil
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import fedrec
from fedrec.errors import FedrecError
from fedrec.methods.fedmf import FedMF

SOURCE = Path(fedrec.__file__).parent

MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "pickletools"}
CALLS = {
    "eval", "exec", "compile", "__import__",
    "torch.load", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter",
    "np.load", "numpy.load", "np.fromregex", "pd.read_pickle", "pandas.read_pickle", "pa.deserialize",
    "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput",
    "shutil.unpack_archive", "tarfile.open",
}  # fmt: skip
METHODS = {"extractall", "read_pickle", "unpack_archive"}


def dangers(source):
    """What in a piece of code could run what it reads."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found += [module] * (module.split(".")[0] in MODULES)
            found += [f"{module}.{alias.name}" for alias in node.names if f"{module}.{alias.name}" in CALLS]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            found += [name] * (name in CALLS or name.rsplit(".")[-1] in METHODS)
            allowed = [key for key in node.keywords if key.arg in ("shell", "allow_pickle")]
            found += [
                f"{key.arg}=" for key in allowed if not (isinstance(key.value, ast.Constant) and not key.value.value)
            ]
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_file_can_load_a_pickle_or_run_what_it_reads(path):
    assert dangers(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle", "import yaml.loader", "from joblib import load", "from marshal import loads",
        "from torch import load", "torch.load(path)", "torch.load(path, weights_only=True)", "np.load(path)",
        "from numpy import load", "eval(text)", "exec(text)", "__import__(name)", "os.system(line)",
        "subprocess.run(line, shell=True)", "subprocess.run(line, shell=wanted)",
        "np.lib.format.read_array(file, allow_pickle=True)", "zipfile.ZipFile(path).extractall(folder)",
        "pandas.read_pickle(path)",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(line):
    assert dangers(line)


def test_the_search_lets_harmless_lines_pass():
    harmless = "import json\nre.compile(text)\nmodel.eval()\nsubprocess.run([name], shell=False)\njson.load(file)\n"
    assert dangers(harmless) == []


class Bomb:
    """Leaves a folder behind when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def as_pickle(bomb):
    return pickle.dumps(bomb)


def as_torch_file(bomb):
    file = io.BytesIO()
    torch.save({"table": bomb}, file)
    return file.getvalue()


def as_npz(bomb):
    file = io.BytesIO()
    np.savez(file, user=np.array([bomb], dtype=object))
    return file.getvalue()


def as_npy(bomb):
    file = io.BytesIO()
    np.save(file, np.array([bomb], dtype=object))
    return file.getvalue()


FORMATS = [as_pickle, as_torch_file, as_npz, as_npy]


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "trace"


def load_carelessly(form, content):
    file = io.BytesIO(content)
    if form is as_pickle:
        pickle.load(file)
    elif form is as_torch_file:
        torch.load(file, weights_only=False)
    else:
        loaded = np.load(file, allow_pickle=True)
        if form is as_npz:
            loaded["user"]


@pytest.mark.parametrize("form", FORMATS)
def test_the_bombs_go_off_where_a_pickle_is_loaded(form, trace):
    load_carelessly(form, form(Bomb(trace)))
    assert trace.exists()


@pytest.fixture(scope="module")
def finished(small, tmp_path_factory):
    """A finished run, and the same run as it was after two of its three rounds."""
    folder = tmp_path_factory.mktemp("run")

    class Snapshot(fedrec.Listener):
        def checkpoint(self, done):
            if done == 2:
                shutil.copytree(folder / "whole", folder / "half")

    fedrec.train(FedMF(), small, rounds=3, checkpoint_every=2, out=folder / "whole", listeners=[Snapshot()])
    return folder / "whole", folder / "half"


def test_the_runs_are_read_where_nothing_is_planted(finished, small, tmp_path):
    assert fedrec.load_run(finished[0]).result.rounds == 3
    shutil.copytree(finished[1], tmp_path / "run")
    lines = []

    class Count(fedrec.Listener):
        def round(self, line):
            lines.append(line["round"])

    resumed = tmp_path / "run"
    fedrec.train(FedMF(), small, rounds=3, checkpoint_every=2, out=resumed, resume=True, listeners=[Count()])
    assert lines == [3]


@pytest.mark.parametrize("form", FORMATS)
def test_a_pickle_in_place_of_any_file_of_a_finished_run_is_refused(finished, small, tmp_path, trace, form):
    names = sorted(path.relative_to(finished[0]) for path in finished[0].rglob("*.safetensors"))
    assert Path("model/server.safetensors") in names
    for number, name in enumerate([*names, Path("result.json")]):
        target = tmp_path / str(number)
        shutil.copytree(finished[0], target)
        (target / name).write_bytes(form(Bomb(trace)))
        if name.parts[0] != "checkpoints":  # a finished run is not read from its checkpoints
            with pytest.raises(FedrecError) as caught:
                fedrec.load_run(target)
            assert "\n" not in str(caught.value)
        assert not trace.exists()


def resume(folder, split):
    with suppress(FedrecError):  # passed over or refused, as long as nothing runs
        fedrec.train(FedMF(), split, rounds=3, checkpoint_every=2, out=folder, resume=True)


@pytest.mark.parametrize("form", FORMATS)
def test_pickles_in_place_of_checkpoints_leave_no_trace(finished, small, tmp_path, trace, form):
    shutil.copytree(finished[1], tmp_path / "run")
    files = [path for path in (tmp_path / "run" / "checkpoints").rglob("*") if path.is_file()]
    assert len(files) > 1
    for path in files:
        path.write_bytes(form(Bomb(trace)))
    resume(tmp_path / "run", small)
    assert not trace.exists()


@pytest.mark.parametrize("form", FORMATS)
def test_a_pickle_with_a_right_checksum_leaves_no_trace_either(finished, small, tmp_path, trace, form):
    shutil.copytree(finished[1], tmp_path / "run")
    content = form(Bomb(trace))
    for note in tmp_path.rglob("checkpoint.json"):
        known = json.loads(note.read_text())
        for name in known["files"]:
            (note.parent / name).write_bytes(content)
            known["files"][name] = [len(content), zlib.crc32(content)]
        note.write_text(json.dumps(known))
    resume(tmp_path / "run", small)
    assert not trace.exists()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz", ".npz", ".pkl"])
def test_a_pickle_in_place_of_data_is_refused(tmp_path, trace, form, suffix):
    content = form(Bomb(trace))
    path = tmp_path / f"data{suffix}"
    path.write_bytes(gzip.compress(content) if suffix == ".csv.gz" else content)
    with pytest.raises(FedrecError) as caught:
        fedrec.read_csv(path)
    assert "\n" not in str(caught.value)
    assert not trace.exists()


def test_a_pickle_in_the_metadata_of_a_parquet_file_stays_there(tmp_path, trace):
    bomb = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(Bomb(trace))}
    users = pa.field("user", pa.int64(), metadata=bomb)
    table = pa.table([list(range(4)), list(range(4))], schema=pa.schema([users, pa.field("item", pa.int64())]))
    pq.write_table(table, tmp_path / "data.parquet")
    assert len(fedrec.read_csv(tmp_path / "data.parquet")) == 4
    assert not trace.exists()
