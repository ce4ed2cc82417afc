import gc

import pytest
import torch
from torch import Tensor

from fedrec.compute import graphs
from fedrec.compute.graphs import Recorded, kept, roomy
from pretended_graphs import Pretended


def add(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    return one + other, one * other


def test_a_replay_gives_what_a_call_gives_in_tensors_of_their_own():
    pretended = Pretended()
    recorded = Recorded(recorder=pretended)
    pairs = [(torch.randn(4), torch.randn(4, 1)) for _ in range(6)]
    found = [recorded(add, *pair) for pair in pairs]
    assert (pretended.recordings, pretended.replays) == (1, 6 - graphs.PLAIN_CALLS)
    for pair, outputs in zip(pairs, found, strict=True):
        for output, expected in zip(outputs, add(*pair), strict=True):
            assert torch.equal(output, expected)


def test_inputs_are_not_changed_and_may_be_views_of_one_value():
    recorded = Recorded(recorder=Pretended())
    for number in range(5):
        value = torch.tensor([float(number)])
        outputs = recorded(add, value.expand(3), torch.ones(3))
        assert outputs[0].tolist() == [number + 1.0] * 3
        assert value.tolist() == [number]


def test_each_shape_and_type_has_a_recording_of_its_own():
    pretended = Pretended()
    recorded = Recorded(recorder=pretended)
    for _ in range(4):
        for inputs in ((torch.ones(2), torch.ones(2)), (torch.ones(3), torch.ones(3)), (torch.ones(2).double(),) * 2):
            assert recorded(add, *inputs)[0].tolist() == [2.0] * len(inputs[0])
            assert recorded(add, *inputs)[0].dtype == inputs[0].dtype
    assert pretended.recordings == 3


def test_ragged_inputs_are_padded_with_zeros_to_a_few_lengths():
    pretended = Pretended()
    recorded = Recorded(recorder=pretended)
    lengths = [20, 5, 17, 19, 3, 23, 6, 18, 2]
    for length in lengths:
        rows, weight = torch.ones(length, length + 1), torch.full((length, 3), 2.0)
        sums = recorded(lambda rows, weight: (rows.sum() + 0 * weight.sum(), weight), rows, weight, ragged=[2, 1])
        assert float(sums[0]) == length * (length + 1), "what a longer input left behind must be gone"
        assert sums[1].shape == (roomy(length), 3)
    assert pretended.recordings == 2


def test_roomy_lengths_are_few_and_not_much_longer():
    lengths = {roomy(length) for length in range(1, 4097)}
    assert len(lengths) < 40
    assert all(length <= roomy(length) <= max(length + 7, 1.25 * length) for length in range(4097))


def test_only_so_many_shapes_are_recorded(monkeypatch):
    monkeypatch.setattr(graphs, "MOST", 2)
    pretended = Pretended()
    recorded = Recorded(recorder=pretended)
    for _ in range(5):
        for n in range(1, 5):
            assert len(recorded(add, torch.ones(n), torch.ones(n))[0]) == n
    assert pretended.recordings == 2


def test_what_cannot_be_recorded_is_called_and_that_is_said_once():
    def refuse(function, inputs):
        raise RuntimeError("operation not permitted when stream is capturing")

    recorded = Recorded(recorder=refuse)
    for _ in range(2):
        recorded(add, torch.tensor([0]), torch.tensor([1]))
    with pytest.warns(UserWarning, match=r"slower: operation not permitted"):
        recorded(add, torch.tensor([0]), torch.tensor([1]))
    for number in range(5):  # and not again: warnings of this package are errors here
        assert recorded(add, torch.tensor([number]), torch.tensor([1]))[0].tolist() == [number + 1]
    assert "not permitted" in recorded.problem


def test_an_error_of_the_function_itself_is_not_hidden():
    def wrong(value):
        raise ValueError("wrong shape")

    recorded = Recorded(recorder=Pretended())
    with pytest.raises(ValueError, match="wrong shape"):
        recorded(wrong, torch.ones(1))


def test_nothing_is_recorded_on_a_cpu():
    recorded = Recorded()
    for _ in range(5):
        recorded(add, torch.ones(1), torch.ones(1))
    assert recorded.recorder is None


class Owner:
    pass


def test_recordings_belong_to_their_owner_and_to_the_tensors_they_change():
    owner, state = Owner(), [torch.zeros(3)]
    first = kept(owner, "step", held=state)
    assert kept(owner, "step", held=state) is first
    assert kept(owner, "other", held=state) is not first
    assert kept(Owner(), "step", held=state) is not first
    again = kept(owner, "step", held=[state[0].clone()])
    assert again is not first
    assert kept(owner, "step", held=state) is not first, "recordings of tensors that were replaced are dropped"


def test_recordings_end_with_their_owner():
    owner = Owner()
    kept(owner, "step")
    gc.collect()  # of other tests
    before = len(graphs._kept)
    del owner
    gc.collect()
    assert len(graphs._kept) == before - 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_replays_steps_that_change_what_they_hold():
    def run(switch: str, monkeypatch) -> tuple[Tensor, list[float]]:
        monkeypatch.setenv("FEDREC_GRAPHS", switch)
        weight = torch.ones(8, 8, device="cuda")
        recorded = Recorded([weight])

        def step(rows: Tensor) -> tuple[Tensor]:
            leaf = weight.detach().requires_grad_()
            loss = (rows @ leaf).square().mean()
            (gradient,) = torch.autograd.grad(loss, leaf)
            weight.sub_(0.1 * gradient)
            return (loss.detach(),)

        batches = torch.randn(10, 4, 8, generator=torch.Generator().manual_seed(0)).cuda()
        losses = [float(recorded(step, batch)[0]) for batch in batches]
        assert not recorded.problem
        assert bool(recorded._made) == (switch == "on")
        return weight.cpu(), losses

    with pytest.MonkeyPatch.context() as patch:
        (plain, losses), (replayed, again) = run("off", patch), run("on", patch)
    assert torch.allclose(plain, replayed, atol=1e-6)
    assert losses == pytest.approx(again, rel=1e-5)
