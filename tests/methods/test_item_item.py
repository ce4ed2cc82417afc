"""What all methods with weights between items have in common: they say how far they are, and what does not fit is refused."""

import pytest

import fedrec
from fedrec.errors import ConfigError
from fedrec.running.listeners import Listener

SOLVED = ("ease", "fedgram", "slist", "fedslist")


class Heard(Listener):
    """All it was told."""

    def __init__(self):
        self.told = []

    def working(self, what, done, total):
        self.told.append((what, done, total))


@pytest.mark.parametrize("name", SOLVED)
def test_solving_says_how_far_it_is(small, name):
    heard = Heard()
    fedrec.train(name, small, progress=False, listeners=[heard])
    assert ("solving for item weights", 60, 60) in heard.told


@pytest.mark.parametrize("name", [*SOLVED, "itemknn"])
def test_what_does_not_fit_is_refused_before_it_begins(small, name):
    heard = Heard()
    with pytest.raises(ConfigError, match=r"needs about .* GB for matrices of 60 x 60 items, but 1e-05 GB are allowed"):
        fedrec.train(fedrec.create(name, settings={"memory_gb": 1e-5}), small, progress=False, listeners=[heard])
    assert not heard.told


def test_few_directions_need_no_matrix_of_items(small):
    fedrec.train(fedrec.create("fedslist", settings={"memory_gb": 1e-5, "rank": 4}), small, progress=False)
