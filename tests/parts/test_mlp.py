import torch

from fedrec.parts.mlp import Tower


def test_clients_have_their_own_networks() -> None:
    tower = Tower((8, 6, 3))
    theta = torch.randn(5, tower.n_parameters)
    user, rows = torch.randn(5, 4), torch.randn(5, 7, 4)
    together = tower(theta, user, rows)
    for client in range(5):
        one = slice(client, client + 1)
        assert torch.allclose(tower(theta[one], user[one], rows[one])[0], together[client], atol=1e-5)


def test_it_is_the_same_as_torch_layers_on_the_concatenation() -> None:
    tower = Tower((8, 6, 3))
    generator = torch.Generator().manual_seed(1)
    theta = tower.init(generator)
    layers = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3), torch.nn.ReLU())
    with torch.no_grad():
        layers[0].weight.copy_(torch.cat([theta[:24].view(6, 4), theta[24:48].view(6, 4)], 1))
        layers[0].bias.copy_(theta[48:54])
        layers[2].weight.copy_(theta[54:72].view(3, 6))
        layers[2].bias.copy_(theta[72:])
    user, rows = torch.randn(1, 4), torch.randn(1, 7, 4)
    expected = layers(torch.cat([user[:, None].expand(-1, 7, -1), rows], 2))
    assert torch.allclose(tower(theta[None], user, rows), expected, atol=1e-6)


def test_weights_start_within_xavier_bounds_and_biases_at_zero() -> None:
    theta = Tower((8, 6, 3)).init(torch.Generator().manual_seed(0))
    first, second = theta[:48], theta[54:72]
    assert 0.9 * (6 / 14) ** 0.5 < float(first.abs().max()) <= (6 / 14) ** 0.5
    assert 0.8 * (6 / 9) ** 0.5 < float(second.abs().max()) <= (6 / 9) ** 0.5
    assert not theta[48:54].any()
    assert not theta[72:].any()
