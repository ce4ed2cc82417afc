"""A thousand spoiled inputs: each is refused in a sentence, or means what an independent reading says it does.

No other exception, no hang, no memory without bound, and nothing accepted in silence. Everything is seeded; what the campaign
has found is kept as quick tests beside the code that was mended.
"""

import gzip
import importlib
import io
import json
import random
import shutil
import tomllib
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedrec
import independent_reading as other
from fedrec import methods
from fedrec.compute.device import resolve_device
from fedrec.data import read_csv
from fedrec.federation.trainer import Setup
from fedrec.running import checkpoint
from fedrec.running.claim import claim_of
from fedrec.running.files import checksum
from fedrec.running.folder import go_on
from fedrec.running.options import RunOptions
from fedrec.running.run_state import RunState
from fedrec.studies import study as studies
from fuzzing import NASTY, kept, outcome, spoil, spoil_value, toml

pytestmark = pytest.mark.slow

tuned = importlib.import_module("fedrec.methods.tuned")  # of that name there is a function, too

TEXTS, TABLES, STUDIES, SETTINGS, RUNS, CHECKPOINTS = 350, 200, 150, 100, 100, 100


def campaign(what, inputs, attempt, place, capsys):
    """Try so many inputs, each with randomness of its own, and show how they went."""
    counts = Counter()
    for number in range(inputs):
        try:
            counts[attempt(random.Random(f"{what} {number}"), place)] += 1
        except BaseException as error:
            error.add_note(f"{what} {number}")
            raise
    with capsys.disabled():
        print(f"\n{what}: {inputs} spoiled inputs, {dict(counts)}")


