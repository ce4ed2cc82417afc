import pytest

from fedrec.methods import BUILT_IN, create, find
from fedrec.methods.tuned import tuned
from fedrec.studies.study import find as find_study

FEDERATED = ["fedmf", "fedncf", "fedfast", "pfedrec", "colr", "gpfedrec", "fedrap", "fedcia", "fedem"]


@pytest.mark.parametrize("name", FEDERATED)
def test_the_federated_rows_of_the_papers_table_have_settings_at_its_size_and_rounds(name):
    assert tuned(name, "paper")
    made = create(name, protocol="paper", data="ml-100k")
    assert (made.config.dim, made.rounds) == (16, 100)


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("protocol", ["honest", "paper", "pfedrec", "hetefedrec"])
@pytest.mark.parametrize("data", ["ml-100k", "ml-1m", "demo"])
def test_every_tuned_setting_is_one_the_method_has(name, protocol, data):
    made = create(name, protocol=protocol, data=data)
    known = tuned(name, protocol, data)
    assert known.pop("rounds", made.rounds) == made.rounds
    kind = find(name)
    assert kind.configure(kind.completed(known, protocol, data)) == made.config


@pytest.mark.parametrize(
    ("one", "other"), [("fedgram", "ease"), ("fedslist", "slist"), ("fedsasrec", "sasrec"), ("fedgains", "fedslist")]
)
@pytest.mark.parametrize("data", find_study("leaderboard").data)
def test_methods_that_share_a_model_have_the_same_settings_of_it(one, other, data):
    assert tuned(one, "honest", data) == tuned(other, "honest", data)


def test_colr_and_fedfast_are_what_their_authors_state_for_the_papers_table():
    colr, fedfast = (create(name, protocol="paper").config for name in ("colr", "fedfast"))
    assert (colr.rank, colr.lr, colr.epochs, colr.l2, colr.init_std**2) == (4, 0.5, 2, 5e-4, 1 / colr.dim)
    fedmf = create("fedmf", protocol="paper").config
    assert (fedfast.participation, fedfast.clusters) == (0.1, 20)
    for name in ("lr", "epochs", "init_std", "optimizer", "batch_size"):
        assert getattr(fedfast, name) == getattr(fedmf, name)
