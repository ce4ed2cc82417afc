"""The attack of a curious server: plain uploads tell nearly everything, sums and noise nothing of one user."""

import pytest
import torch

from fedrec.errors import ConfigError
from fedrec.methods import create
from fedrec.secure.curious import VIEWS, curious, suspicion


def attacked(honest, name, **options):
    return {one.view: one for one in curious(create(name, options), honest, clients=120, epsilon=1.0)}


@pytest.mark.parametrize(("name", "precision"), [("fedmf", 0.98), ("popularity", 1.0), ("colr", 0.95)])
def test_plain_uploads_tell_what_users_have_and_sums_or_noise_do_not(honest, name, precision):
    found = attacked(honest, name)
    assert set(found) == set(VIEWS)
    assert found["plain uploads"].precision >= precision
    for view in VIEWS[1:]:  # a guess is as right about anybody else
        assert abs(found[view].precision - found[view].of_others) < 0.03, view
    noisy = found["noise on each upload"]
    assert abs(noisy.precision - noisy.chance) < 0.03
    assert found["plain uploads"].of_others < 0.25
    if name == "colr":  # noise also hides what is popular
        assert found["secure sum with noise"].precision < found["secure sum"].precision


def test_a_server_that_needs_every_upload_has_no_secure_sum(honest):
    found = attacked(honest, "gpfedrec")
    assert set(found) == {"plain uploads", "noise on each upload"}
    assert found["plain uploads"].precision > 0.9


def test_counts_of_pairs_tell_the_items_themselves(honest):
    found = attacked(honest, "fedgram", n_max=200)
    assert found["plain uploads"].precision == 1.0
    assert abs(found["secure sum with noise"].precision - found["secure sum with noise"].of_others) < 0.03


def test_positives_are_the_rarer_side_whichever_sign_it_has():
    changes = torch.outer(torch.tensor([0.0, 1.0, -1.0, -1.0, -1.0, 1.1, -0.9]), torch.tensor([0.3, -0.2]))
    for sign in (1, -1):
        assert set(suspicion(sign * changes).topk(2).indices.tolist()) == {1, 5}


def test_who_sends_nothing_about_items_cannot_be_attacked(honest):
    for name in ("local", "fedcia"):
        with pytest.raises(ConfigError, match="sends no table of items"):
            attacked(honest, name)
