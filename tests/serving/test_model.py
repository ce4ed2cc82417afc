"""An exported model: nobody's data in it, loads without them, recommends the same."""

import hashlib
import json

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import save

import fedrec
from fedrec.data import ItemTable
from fedrec.data.reading import with_items
from fedrec.errors import ConfigError, FedrecError
from fedrec.serving.client_part import file_name
from fedrec.serving.export import export, export_clients
from fedrec.serving.linear import linear_form
from fedrec.serving.model import load_model
from fedrec.serving.onnx_graph import write_onnx


@pytest.fixture(scope="module")
def runs(small):
    from dataclasses import replace

    titled = replace(
        small,
        data=with_items(small.data, ItemTable({str(k): f"Item {k}" for k in range(60)}, ("kind",), {"3": ("x",)})),
    )
    rounds = {"fedslist": 1, "fedgram": 1, "ease": 1, "itemknn": 1, "fedmf": 20, "gpfedrec": 1}
    return {name: fedrec.train(name, titled, rounds=n, progress=False) for name, n in rounds.items()}


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    place = tmp_path_factory.mktemp("exported")
    for name in ("fedslist", "fedmf"):
        digest = export(runs[name], place / name)
        export_clients(runs[name], place / f"{name}-clients", digest)
    return place


@pytest.mark.parametrize("name", ["fedslist", "fedmf"])
def test_it_recommends_as_the_run_does(runs, exported, name):
    run, model = runs[name], load_model(exported / name, clients=exported / f"{name}-clients")
    assert model.recommend(history=[3, 9, 14]) == run.recommend(history=[3, 9, 14])
    for user in (0, 17, 39):
        new, known = model.recommend(user), run.recommend(user)
        assert [item for item, _ in new] == [item for item, _ in known]
        assert np.allclose([score for _, score in new], [score for _, score in known], atol=1e-5)
    assert model.similar(3) == run.similar(3)
    assert model.title(7) == "Item 7"
    assert model.about.more(3) == {"kind": "x"}
    shares = [model.popularity(item) for item in range(60)]
    assert min(shares) == 0
    assert max(shares) > 0.9


def test_reasons(runs, exported):
    model = load_model(exported / "fedslist")
    assert model.explain_history([3, 9], 4, 5) == runs["fedslist"].explain_history([3, 9], 4, 5)
    with pytest.raises(ConfigError, match="fedmf cannot say"):
        load_model(exported / "fedmf").explain_history([3], 4)


def test_nothing_of_any_user_is_in_it(runs, exported):
    split = runs["fedmf"].split
    for name in ("fedslist", "fedmf"):
        sizes = {path.name: path.stat().st_size for path in (exported / name).iterdir()}
        assert set(sizes) == {
            "model.json",
            "server.safetensors",
            "items.json",
            "titles.json",
            "items.safetensors",
            "manifest.json",
        }
        model = load_model(exported / name)
        # Nothing has an axis as long as there are users, and no private state is there.
        assert all(split.data.n_users not in value.shape for value in model.newcomers.state.values())
        assert not any(key.startswith(("clients.", "ledger.")) for key in model.newcomers.state)
    with pytest.raises(ConfigError, match="holds nothing of any user"):
        model.recommend(3)


def test_a_client_part_is_of_one_user_and_of_one_model(runs, exported, tmp_path):
    parts = exported / "fedmf-clients"
    assert len(list(parts.iterdir())) == 40
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / file_name(5)).write_bytes((parts / file_name(5)).read_bytes())
    model = load_model(exported / "fedmf", clients=tmp_path / "mine")
    assert model.recommend(5)
    with pytest.raises(FedrecError, match="no user '6' is known"):
        model.recommend(6)
    other = load_model(exported / "fedslist", clients=tmp_path / "mine")
    with pytest.raises(FedrecError, match="belongs to another model"):
        other.recommend(5)


@pytest.mark.parametrize("name", ["server.safetensors", "items.json", "model.json", "titles.json"])
def test_a_changed_file_is_noticed(exported, tmp_path, name):
    for path in (exported / "fedslist").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    data = bytearray((tmp_path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FedrecError, match="not as it was written"):
        load_model(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FedrecError, match="is missing"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("items.json", json.dumps({"format": 1, "ids": [[1]] * 60}).encode()),
        ("items.json", json.dumps({"format": 1, "ids": [1] * 60}).encode()),
        ("items.safetensors", save({"other": torch.zeros(60)})),
        ("items.safetensors", save({"counts": torch.zeros(3)})),
    ],
)
def test_a_file_that_is_whole_but_of_no_model_is_refused(exported, tmp_path, name, content):
    for path in (exported / "fedslist").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FedrecError, match="the 60 items of the model"):
        load_model(tmp_path)


def test_refusals(runs, tmp_path, exported, monkeypatch):
    with pytest.raises(FedrecError, match="gpfedrec cannot recommend to people who were not there"):
        export(runs["gpfedrec"], tmp_path / "no")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="is already there"):
        export(runs["fedmf"], exported / "fedmf")
    with pytest.raises(FedrecError, match="holds no exported model"):
        load_model(tmp_path)
    with pytest.raises(ConfigError, match="fedmf has no fixed graph"):
        export(runs["fedmf"], tmp_path / "no", onnx=True)
    assert not list(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"\. is already there"):
        export(runs["fedmf"], ".")


@pytest.mark.parametrize("name", ["fedslist", "fedgram", "ease", "itemknn"])
def test_the_graph_scores_as_the_model_does(runs, tmp_path, name):
    newcomers = runs[name].newcomers
    decay = write_onnx(newcomers, tmp_path / "model.onnx")
    form = linear_form(newcomers)
    assert form.decay == decay
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    random = np.random.default_rng(1)
    for length in (1, 2, 7, 30):
        history = torch.from_numpy(random.choice(60, length, replace=False))
        expected = newcomers.scores(history).numpy()
        (scores,) = session.run(None, {"history": form.vector(history)[None].numpy()})
        assert np.allclose(scores[0], expected, atol=1e-5)
        assert np.allclose(form.scores(history).numpy(), expected, atol=1e-5)
        items = torch.arange(9)
        parts = newcomers.contributions(history, items).numpy()
        assert np.allclose(form.contributions(history, items).numpy(), parts, atol=1e-5)
    words = session.get_modelmeta().custom_metadata_map
    assert words["method"] == name
    assert words["decay"] == ("none" if decay is None else repr(decay))


def test_information(exported):
    info = json.loads((exported / "fedslist" / "model.json").read_text())
    assert (info["method"], info["users"], info["items"], info["ordered"]) == ("fedslist", 40, 60, True)
    assert info["crossed"]["up_per_round"] > 0
    assert "fedrec" in info["versions"]
