"""AdamW as a function: steps worked out by hand, and those of torch."""

import pytest
import torch

from fedrec.parts.adamw import stepped


def fresh(**weights):
    found = {"steps": torch.zeros(1, dtype=torch.float64)}
    for name, values in weights.items():
        value = torch.tensor(values, dtype=torch.float64)
        found |= {name: value, f"first.{name}": torch.zeros_like(value), f"second.{name}": torch.zeros_like(value)}
    return found


def test_the_first_step_goes_by_the_rate_against_the_gradient_whatever_its_size():
    model = fresh(w=[1.0, -2.0, 3.0, 5.0])
    gradient = torch.tensor([1e-3, -40.0, 7.0, 0.0], dtype=torch.float64)
    found = stepped(model, {"w": gradient}, lr=0.5, weight_decay=0.0)
    assert found["w"].tolist() == pytest.approx([0.5, -1.5, 2.5, 5.0], abs=1e-4)
    assert found["steps"].tolist() == [1.0]
    assert found["first.w"].tolist() == pytest.approx([1e-4, -4.0, 0.7, 0.0])
    assert found["second.w"].tolist() == pytest.approx([1e-9, 1.6, 0.049, 0.0])


def test_weights_decay_beside_the_gradient_and_not_through_it():
    """With no gradient a weight shrinks by lr times decay; with one, both add up."""
    model = fresh(still=[4.0], moved=[4.0])
    slopes = {"still": torch.zeros(1, dtype=torch.float64), "moved": torch.tensor([3.0], dtype=torch.float64)}
    found = stepped(model, slopes, lr=0.1, weight_decay=0.25)
    assert found["still"].tolist() == pytest.approx([4.0 * (1 - 0.025)])
    assert found["moved"].tolist() == pytest.approx([4.0 * (1 - 0.025) - 0.1])


def test_a_second_step_remembers_the_first():
    """Gradients 2 and then -1, in plain numbers: m = 0.9 * 0.2 - 0.1, v = 0.999 * 0.004 + 0.001."""
    model = stepped(fresh(w=[1.0]), {"w": torch.tensor([2.0], dtype=torch.float64)}, lr=0.01, weight_decay=0.0)
    found = stepped(model, {"w": torch.tensor([-1.0], dtype=torch.float64)}, lr=0.01, weight_decay=0.0)
    mean, square = 0.9 * 0.2 - 0.1, 0.999 * 0.004 + 0.001
    size = (square / (1 - 0.999**2)) ** 0.5 + 1e-8
    assert found["first.w"].tolist() == pytest.approx([mean])
    assert found["second.w"].tolist() == pytest.approx([square])
    assert found["w"].tolist() == pytest.approx([float(model["w"]) - 0.01 * mean / (1 - 0.9**2) / size])
    assert found["steps"].tolist() == [2.0]


def test_what_has_no_gradient_stays_and_the_given_model_is_left_alone():
    model = fresh(w=[1.0], other=[2.0]) | {"note": torch.tensor([7.0])}
    before = {name: value.clone() for name, value in model.items()}
    found = stepped(model, {"w": torch.tensor([2.0], dtype=torch.float64)}, lr=0.1, weight_decay=0.1)
    assert set(found) == set(model)
    assert all(torch.equal(model[name], value) for name, value in before.items())
    for name in ("other", "first.other", "second.other", "note"):
        assert torch.equal(found[name], before[name])
    assert float(found["w"]) != 1.0


def test_a_vanishing_gradient_moves_less_than_the_rate():
    """The 1e-8 under the fraction: a gradient of its size moves by half the rate."""
    found = stepped(fresh(w=[0.0]), {"w": torch.tensor([1e-8], dtype=torch.float64)}, lr=1.0, weight_decay=0.0)
    assert found["w"].tolist() == pytest.approx([-0.5])


def test_it_is_that_of_torch():
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter(torch.randn(5, generator=generator))
    theirs = torch.optim.AdamW([weights], lr=0.01, weight_decay=0.1)
    ours = {
        "w": weights.detach().clone(),
        "steps": torch.zeros(1),
        "first.w": torch.zeros(5),
        "second.w": torch.zeros(5),
    }
    for _ in range(4):
        weights.grad = torch.randn(5, generator=generator)
        theirs.step()
        ours = stepped(ours, {"w": weights.grad}, lr=0.01, weight_decay=0.1)
    assert torch.allclose(ours["w"], weights, atol=1e-6)
