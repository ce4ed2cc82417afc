"""What a finished run leaves behind is all it takes to read it, tells apart what is private, and is refused when changed."""

import json
import shutil
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import fedrec
from fedrec import methods
from fedrec.errors import FedrecError
from fedrec.federation.result import Result
from fedrec.methods.fedmf import FedMF
from fedrec.running.files import checksum
from fedrec.running.saved import LATER, read_result
from fedrec.running.saving import FILES
from run_folders import change

QUIET = {"progress": False, "device": "cpu"}


def rows_of(split):
    """A CSV file's rows as a shop has them: a rating of 0 for what was looked at only, some pairs twice."""
    data = split.data
    lines = [f"u{u},i{i},{1 + k % 5},{k}" for k, (u, i) in enumerate(zip(data.users, data.items, strict=True))]
    lines += [f"u{u},i{(7 * u + 3) % data.n_items},0,{u}" for u in range(data.n_users)]
    return "user,item,rating,timestamp\n" + "\n".join([*lines, *lines[:20]]) + "\n"


@pytest.fixture(scope="module")
def shop(small, tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "shop.csv"
    path.write_text(rows_of(small))
    return path


@pytest.fixture(scope="module")
def run(shop):
    split = fedrec.HONEST.with_options(min_interactions=5, candidates=20).split(fedrec.read_csv(shop), seed=0)
    folder = shop.parent / "run"
    return fedrec.train("fedmf", split, rounds=3, out=folder, source={"path": str(shop)}, **QUIET), folder


def test_a_run_is_read_without_the_data_it_was_trained_on(run, shop):
    content = shop.read_text()
    shop.unlink()
    try:
        again = fedrec.load_run(run[1])
    finally:
        shop.write_text(content)
    everybody = torch.arange(run[0].split.data.n_users)
    assert torch.equal(again.trainer.scores(everybody), run[0].trainer.scores(everybody))
    assert again.split.hash == run[0].split.hash
    assert again.recommend("u3") == run[0].recommend("u3")
    for part, evaluation in run[0].per_client.items():
        for name, values in evaluation.full.items():
            assert np.array_equal(again.per_client[part].full[name], values, equal_nan=True)


@pytest.mark.parametrize("protocol", ["HONEST", "PAPER", "PFEDREC", "HETEFEDREC"])
def test_a_split_is_read_back_as_it_was(demo, tmp_path, protocol):
    split = getattr(fedrec, protocol).split(demo, seed=3)
    fedrec.train("random", split, rounds=1, out=tmp_path / "run", **QUIET)
    again = fedrec.load_run(tmp_path / "run").split
    pairs = [
        (again.training.positives, split.training.positives),
        (again.training.excluded, split.training.excluded),
        (again.validation.items, split.validation.items),
        (again.test.items, split.test.items),
        (again.touched, split.touched),
    ]
    for found, known in pairs:
        assert np.array_equal(found.offsets, known.offsets)
        assert np.array_equal(found.values, known.values)
    for found, known in ((again.validation, split.validation), (again.test, split.test)):
        assert (found.candidates is None) == (known.candidates is None)
        assert known.candidates is None or np.array_equal(found.candidates, known.candidates)
    assert (again.data.user_ids, again.data.item_ids) == (split.data.user_ids, split.data.item_ids)
    assert (again.protocol, again.seed) == (split.protocol, 3)


def test_nobody_is_offered_what_he_has_had_whatever_became_of_it(run, shop):
    """Held-out items, items rated 0, and of course training items; everything else can come up."""
    had = {}
    for line in shop.read_text().splitlines()[1:]:
        user, item = line.split(",")[:2]
        had.setdefault(user, set()).add(item)
    for found in (run[0], fedrec.load_run(run[1])):
        data = found.split.data
        for user in data.user_ids:
            offered = [item for item, _ in found.recommend(user, data.n_items)]
            assert set(offered) == set(data.item_ids) - had[user]


def test_what_users_had_and_the_filter_dropped_is_not_offered_under_a_given_split(shop, tmp_path):
    data = fedrec.read_csv(shop)
    pairs = tmp_path / "test.csv"
    pairs.write_text(
        "user,item\n" + "\n".join(",".join(line.split(",")[:2]) for line in shop.read_text().splitlines()[1:9])
    )
    from fedrec.protocol.given import given_split

    found = fedrec.train("popularity", given_split(data, pairs), **QUIET)
    had = {line.split(",")[1] for line in shop.read_text().splitlines()[1:] if line.startswith("u5,")}
    assert not had & {item for item, _ in found.recommend("u5", 1000)}


@pytest.mark.parametrize("name", ["fedmf", "fedem", "fedncf", "fedrap", "gpfedrec", "mf", "popularity"])
def test_the_server_s_file_holds_nothing_of_the_clients(small, tmp_path, name):
    run = fedrec.train(methods.create(name), small, rounds=1, out=tmp_path / "run", **QUIET)
    server = load_file(tmp_path / "run" / "model" / "server.safetensors")
    clients = load_file(tmp_path / "run" / "private" / "clients.safetensors")
    assert not [key for key in server if key.startswith(("clients.", "ledger."))]
    assert all(key.startswith(("clients.", "ledger.")) for key in clients)
    assert {**server, **clients}.keys() == run.trainer.state().keys()
    assert all(len(value) == small.data.n_users for value in clients.values())
    public = {path.name for path in (tmp_path / "run" / "model").iterdir()}
    assert public == {"server.safetensors", "items.json"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["gone", "cut", "bit", "more"])
def test_a_file_that_is_not_as_it_was_written_is_refused(run, tmp_path, name, how):
    shutil.copytree(run[1], tmp_path / "run")
    path = tmp_path / "run" / name
    content = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[:-5])
    elif how == "bit":
        content[-7] ^= 1
        path.write_bytes(content)
    else:
        path.write_bytes(content + b" ")
    with pytest.raises(FedrecError, match=r"missing; train again|damaged or changed by hand\); train again"):
        fedrec.load_run(tmp_path / "run")


