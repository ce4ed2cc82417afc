import torch

from fedrec.local.mlp import FlatMLP, xavier
from fedrec.sampling import streams

NETWORK = FlatMLP((8, 6, 3))


def test_clients_have_their_own_networks() -> None:
    theta = torch.randn(5, NETWORK.size)
    user, rows = torch.randn(5, 4), torch.randn(5, 7, 4)
    together = NETWORK.paired(theta, user, rows)
    for client in range(5):
        one = slice(client, client + 1)
        assert torch.allclose(NETWORK.paired(theta[one], user[one], rows[one])[0], together[client], atol=1e-5)


def test_it_is_the_same_as_torch_layers() -> None:
    theta = NETWORK.draw(xavier, torch.Generator().manual_seed(1))
    layers = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    with torch.no_grad():
        layers[0].weight.copy_(theta[:48].view(6, 8))
        layers[0].bias.copy_(theta[48:54])
        layers[2].weight.copy_(theta[54:72].view(3, 6))
        layers[2].bias.copy_(theta[72:])
    user, rows = torch.randn(1, 4), torch.randn(1, 7, 4)
    inputs = torch.cat([user[:, None].expand(-1, 7, -1), rows], 2)
    assert torch.allclose(NETWORK(theta[None], inputs), layers(inputs), atol=1e-6)
    assert torch.allclose(NETWORK.paired(theta[None], user, rows), layers(inputs), atol=1e-6)


def test_the_parts_of_a_pair_may_differ_in_size() -> None:
    theta, own, rows = torch.randn(2, NETWORK.size), torch.randn(2, 3), torch.randn(2, 7, 5)
    inputs = torch.cat([own[:, None].expand(-1, 7, -1), rows], 2)
    assert torch.allclose(NETWORK.paired(theta, own, rows), NETWORK(theta, inputs), atol=1e-5)


def test_weights_start_within_xavier_bounds_and_biases_at_zero() -> None:
    theta = NETWORK.draw(xavier, torch.Generator().manual_seed(0))
    first, second = theta[:48], theta[54:72]
    assert 0.9 * (6 / 14) ** 0.5 < float(first.abs().max()) <= (6 / 14) ** 0.5
    assert 0.8 * (6 / 9) ** 0.5 < float(second.abs().max()) <= (6 / 9) ** 0.5
    assert not theta[48:54].any()
    assert not theta[72:].any()


def test_no_layers_have_no_parameters() -> None:
    empty = FlatMLP(())
    assert empty.size == 0
    assert empty.draw(xavier, torch.Generator()).shape == (0,)
    keys = streams.keys(7, streams.Purpose.INIT, 0, torch.arange(2))
    assert FlatMLP((4, 1)).draw_each(keys).shape == (2, 5)
