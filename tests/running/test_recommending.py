"""Recommendations for many users and for somebody new."""

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import fedrec
from fedrec.errors import ConfigError, DataError, FedrecError
from fedrec.running.list_files import write_lists


@pytest.fixture(scope="module")
def trained(small):
    return {name: fedrec.train(name, small, rounds=n, progress=False) for name, n in (("fedslist", 1), ("fedmf", 30))}


def written(path, run, **options):
    write_lists(path, run.lists(**options), run.split.data.user_ids, run.split.data.item_ids)
    table = pq.read_table(path) if path.suffix == ".parquet" else pacsv.read_csv(path)
    return table.to_pylist()


@pytest.mark.parametrize("name", ["recs.csv", "recs.parquet"])
@pytest.mark.parametrize("method", ["fedslist", "fedmf"])
def test_a_file_holds_what_every_user_is_recommended(tmp_path, trained, method, name, monkeypatch):
    run = trained[method]
    monkeypatch.setattr("fedrec.running.recommending.AT_ONCE", 7 * run.split.data.n_items)  # some users at a time
    rows = written(tmp_path / name, run, k=5)
    assert len(rows) == 5 * run.split.data.n_users
    for user in (0, 6, 7, 39):
        own = [row for row in rows if row["user"] == user]
        expected = run.recommend(user, 5)
        assert [row["rank"] for row in own] == [1, 2, 3, 4, 5]
        assert [row["item"] for row in own] == [item for item, _ in expected]
        assert np.allclose([row["score"] for row in own], [score for _, score in expected])
        assert not {row["item"] for row in own} & {run.split.data.item_ids[i] for i in run.split.touched[user]}


def test_some_users_and_some_items(tmp_path, trained):
    run = trained["fedslist"]
    rows = written(tmp_path / "r.csv", run, users=[5, "3"], k=60, only=range(20, 40), without=[25])
    assert list(dict.fromkeys(row["user"] for row in rows)) == [5, 3]
    assert {row["item"] for row in rows} <= set(range(20, 40)) - {25}
    assert {item for item, _ in run.recommend(5, 60, only=range(20, 40), without=[25])} == {
        row["item"] for row in rows if row["user"] == 5
    }


def test_nothing_is_left_of_a_file_that_was_not_finished(tmp_path, trained):
    with pytest.raises(DataError, match="no user 'nobody'"):
        written(tmp_path / "r.csv", trained["fedslist"], users=[1, "nobody"])
    with pytest.raises(ConfigError, match=r"\.csv or \.parquet"):
        write_lists(tmp_path / "r.xlsx", (), [1], [1])
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_is_stopped_leaves_nothing_behind(tmp_path, trained):
    ids = trained["fedslist"].split.data

    def stopped():
        yield from trained["fedslist"].lists(k=3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_lists(tmp_path / "r.csv", stopped(), ids.user_ids, ids.item_ids)
    assert list(tmp_path.iterdir()) == []


def own_history(run, user):
    return [run.split.data.item_ids[i] for i in run.split.training.own_list(user)]


def test_an_item_model_recommends_to_a_history_what_it_does_to_whoever_has_it(trained):
    run = trained["fedslist"]
    for user in range(5):
        held = {run.split.data.item_ids[i] for i in run.split.touched[user]} - set(own_history(run, user))
        new, known = run.recommend(history=own_history(run, user), without=held), run.recommend(user)
        assert [item for item, _ in new] == [item for item, _ in known]
        assert np.allclose([score for _, score in new], [score for _, score in known])


def test_private_state_is_trained_against_a_server_that_does_not_change(trained):
    run = trained["fedmf"]
    before = {name: value.clone() for name, value in run.trainer.state().items()}
    shared = []
    for user in range(10):
        held = {run.split.data.item_ids[i] for i in run.split.touched[user]} - set(own_history(run, user))
        new = run.recommend(history=own_history(run, user), without=held)
        shared.append(len({item for item, _ in new} & {item for item, _ in run.recommend(user)}))
        assert new == run.recommend(history=own_history(run, user), without=held)  # the same each time
    assert np.mean(shared) > 5  # of ten; by chance it is two
    assert all(np.array_equal(value, before[name]) for name, value in run.trainer.state().items())


@pytest.mark.parametrize("method", ["gpfedrec", "hetefedrec", "lightgcn"])
def test_methods_that_cannot_say_so(small, method):
    run = fedrec.train(method, small, rounds=1, progress=False)
    with pytest.raises(FedrecError, match=f"{method} cannot recommend to people who were not there in training: it"):
        run.recommend(history=[1, 2])


def test_histories(trained):
    run = trained["fedslist"]
    assert run.recommend(history=[1, 2, 1]) == run.recommend(history=["2", "1"])
    assert len(run.recommend(history=[], k=3)) == 3
    with pytest.raises(DataError, match="no item '99'"):
        run.recommend(history=[99])
    with pytest.raises(ConfigError, match="give one of them"):
        run.recommend(1, history=[1])
    with pytest.raises(ConfigError, match="give one of them"):
        run.recommend()
    reason = run.explain_history([1, 2], run.recommend(history=[1, 2])[0][0])[0]
    assert {one.item for one in reason.reasons} <= {1, 2}
