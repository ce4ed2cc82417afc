import pytest
import torch

from fedrec.compute.telling import telling
from fedrec.parts.inverse import NotPositiveError, invert_


def positive(size):
    x = torch.randn(2 * size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return x.T @ x


@pytest.mark.parametrize("block", [1, 7, 32, 100])
def test_it_is_the_inverse_for_any_block(block):
    square, told, whats = positive(32), [], set()
    memory = square.clone()
    memory[torch.ones(32, 32).triu(1).bool()] = float("nan")  # the lower triangle is all it looks at
    with telling(lambda what, done, of: told.append((done, of)) or whats.add(what)):
        found = invert_(memory, block)
    assert found.data_ptr() == memory.data_ptr()
    assert torch.allclose(found @ square, torch.eye(32, dtype=torch.float64), atol=1e-10)
    assert told[-1] == (32, 32)
    assert whats == {"solving for item weights"}
    assert [done for done, _ in told] == sorted({min(32, k + block) for k in range(0, 32, block)})


def test_what_is_not_positive_definite_is_refused():
    square = positive(10)
    square[4, 4] = -1
    with pytest.raises(NotPositiveError):
        invert_(square, block=3)
