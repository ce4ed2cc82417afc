import pytest
import torch

from fedrec.errors import FedrecError
from fedrec.evaluation.metrics import compute
from fedrec.evaluation.ranking import candidate_ranks, check_finite, full_ranks, top_items


def by_hand(scores, targets, removed):
    """The definition, item by item."""
    better, tied = torch.full_like(targets, -1), torch.zeros_like(targets)
    for row, wanted in enumerate(targets.tolist()):
        own = [t for t in wanted if t >= 0]
        ranked = [i for i in range(scores.shape[1]) if i in own or not removed[row, i]]
        for slot, target in enumerate(wanted):
            if target >= 0:
                others = scores[row, [i for i in ranked if i != target]]
                better[row, slot] = (others > scores[row, target]).sum()
                tied[row, slot] = (others == scores[row, target]).sum()
    return better, tied


def problem(clients=300, items=40, targets=1, seed=0):
    """Scores with many ties, more rows than one chunk, ragged targets of which some are masked."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 12, (clients, items), generator=rng).float() - 6
    chosen = torch.rand(clients, items, generator=rng).topk(targets).indices
    length = torch.randint(0, targets + 1, (clients, 1), generator=rng)
    chosen = chosen.where(torch.arange(targets) < length, -1)
    return scores, chosen, torch.rand(clients, items, generator=rng) < 0.3


@pytest.mark.parametrize("targets", [1, 2, 7])
@pytest.mark.parametrize("masking", ["pairs", "matrix", "nothing"])
def test_full_ranks_follow_the_definition(targets, masking):
    scores, chosen, removed = problem(targets=targets)
    rows, columns = removed.nonzero(as_tuple=True)
    masked = {"pairs": (rows.int(), columns.int()), "matrix": removed, "nothing": None}[masking]
    before = scores.clone()
    better, tied = full_ranks(scores, chosen, masked)
    want = by_hand(scores, chosen, removed if masked is not None else torch.zeros_like(removed))
    assert torch.equal(better, want[0])
    assert torch.equal(tied, want[1])
    assert torch.equal(scores, before)


def test_a_small_list_by_hand():
    scores = torch.tensor([[5.0, 9.0, 7.0, 5.0, 1.0, 5.0]])
    better, tied = full_ranks(scores, torch.tensor([[0]]), (torch.tensor([0, 0]), torch.tensor([1, 3])))
    assert (better.item(), tied.item()) == (1, 1)  # item 2 is above, item 5 level; 1 and 3 are masked
    better, tied = full_ranks(scores, torch.tensor([[0, 2, -1]]))
    assert better.tolist() == [[2, 1, -1]]
    assert tied.tolist() == [[2, 0, 0]]


def test_repeated_masked_pairs_count_once_and_a_masked_target_stays_in():
    scores = torch.tensor([[1.0, 2.0, 3.0, 2.0]])
    masked = (torch.tensor([0, 0, 0]), torch.tensor([2, 2, 1]))
    better, tied = full_ranks(scores, torch.tensor([[1]]), masked)
    assert (better.item(), tied.item()) == (0, 1)


def test_integer_scores_rank_exactly():
    scores = torch.tensor([[-3, 0, -1, 0]])
    better, tied = full_ranks(scores, torch.tensor([[2]]), torch.tensor([[False, True, False, False]]))
    assert (better.item(), tied.item()) == (1, 0)


def test_no_clients_and_no_targets():
    better, tied = full_ranks(torch.zeros(0, 5), torch.zeros(0, 1, dtype=torch.long))
    assert better.shape == tied.shape == (0, 1)
    better, _ = full_ranks(torch.zeros(3, 5), torch.zeros(3, 0, dtype=torch.long))
    assert better.shape == (3, 0)


def test_candidates_by_hand():
    scores = torch.tensor([[1.0, 4.0, 4.0, 9.0, 0.0], [1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    candidates = torch.tensor([[0, 2, 3], [0, 1, 4], [1, 2, -1]])
    better, tied = candidate_ranks(scores, torch.tensor([1, 4, -1]), candidates)
    assert better.tolist() == [1, 0, -1]
    assert tied.tolist() == [1, 0, 0]  # the second list names its own target, the third client has none


def test_padded_candidates_do_not_count():
    better, tied = candidate_ranks(torch.tensor([[9.0, 1.0, 2.0]]), torch.tensor([2]), torch.tensor([[1, -1, -1]]))
    assert (better.item(), tied.item()) == (0, 0)


@pytest.mark.parametrize(("value", "word"), [(torch.nan, "NaN"), (torch.inf, "infinite"), (-torch.inf, "infinite")])
def test_bad_scores_name_the_client(value, word):
    scores = torch.zeros(4, 3)
    check_finite(scores)
    scores[2, 1] = value
    clients = torch.tensor([4, 9, 17, 20])
    with pytest.raises(FedrecError, match=f"client 17 contain {word}"):
        check_finite(scores, clients)
    with pytest.raises(FedrecError, match="client 2 "):
        full_ranks(scores, torch.zeros(4, 1, dtype=torch.long), (torch.tensor([2]), torch.tensor([1])))
    with pytest.raises(FedrecError, match="client 17 "):
        candidate_ranks(scores, torch.zeros(4, dtype=torch.long), torch.ones(4, 1, dtype=torch.long), clients)
    with pytest.raises(FedrecError, match="client 17 "):
        top_items(scores, None, 2, clients)


def test_top_items_by_hand():
    scores = torch.tensor([[1.0, 5.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]])
    assert top_items(scores, None, 2).tolist() == [[1, 3], [0, 1]]
    masked = torch.tensor([[False, True, False, False], [True, True, True, False]])
    assert top_items(scores, masked, 2).tolist() == [[3, 2], [3, -1]]
    assert top_items(scores, None, 4).tolist() == [[1, 3, 2, 0], [0, 1, 2, 3]]  # the whole catalogue
    assert top_items(scores, masked, 6).tolist() == [[3, 2, 0, -1, -1, -1], [3, -1, -1, -1, -1, -1]]


def test_top_items_break_ties_by_item_number():
    scores, _, removed = problem(items=60)
    top = top_items(scores, removed, 10)
    order = scores.masked_fill(removed, -torch.inf).sort(dim=1, descending=True, stable=True).indices
    assert torch.equal(top, order[:, :10])


def test_ranks_and_top_lists_agree():
    scores = torch.rand(50, 30, generator=torch.Generator().manual_seed(3))
    top = top_items(scores, None, 8)
    better, tied = full_ranks(scores, top)
    assert torch.equal(better, torch.arange(8).expand(50, 8))
    assert not tied.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_score_type_ranks_alike(dtype):
    scores, chosen, removed = problem(targets=5)  # small whole numbers, exact in every type
    for part, want in zip(
        full_ranks(scores.to(dtype), chosen, removed), full_ranks(scores, chosen, removed), strict=True
    ):
        assert torch.equal(part, want)
    assert torch.equal(top_items(scores.to(dtype), removed, 5), top_items(scores, removed, 5))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("targets", [1, 7])
def test_a_gpu_gives_the_same_results(targets):
    names = [f"{kind}@10" for kind in ("hr", "ndcg", "recall", "precision", "mrr", "map")]

    def everything(device):
        scores, chosen, removed = (part.to(device) for part in problem(targets=targets))
        pairs = removed.nonzero(as_tuple=True)
        ranks = full_ranks(scores, chosen, pairs)
        sampled = candidate_ranks(scores, chosen[:, 0], torch.arange(20, device=device).expand(300, 20))
        values = compute(names, *ranks) | compute(["hr@5"], *sampled, ties="pessimistic")
        return [*ranks, *sampled, top_items(scores, pairs, 9), *values.values()]

    for on_gpu, on_cpu in zip(everything("cuda"), everything("cpu"), strict=True):
        torch.testing.assert_close(on_gpu.cpu(), on_cpu, equal_nan=True)