def believe(folder, name):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = checksum(folder / name)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("how", ["shape", "name", "type"])
def test_a_model_of_another_form_is_refused(run, tmp_path, how):
    shutil.copytree(run[1], tmp_path / "run")
    name = "model/server.safetensors"
    state = load_file(tmp_path / "run" / name)
    table = state.pop("server.items")
    state["server.table" if how == "name" else "server.items"] = {"shape": table[:1], "type": table.double()}.get(
        how, table
    )
    save_file(state, tmp_path / "run" / name)
    believe(tmp_path / "run", name)
    with pytest.raises(FedrecError, match=r"the model in .* does not fit its settings \(server\..*\); train again"):
        fedrec.load_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("training.items", -1),
        ("training.items", 10**6),
        ("touched.offsets", 10**6),
        ("test.candidates", -5),
        ("test.items", 0),
    ],
)
def test_lists_that_are_no_split_are_refused(run, tmp_path, name, value):
    shutil.copytree(run[1], tmp_path / "run")
    path = "private/split.safetensors"
    arrays = load_file(tmp_path / "run" / path)
    arrays[name].view(-1)[3] = value
    save_file(arrays, tmp_path / "run" / path)
    believe(tmp_path / "run", path)
    with pytest.raises(FedrecError, match=r"is not the split of this run \(.*\); train again"):
        fedrec.load_run(tmp_path / "run")


@pytest.mark.parametrize("ids", [None, [], ["i1"], [1.5, 2], ["a", 1], [["a"]], {"a": 1}])
def test_ids_that_are_none_are_refused(run, tmp_path, ids):
    shutil.copytree(run[1], tmp_path / "run")
    change(tmp_path / "run", "model/items.json", lambda known: known | {"ids": ids})
    with pytest.raises(FedrecError, match="train again"):
        fedrec.load_run(tmp_path / "run")


def test_ids_of_two_kinds_are_refused(run, tmp_path):
    shutil.copytree(run[1], tmp_path / "run")
    change(tmp_path / "run", "private/users.json", lambda known: known | {"ids": [1, *known["ids"][1:]]})
    with pytest.raises(FedrecError, match=r"users\.json is no list of ids; train again"):
        fedrec.load_run(tmp_path / "run")


