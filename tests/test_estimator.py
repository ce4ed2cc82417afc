"""fit, recommend, similar items: on frames and files, with all rows of all users, and as scikit-learn wants it."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fedrec
from fedrec.errors import ConfigError, DataError
from fedrec.protocol.whole import WHOLE


@pytest.fixture(scope="module")
def frame():
    """Two tastes: those who read have books, those who listen have records; everybody lacks one thing of their taste."""
    rows = []
    for user in range(24):
        kind, first = ("book", "record")[user % 2], user % 6
        rows += [(f"u{user}", f"{kind}{(first + k) % 6}", user * 10 + k) for k in range(5)]
    return pd.DataFrame(rows, columns=["customer", "sku", "at"])


COLUMNS = {"user": "customer", "item": "sku", "timestamp": "at"}


def test_what_is_missing_is_recommended_to_one_and_to_many(frame):
    model = fedrec.Recommender("ease", device="cpu").fit(frame, **COLUMNS)
    one = model.recommend("u0", k=3)
    assert one[0][0] == "book5"
    assert [score for _, score in one] == sorted((score for _, score in one), reverse=True)
    assert model.recommend(["u1", "u0"], k=3)[1] == one
    assert model.recommend(np.array(["u1", "u0"]), k=1)[0][0][0] == "record0"
    assert {item[:4] for item, _ in model.similar_items("book0", k=5)} == {"book"}
    assert "book0" not in dict(model.similar_items("book0", k=11))
    mine = frame.loc[frame["customer"] == "u0", "sku"]
    assert model.recommend_new(mine, k=3) == [(item, pytest.approx(score)) for item, score in one]
    with pytest.raises(DataError, match="no user 'nobody'"):
        model.recommend("nobody")


def test_nothing_is_held_out_and_nobody_is_left_out(frame):
    short = pd.concat([frame, pd.DataFrame([("new", "book0", 1)], columns=frame.columns)])
    model = fedrec.Recommender("popularity", device="cpu").fit(pl.from_pandas(short), **COLUMNS)
    split = model.run.split
    assert split.training.positives.counts.sum() == len(short)
    assert (len(split.validation.items.values), len(split.test.items.values)) == (0, 0)
    assert "book0" not in dict(model.recommend("new"))
    assert model.run.result.selected_on == "the last round, as nothing is held out"


def test_the_last_round_is_kept(small):
    data = WHOLE.split(small.data)
    run = fedrec.train("fedmf", data, rounds=3, progress=False, device="cpu")
    assert (run.result.selected_round, run.result.model_round) == (3, 3)
    assert fedrec.Recommender("fedmf", rounds=3, device="cpu").fit(small.data).recommend(0) == run.recommend(0)


def test_parameters_go_in_and_out_as_scikit_learn_wants_it(small):
    from sklearn.base import clone

    model = fedrec.Recommender("fedmf", rounds=1, device="cpu", lr=0.5)
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert (again.get_params()["lr"], again.get_params()["rounds"]) == (0.5, 1)
    assert again.set_params(lr=0.25, seed=3).get_params()["lr"] == 0.25
    assert model.get_params()["lr"] == 0.5
    assert again.fit(small.data).run.result.config["lr"] == 0.25
    assert again.run.result.seed == 3
    assert "lr=0.25" in repr(again)


def test_it_is_saved_and_read_back(small, tmp_path):
    model = fedrec.Recommender("fedslist", device="cpu").fit(small.data)
    model.save(tmp_path / "model")
    again = fedrec.Recommender.load(tmp_path / "model", device="cpu")
    assert again.recommend([0, 1]) == model.recommend([0, 1])
    assert again.fit(small.data).recommend(0) == model.recommend(0)


def test_a_file_is_read(frame, tmp_path):
    frame.to_csv(tmp_path / "shop.csv", index=False)
    model = fedrec.Recommender("fedgram", device="cpu").fit(tmp_path / "shop.csv", **COLUMNS)
    assert model.recommend("u0", k=1)[0][0] == "book5"


def test_mistakes_are_sentences(small):
    with pytest.raises(ConfigError, match="call fit first"):
        fedrec.Recommender().recommend(1)
    with pytest.raises(ConfigError, match="did you mean 'lr'"):
        fedrec.Recommender("fedmf", lrr=1).fit(small.data)
    with pytest.raises(ConfigError, match="neither vectors of items"):
        fedrec.Recommender("popularity", device="cpu").fit(small.data).similar_items(0)
    with pytest.raises(ConfigError, match="these interactions have theirs"):
        fedrec.Recommender().fit(small.data, user="customer")


def test_vectors_that_point_the_same_way_are_alike(small):
    """The cosine of two rows of the table, computed here by hand."""
    run = fedrec.Recommender("fedmf", rounds=2, device="cpu").fit(small.data).run
    table, own = run.trainer.state()["server.items"].double().numpy(), run.item(7)
    item, value = run.similar(7, k=1)[0]
    cosines = table @ table[own] / np.linalg.norm(table, axis=1) / np.linalg.norm(table[own])
    cosines[own] = -2
    assert run.item(item) == int(cosines.argmax())
    assert value == pytest.approx(cosines.max())
