"""Where tuning looks: around what is usual, as far as the kind of a setting asks for."""

import pytest

from fedrec.federation.config import LearnedConfig
from fedrec.federation.search import Options, Range, derived


def test_a_range_holds_numbers_between_its_ends():
    found = Range(0.1, 2)
    assert [found.holds(value) for value in (0.1, 1, 2, 0.09, 2.1, "1", None)] == [True] * 3 + [False] * 4
    assert (Range(1, 2).log, Range(1, 2).whole) == (False, False)


def test_options_hold_what_is_among_them():
    found = Options((1, "a", None))
    assert [found.holds(value) for value in (1, "a", None, 2, "b")] == [True, True, True, False, False]


@pytest.mark.parametrize("name", ["lr", "lr_user", "adapter_lr"])
def test_learning_rates_are_searched_thirty_times_up_and_down(name):
    (found,) = derived({name: 0.03}).values()
    assert (found.low, found.high, found.log, found.whole) == (pytest.approx(0.001), pytest.approx(0.9), True, False)


@pytest.mark.parametrize("name", ["reg", "l2", "weight_decay"])
def test_penalties_are_searched_a_hundred_times_up_and_down(name):
    (found,) = derived({name: 0.5}).values()
    assert (found.low, found.high, found.log, found.whole) == (pytest.approx(0.005), pytest.approx(50), True, False)


@pytest.mark.parametrize(("usual", "most"), [(2, 10), (10, 10), (15, 15)])
def test_epochs_are_whole_from_one_to_ten_or_what_is_usual(usual, most):
    assert derived({"epochs": usual}) == {"epochs": Range(1, most, whole=True)}


@pytest.mark.parametrize(("usual", "low", "high"), [(0.1, 0.01, 1.0), (0.001, 0.001, 1.0), (3.0, 0.01, 3.0)])
def test_the_initial_spread_is_searched_from_a_hundredth_to_one_or_what_is_usual(usual, low, high):
    assert derived({"init_std": usual}) == {"init_std": Range(low, high, log=True)}


def test_what_is_off_no_number_or_of_another_kind_is_not_searched():
    given = {"lr": 0.0, "reg": -1, "epochs": True, "lr_x": None, "l2": "much", "dim": 16, "flr": 0.1, "colr_rate": 0.1}
    assert derived(given) == {}
    assert list(derived({"lr": 0, "reg": 1.0, "dim": 3, "epochs": 2})) == ["reg", "epochs"], (
        "the others are still looked at"
    )


def test_a_method_is_searched_where_it_says_so_or_around_its_defaults():
    class Own(LearnedConfig):
        space = {"lr": Options((0.1, 0.2))}

    assert Own.search_space() == {"lr": Options((0.1, 0.2))}
    assert set(LearnedConfig.search_space()) == {"epochs", "lr", "init_std"}
    assert LearnedConfig.search_space()["lr"] == Range(0.01 / 30, 0.01 * 30, log=True)
