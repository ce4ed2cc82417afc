import torch

from fedrec.methods.fedgains.gains import Picks, log_ranks


def test_ranks_are_counted_from_one_and_equal_scores_share_theirs():
    found = torch.exp(-log_ranks(torch.tensor([[0.5, 2.0, -1.0, 0.5], [3.0, 3.0, 3.0, 3.0]])))
    assert torch.allclose(found, torch.tensor([[2.5, 1.0, 4.0, 2.5], [2.5, 2.5, 2.5, 2.5]]))


def some_picks(clients=5, picks=7, items=11):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(clients, picks, items, 2, generator=generator)
    chosen = torch.randint(1, items, (clients, picks), generator=generator)
    may = torch.ones(clients, picks, items, dtype=torch.bool)
    may[:, :, 0] = False
    return Picks(features, may, chosen, torch.arange(picks) < torch.arange(1, clients + 1)[:, None])


def by_definition(picks, gains, client):
    total = torch.zeros((), dtype=torch.float64)
    for pick in range(picks.items.shape[1]):
        if picks.valid[client, pick]:
            logits = picks.features[client, pick].double() @ gains
            own = logits[picks.open[client, pick]]
            total = total + logits[picks.items[client, pick]] - own.exp().sum().log()
    return total


def test_the_likelihood_and_its_derivatives_are_those_of_the_definition():
    picks, gains = some_picks(), torch.tensor([0.7, -0.4])
    value, slope, bent = picks.likelihood(gains.expand(5, -1))
    for client in range(5):
        at = gains.double().requires_grad_()
        exact = by_definition(picks, at, client)
        (first,) = torch.autograd.grad(exact, at)
        second = torch.autograd.functional.hessian(lambda x, u=client: by_definition(picks, x, u), gains.double())
        assert torch.allclose(value[client].double(), exact.detach(), atol=1e-5)
        assert torch.allclose(slope[client].double(), first, atol=1e-5)
        assert torch.allclose(bent[client].double(), -second, atol=1e-4)


def test_fitted_gains_are_the_most_likely_ones():
    picks, mean, spread = (
        some_picks(),
        torch.tensor([0.2, 0.1]).double(),
        torch.tensor([[0.3, 0.1], [0.1, 0.2]]).double(),
    )
    gains, around, _ = picks.fitted(mean, spread)
    for client in range(5):
        at = gains[client].clone().requires_grad_()
        apart = at - mean
        objective = by_definition(picks, at, client) - apart @ torch.linalg.inv(spread) @ apart / 2
        (slope,) = torch.autograd.grad(objective, at)
        assert float(slope.abs().max()) < 1e-3
        assert bool((torch.linalg.eigvalsh(spread - around[client]) >= -1e-6).all())  # picks can only tell more


def test_without_picks_gains_are_the_mean():
    picks = some_picks()
    none = Picks(picks.features, picks.open, picks.items, torch.zeros_like(picks.valid))
    gains, around, value = none.fitted(torch.tensor([0.2, 0.1]).double(), torch.eye(2).double())
    assert torch.equal(gains, torch.tensor([0.2, 0.1]).double().expand(5, -1))
    assert torch.allclose(around, torch.eye(2).double().expand(5, -1, -1))
    assert not bool(value.any())