def rows_of_text(rng, wide):
    """Rows of strings as somebody may have them, some with values that need care."""
    users = rng.choice([lambda k: str(k), lambda k: f"u{k}", lambda k: f"00{k}", lambda k: f"ü {k}"])
    rated, timed = rng.random() < 0.8, rng.random() < 0.7
    rows = []
    for k in range(rng.choice([1, 3, 20, 60])):
        row = [users(k // 5), str(k * 7 % 31), str(rng.choice([1, 2.5, "3e0", 0])) if rated else ""]
        row += [str(880000000 + k * rng.choice([1, 10**9])) if timed else ""]
        row += [
            rng.choice(
                ["plain", "", "5' tall", 'said "no"', "a, b" if not wide else "a", "two\nlines" if not wide else "c"]
            )
        ]
        rows.append(row)
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        rng.choice(rows)[rng.randrange(5)] = rng.choice(NASTY)
    return rows


def make_text(rng):
    """A file's bytes, and how it is to be read."""
    delimiter = rng.choice([",", ",", ";", "\t", "::", "|", " "])
    wide, header, end = delimiter == "::", rng.random() < 0.8, rng.choice(["\n", "\n", "\r\n", "\r"])
    rows = rows_of_text(rng, wide)
    names = ["user", "item", rng.choice(["rating", "stars"]), rng.choice(["timestamp", "ts"]), "note"]
    always = rng.random() < 0.2

    def cell(value):
        needs = always or delimiter in value or set(value) & set('"\r\n')
        return '"' + value.replace('"', '""') + '"' if needs and not wide and rng.random() < 0.97 else value

    lines = [delimiter.join(map(cell, row)) for row in ([names] if header else []) + rows]
    data = (rng.choice(["", "", "\ufeff"]) + end.join(lines) + rng.choice(["", end, end + end])).encode()
    places = {"user": "user", "item": "item", "rating": "auto", "timestamp": "auto"}
    if not header or rng.random() < 0.1:
        places = {"user": 0, "item": 1, "rating": rng.choice([2, None]), "timestamp": rng.choice([3, None])}
    given = delimiter if rng.random() < 0.6 else None
    return data, {"delimiter": given, "header": header, **places}


def read_otherwise(data, delimiter, header, **places):
    try:
        return other.interactions(*other.text_table(data, delimiter, header), places)
    except (AssertionError, ValueError, ArithmeticError, IndexError):
        return None


def try_text(rng, path):
    data, options = make_text(rng)
    data = spoil(rng, data) if rng.random() < 0.85 else data
    path.write_bytes(gzip.compress(data, mtime=0) if rng.random() < 0.1 else data)
    found, sentence = outcome(read_csv, path, **options)
    if sentence is not None:
        return "refused"
    known = [options["delimiter"]] if options["delimiter"] else other.DELIMITERS
    meanings = [read_otherwise(data, **options | {"delimiter": one}) for one in known]
    assert other.plain(found) in meanings, (options, data)
    return "read as they are"


def test_texts(tmp_path, capsys):
    campaign("text", TEXTS, try_text, tmp_path / "rows.csv", capsys)


IDS = [pa.int64(), pa.int32(), pa.uint64(), pa.string(), pa.large_string(), pa.string_view(), pa.float64(), pa.date32()]
ODD_IDS = [pa.binary(), pa.bool_(), pa.list_(pa.int64()), pa.struct({"a": pa.int64()}), pa.null()]
TIMES = [pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.date32()]
USUAL = {
    "rating": [pa.float64(), pa.float32(), pa.int8(), pa.string(), pa.decimal128(30, 2)],
    "timestamp": [pa.int64(), pa.uint64(), pa.string(), pa.float64(), *TIMES],
}
ODD = {
    "rating": [pa.bool_(), pa.float16(), pa.null(), pa.list_(pa.int64())],
    "timestamp": [pa.time32("s"), pa.duration("s"), pa.null(), pa.binary()],
}


def column(rng, rows, kind):
    """A column of some type with values like those of the role, now and then others."""
    whole = [rng.randrange(5 if kind == "user" else 40) for _ in range(rows)]
    make = rng.choice(USUAL.get(kind, IDS) if rng.random() < 0.9 else ODD.get(kind, ODD_IDS))
    values = pa.array(whole, pa.int64())
    if pa.types.is_nested(make):
        values = pa.array([[k] if make == pa.list_(pa.int64()) else {"a": k} for k in whole], make)
    elif pa.types.is_null(make):
        values = pa.nulls(rows)
    elif pa.types.is_binary(make):
        values = pa.array([str(k).encode() for k in whole])
    elif pa.types.is_string(make) or pa.types.is_large_string(make) or pa.types.is_string_view(make):
        words = [rng.choice(NASTY) if rng.random() < 0.01 else str(k) for k in whole]
        values = pa.array(words, make)
        values = values.dictionary_encode() if make == pa.string() and rng.random() < 0.3 else values
    else:
        step = pa.int32() if make in (pa.date32(), pa.time32("s")) else pa.int64()
        values = values.cast(step).cast(make) if make not in (pa.float16(),) else values.cast(pa.float32()).cast(make)
    if rows and rng.random() < 0.1:
        at = rng.randrange(rows)
        values = pa.concat_arrays([values[:at], pa.nulls(1, values.type), values[at + 1 :]])
    return values


def make_table(rng):
    rows = rng.choice([0, 1, 20, 200])
    names = [name for name in other.ROLES if name in ("user", "item") or rng.random() < 0.7] + ["note"]
    rng.shuffle(names)
    return pa.table({name: column(rng, rows, name) for name in names})


def read_table_otherwise(data, **places):
    try:
        table = pq.ParquetFile(io.BytesIO(data)).read(use_threads=False)
        columns = [column_values(table[name], name) for name in table.column_names]
        return other.interactions(table.column_names, list(zip(*columns, strict=True)), places)
    except (AssertionError, ValueError, ArithmeticError, TypeError, pa.ArrowException, OSError):
        return None


def column_values(values, name):
    """Plain values; dates stand for seconds where they are times, and floats for whole numbers where they all are."""
    if name == "timestamp" and (pa.types.is_date(values.type) or pa.types.is_timestamp(values.type)):
        unit = pa.timestamp("s") if pa.types.is_date(values.type) else values.type
        return values.cast(unit).cast(pa.int64()).to_pylist()
    plain = values.to_pylist()
    if (
        name in ("user", "item")
        and pa.types.is_floating(values.type)
        and all(v is not None and v == int(v) for v in plain)
    ):
        return [int(value) for value in plain]
    return plain


def try_table(rng, path):
    """Tables of every type, whole or spoiled; a page that is not as it was written is known by its checksum."""
    sink = io.BytesIO()
    codec = rng.choice(["none", "snappy", "zstd"])
    pq.write_table(make_table(rng), sink, compression=codec, write_page_checksum=True, data_page_size=500)
    whole = sink.getvalue()
    data = spoil(rng, whole) if rng.random() < 0.6 else whole
    path.write_bytes(data)
    places = {"user": "user", "item": "item", "rating": "auto", "timestamp": "auto"}
    found, sentence = outcome(read_csv, path, **places)
    if sentence is not None:
        return "refused"
    assert other.plain(found) == read_table_otherwise(data, **places), places
    assert other.plain(found) == read_table_otherwise(whole, **places), "spoiled, and nothing was said"
    return "read as they are"


def test_tables(tmp_path, capsys):
    campaign("table", TABLES, try_table, tmp_path / "rows.parquet", capsys)


def shipped(package):
    return sorted(path for path in Path(package.__file__).parent.rglob("*.toml"))


def try_study(rng, path):
    """A study's text, spoiled in its letters or in its values; and then every method it names."""
    text = rng.choice(shipped(fedrec.studies.study)).read_text()
    if rng.random() < 0.5:
        text = spoil(rng, text.encode()).decode(errors="replace")
    else:
        values = tomllib.loads(text)
        text = toml(spoil_value(rng, values))
    path.write_text(text, encoding="utf-8", newline="")
    study, sentence = outcome(studies.find, str(path))
    if sentence is not None:
        return "refused"
    given, found = tomllib.loads(path.read_text()), study.model_dump()
    given["columns"] = [c if isinstance(c, dict) else {"value": c} for c in given["columns"]]
    assert kept(given, found), text
    assert studies.Study.model_validate(found) == study
    for row in study.rows:
        protocol, data = study.protocols[0] if study.protocols else "honest", study.data[0] if study.data else "demo"
        settings = row.settings | row.under.get(protocol, {})
        made, sentence = outcome(methods.create, row.method, settings, protocol=protocol, data=data, merge=row.merge)
        if sentence is not None:
            return "refused when its methods are made"
        assert kept({k: v for k, v in settings.items() if k != "merge"}, made.describe_config()), (
            row,
            made.describe_config(),
        )
    return "read as they are"


def try_settings(rng, path):
    """A tuned configuration, spoiled in its letters or in its values, where the package looks for it."""
    name, data = rng.choice(list(methods.BUILT_IN)), rng.choice(["", "ml-100k", "demo"])
    source = Path(tuned.__file__).parent / f"{name}.toml"
    values = tomllib.loads(source.read_text()) if source.exists() else {}
    protocol = rng.choice([*values, "honest"])
    usual = methods.find(name).Config().model_dump(mode="json", exclude_none=True) | {"rounds": 3}
    if values and rng.random() < 0.3:
        text = spoil(rng, source.read_bytes()).decode(errors="replace")
    else:
        text = toml(values | {protocol: spoil_value(rng, rng.choice([values.get(protocol, usual), usual]))})
    (path.parent / source.name).write_text(text, encoding="utf-8", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuned, "files", lambda _: path.parent)
        made, sentence = outcome(methods.create, name, protocol=protocol, data=data)
    if sentence is not None:
        return "refused"
    table = tomllib.loads((path.parent / source.name).read_bytes().decode()).get(protocol, {})
    given = {key: value for key, value in table.items() if not isinstance(value, dict)} | table.get(data, {})
    rounds = given.pop("rounds", made.rounds)
    assert kept(given, made.describe_config()), (given, made.describe_config())
    assert made.rounds == rounds
    return "read as they are"


QUIET = {"progress": False, "device": "cpu", "threads": 1}


def plain_tensors(path):
    """What is in a safetensors file, by its format: the length of a header, the header, the bytes."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    body = data[8 + size :]
    return {name: (known["shape"], body[slice(*known["data_offsets"])]) for name, known in header.items()}


def as_bytes(tensors):
    return {name: (list(value.shape), value.contiguous().numpy().tobytes()) for name, value in tensors.items()}


def damage(rng, folder):
    """One file is changed, goes, or takes another's place; says which."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    path, how = rng.choice(files), rng.random()
    if how < 0.7:
        path.write_bytes(spoil(rng, path.read_bytes()))
    elif how < 0.8:
        path.unlink()
    elif how < 0.9:
        path.write_bytes(rng.choice(files).read_bytes())
    else:
        path.unlink()
        path.mkdir()
    return path.relative_to(folder).as_posix()


def spoil_json(rng, path):
    path.write_text(json.dumps(spoil_value(rng, json.loads(path.read_text()))))


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    """A finished run with names for its users, and the folder it is in."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return fedrec.train(methods.create("fedmf", epochs=1), small, rounds=3, out=folder, **QUIET), folder


def try_run(rng, place, whole):
    """A folder that is damaged, or whose files were changed by somebody who knows how they are checked."""
    run, source = whole
    folder = place / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    forged = rng.random() < 0.5
    if forged:
        manifest = json.loads((folder / "manifest.json").read_text())
        name = rng.choice(sorted(manifest["files"]))
        if name.endswith(".json"):
            spoil_json(rng, folder / name)
        else:
            (folder / name).write_bytes(spoil(rng, (folder / name).read_bytes()))
        manifest["files"][name] = checksum(folder / name)
        (folder / "manifest.json").write_text(json.dumps(manifest))
    else:
        name = damage(rng, folder)
    found, sentence = outcome(fedrec.load_run, folder)
    if sentence is not None:
        return "refused"
    if not forged:
        assert found.result == run.result, name
        assert as_bytes(found.trainer.state()) == as_bytes(run.trainer.state()), name
    assert found.result.model_dump(mode="json") == json.loads((folder / "result.json").read_text()), name
    parts = ("model/server.safetensors", "private/clients.safetensors")
    assert as_bytes(found.trainer.state()) == plain_tensors(folder / parts[0]) | plain_tensors(folder / parts[1]), name
    assert list(found.split.data.user_ids) == json.loads((folder / "private/users.json").read_text())["ids"], name
    offered, sentence = outcome(found.recommend, found.split.data.user_ids[3])
    assert sentence is not None or len(offered) == 10, name
    return "read as they are"


class Cut(fedrec.Listener):
    def round(self, line):
        if line["round"] == 5:
            raise KeyboardInterrupt


def resumable(split, folder, **options):
    return fedrec.train(
        methods.create("fedmf", epochs=1), split, rounds=6, checkpoint_every=2, out=folder, **QUIET, **options
    )


@pytest.fixture(scope="module")
def cut(small, tmp_path_factory):
    """The folder of a run that was cut short with two checkpoints, and what it comes to if it goes on."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    with pytest.raises(KeyboardInterrupt):
        resumable(small, folder, listeners=[Cut()])
    return small, folder, resumable(small, folder.with_name("whole"))


def forge(rng, folder):
    """A checkpoint changed by somebody who knows how it is checked."""
    place = checkpoint.newest(folder / "checkpoints")
    note = place / "checkpoint.json"
    content = json.loads(note.read_text())
    if rng.random() < 0.6:
        content["record"] = spoil_value(rng, content["record"])
    else:
        name = rng.choice(sorted(content["files"]))
        (place / name).write_bytes(spoil(rng, (place / name).read_bytes()))
        content["files"][name] = checksum(place / name)
    content["checksum"] = checkpoint.checksum_of({key: content[key] for key in ("files", "record")})
    note.write_text(json.dumps(content))
    return place


def continued(split, folder):
    """The state a run goes on from."""
    method = methods.create("fedmf", epochs=1)
    options = RunOptions(rounds=6, checkpoint_every=2, out=folder, resume=True, **QUIET)
    trainer = method.trainer(split.training, Setup(0, resolve_device("cpu")))
    state = RunState.fresh(claim_of(method, split, options, None), trainer, split, resolve_device("cpu"))
    go_on(state, folder, 6)
    return state


def try_checkpoint(rng, place, cut):
    """A damaged folder of a run that was cut short gives the result of a whole one; a forged one holds what it says."""
    split, source, run = cut
    folder = place / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    forged = rng.random() < 0.5
    changed = forge(rng, folder) if forged else damage(rng, folder)
    if forged:
        state, sentence = outcome(continued, split, folder)
        if sentence is None:
            saved, note = state.checkpoint(), json.loads((changed / "checkpoint.json").read_text())
            assert saved.record | {"claim": note["record"]["claim"]} == note["record"], (
                changed
            )  # whose claim is compared
            for name, tensors in saved.tensors.items():
                assert as_bytes(tensors) == plain_tensors(changed / f"{name}.safetensors"), changed
    found, sentence = outcome(resumable, split, folder, resume=True)
    if sentence is not None:
        return "refused"
    if forged:
        return "gone on with as they are"
    assert found.result.final == run.result.final, changed
    assert found.result.bytes == run.result.bytes, changed
    assert as_bytes(found.trainer.state()) == as_bytes(run.trainer.state()), changed
    return "gone on with to the same result"


def test_studies(tmp_path, capsys):
    campaign("study", STUDIES, try_study, tmp_path / "study.toml", capsys)


def test_settings(tmp_path, capsys):
    campaign("settings", SETTINGS, try_settings, tmp_path / "tuned.toml", capsys)


def test_runs(tmp_path, capsys, whole):
    campaign("run", RUNS, lambda rng, place: try_run(rng, place, whole), tmp_path, capsys)


def test_checkpoints(tmp_path, capsys, cut):
    campaign("checkpoint", CHECKPOINTS, lambda rng, place: try_checkpoint(rng, place, cut), tmp_path, capsys)
