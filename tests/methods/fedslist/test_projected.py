import pytest
import torch

from fedrec.methods.fedslist.projected import add_projected, add_sketch
from fedrec.parts.order import Decay, add_histories
from fedrec.parts.symmetric import mirror_

HISTORIES = torch.tensor(
    [[3, 1, 4, 0, 5], [2, 0, -1, -1, -1], [5, 4, 3, 2, -1], [1, -1, -1, -1, -1]], dtype=torch.int32
)


@pytest.mark.parametrize(
    "decay",
    [Decay(2.0, 1.0, 0.5), Decay(None, 3.0, 0.0), Decay(2.0, None, 1.0, clip=2.0), Decay(2.0, 1.0, 0.5, ordered=False)],
    ids=["usual", "past that does not fade", "clipped", "unordered"],
)
def test_from_all_directions_the_sums_are_seen_as_they_are(decay):
    past, after, sketch, behind, ahead = (torch.zeros(6, 6, dtype=torch.int64) for _ in range(5))
    add_histories(past, after, HISTORIES, (HISTORIES >= 0).sum(1), decay)
    everything = torch.eye(6, dtype=torch.float64)
    add_sketch(sketch, HISTORIES, decay, everything)
    add_projected(behind, ahead, HISTORIES, decay, everything)
    units = 2 * len(HISTORIES)  # every client rounds, here and there
    assert int((sketch - after).abs().max()) <= units
    assert int((ahead - after).abs().max()) <= units
    assert int((behind - mirror_(past)).abs().max()) <= units
    assert int(after.abs().max()) > 1000 * units