@pytest.mark.parametrize("how", ["name", "length", "type"])
def test_values_of_clients_that_fit_no_metric_are_refused(run, tmp_path, how):
    shutil.copytree(run[1], tmp_path / "run")
    name = "per_client.safetensors"
    values = load_file(tmp_path / "run" / name)
    known = values.pop("test/full/hr@10")
    values["test/hr@10" if how == "name" else "test/full/hr@10"] = {
        "name": known, "length": known[:-1], "type": known.long(),
    }[how]  # fmt: skip
    save_file(values, tmp_path / "run" / name)
    believe(tmp_path / "run", name)
    with pytest.raises(FedrecError, match="does not have a value of every metric for every client; train again"):
        fedrec.load_run(tmp_path / "run")


def value_or_sentence(folder, key):
    try:
        return read_result(folder).model_dump(mode="json")[key]
    except FedrecError as error:
        return str(error)


@pytest.mark.parametrize("key", sorted(Result.model_fields))
@pytest.mark.parametrize("value", [None, "nonsense", -1, [], {"candidates": -1}])
def test_a_result_with_a_wrong_value_is_a_sentence_or_still_a_result(run, tmp_path, key, value):
    shutil.copytree(run[1], tmp_path / "run")
    change(tmp_path / "run", "result.json", lambda result: result | {key: value})
    found = value_or_sentence(tmp_path / "run", key)
    assert found == value or ("train again" in found and "\n" not in found)


@pytest.mark.parametrize("key", sorted(set(Result.model_fields) - set(LATER)))
def test_a_result_without_one_of_its_keys_is_refused(run, tmp_path, key):
    shutil.copytree(run[1], tmp_path / "run")
    change(
        tmp_path / "run", "result.json", lambda result: {name: value for name, value in result.items() if name != key}
    )
    with pytest.raises(FedrecError, match="train again"):
        read_result(tmp_path / "run")


def test_folders_of_other_versions_are_refused_in_a_sentence(run, tmp_path):
    shutil.copytree(run[1], tmp_path / "newer")
    change(tmp_path / "newer", "result.json", lambda result: result | {"format": 2})
    with pytest.raises(
        FedrecError, match=r"written by a newer version of fedrec \(format 2\); update fedrec to read it"
    ):
        fedrec.load_run(tmp_path / "newer")
    (tmp_path / "older").mkdir()
    result = {key: value for key, value in json.loads((run[1] / "result.json").read_text()).items() if key != "format"}
    (tmp_path / "older" / "result.json").write_text(json.dumps(result))
    (tmp_path / "older" / "model.safetensors").write_bytes(b"as older versions had it")
    with pytest.raises(FedrecError, match="written by an older version of fedrec"):
        fedrec.load_run(tmp_path / "older")


def test_a_run_cut_short_while_it_is_saved_is_not_finished(run, tmp_path):
    shutil.copytree(run[1], tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(FedrecError, match="holds no finished run: its training has not finished; resume it"):
        fedrec.load_run(tmp_path / "run")


def test_the_model_is_saved_before_anything_else_can_fail(small, tmp_path):
    class Late(FedMF):
        name = "late"

        def tables(self, result):
            raise RuntimeError("a table that cannot be made")

    with pytest.raises(RuntimeError, match="cannot be made"):
        fedrec.train(Late(), small, rounds=3, checkpoint_every=2, out=tmp_path / "run", **QUIET)
    saved = load_file(tmp_path / "run" / "model" / "server.safetensors")
    whole = fedrec.train(FedMF(), small, rounds=3, **QUIET)
    assert torch.equal(saved["server.items"], whole.trainer.state()["server.items"])


def test_a_source_tree_that_is_not_installed_trains_and_says_so(small, tmp_path, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("fedrec.version.version", missing)
    result = fedrec.train("popularity", small, out=tmp_path / "run", **QUIET).result
    assert result.versions["fedrec"] == "not installed"
    assert fedrec.load_run(tmp_path / "run").result == result


def test_noise_is_part_of_what_tells_configurations_apart(small):
    hashes = [
        fedrec.train("fedmf", small, rounds=1, privacy=privacy, **QUIET).result.config_hash
        for privacy in (None, fedrec.Privacy(scale=0.1), fedrec.Privacy(scale=0.2), fedrec.Privacy(scale=0.1))
    ]
    assert len(set(hashes)) == 3
    assert hashes[1] == hashes[3]
