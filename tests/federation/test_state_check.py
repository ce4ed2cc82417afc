"""A saved state is continued from only where it could be one's own."""

import pytest
import torch

from fedrec.federation.state_check import StateMismatchError, check_state


def state(**changed):
    own = {"items": torch.zeros(3, 2), "seen": torch.zeros(3, dtype=torch.int64), "drawn": torch.zeros(0, 2)}
    return {name: value for name, value in (own | changed).items() if value is not None}


@pytest.mark.parametrize("drawn", [0, 1, 7])
def test_states_of_the_same_form_fit_and_what_was_empty_may_have_grown(drawn):
    check_state(state(), state(items=torch.ones(3, 2), drawn=torch.zeros(drawn, 2)))


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (state(items=None, seen=None), "items is missing"),
        (state(more=torch.zeros(1), extra=torch.zeros(1)), "extra does not belong there"),
        (state(items=torch.zeros(4, 2)), "items is float32 [4, 2], not float32 [3, 2]"),
        (state(items=torch.zeros(0, 2)), "items is float32 [0, 2], not float32 [3, 2]"),
        (state(items=torch.zeros(3, 2, 1)), "items is float32 [3, 2, 1], not float32 [3, 2]"),
        (state(items=torch.zeros(3)), "items is float32 [3], not float32 [3, 2]"),
        (state(drawn=torch.zeros(7, 3)), "drawn is float32 [7, 3], not float32 [0, 2]"),
        (state(seen=torch.zeros(3, dtype=torch.int32)), "seen is int32 [3], not int64 [3]"),
        (state(seen=torch.zeros(3)), "seen is float32 [3], not int64 [3]"),
    ],
)
def test_what_differs_is_named(found, sentence):
    with pytest.raises(StateMismatchError) as error:
        check_state(state(), found)
    assert str(error.value) == sentence
