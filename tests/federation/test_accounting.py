"""What noise on sums costs, against the curve of the Gaussian mechanism and the bound for sampling, in plain numbers."""

import math
import sys

import pytest

from fedrec.errors import ConfigError
from fedrec.federation import accounting
from fedrec.federation.accounting import Sampling, gaussian_epsilon, gaussian_noise, sampled_epsilon, sampled_noise


def below(x):
    return math.erfc(-x / 2**0.5) / 2


def spent_delta(epsilon, noise):
    """Balle and Wang (ICML 2018), Theorem 8: the delta of one Gaussian release at this epsilon."""
    half, far = 1 / (2 * noise), epsilon * noise
    return below(half - far) - math.exp(epsilon) * below(-half - far)


def bound(noise, rounds, delta, sampling):
    """Wang, Balle, Kasiviswanathan (AISTATS 2019), Theorem 9, for sums that move by two clipping norms; Renyi's conversion."""
    share, half = sampling.drawn / sampling.clients, noise / 2

    def renyi(order):
        return order / (2 * half**2)

    found = []
    for order in accounting.ORDERS:
        terms = [share**2 * math.comb(order, 2) * min(4 * math.expm1(renyi(2)), 2 * math.exp(renyi(2)))]
        terms += [
            2 * math.exp(j * math.log(share) + math.log(math.comb(order, j)) + (j - 1) * renyi(j))
            for j in range(3, order + 1)
            if j * math.log(share) + math.log(math.comb(order, j)) + (j - 1) * renyi(j) < 600
        ]
        if len(terms) == max(1, order - 1):
            found.append(rounds * math.log1p(sum(terms)) / (order - 1) - math.log(delta) / (order - 1))
    return min(found)


@pytest.mark.parametrize("releases", [1, 25])
@pytest.mark.parametrize("noise", [0.8, 5.0])
def test_releases_cost_what_the_curve_says(noise, releases):
    epsilon = gaussian_epsilon(noise, releases, 1e-5)
    assert spent_delta(epsilon, noise / releases**0.5) == pytest.approx(1e-5, rel=1e-3)
    assert gaussian_noise(epsilon, releases, 1e-5) == pytest.approx(noise, rel=1e-3)


def test_no_release_costs_nothing_and_noise_for_none_is_that_for_one():
    assert gaussian_epsilon(1.0, 0, 1e-5) == 0.0
    assert sampled_epsilon(1.0, 0, 1e-5, Sampling(100, 10)) == 0.0
    assert gaussian_noise(1.0, 0, 1e-5) == gaussian_noise(1.0, 1, 1e-5)


@pytest.mark.parametrize(("clients", "drawn", "noise", "rounds"), [(1000, 10, 4.0, 50), (10_000, 100, 3.0, 300)])
def test_sampled_rounds_cost_at_most_the_published_bound_and_less_than_without_sampling(clients, drawn, noise, rounds):
    """The library sharpens the bound of the paper, by some per cent and never below half of it."""
    sampling = Sampling(clients, drawn)
    found, paper = sampled_epsilon(noise, rounds, 1e-5, sampling), bound(noise, rounds, 1e-5, sampling)
    assert paper / 2 < found <= paper
    assert found < gaussian_epsilon(noise, rounds, 1e-5) / 2


def test_sampling_that_hides_nobody_costs_what_releases_do():
    assert sampled_epsilon(5.0, 10, 1e-5, Sampling(100, 100)) == gaussian_epsilon(5.0, 10, 1e-5)
    assert sampled_epsilon(5.0, 10, 1e-5, Sampling(100, 99)) <= gaussian_epsilon(5.0, 10, 1e-5)


def test_more_rounds_less_noise_and_larger_samples_cost_more():
    few = sampled_epsilon(4.0, 50, 1e-5, Sampling(1000, 10))
    assert sampled_epsilon(4.0, 100, 1e-5, Sampling(1000, 10)) > few
    assert sampled_epsilon(3.0, 50, 1e-5, Sampling(1000, 10)) > few
    assert sampled_epsilon(4.0, 50, 1e-5, Sampling(1000, 20)) > few
    assert sampled_epsilon(4.0, 50, 1e-7, Sampling(1000, 10)) > few


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_noise_for_sampled_rounds_keeps_the_budget_and_wastes_little(epsilon):
    sampling = Sampling(1000, 20)
    noise = sampled_noise(epsilon, 60, 1e-5, sampling)
    assert epsilon * 0.98 < sampled_epsilon(noise, 60, 1e-5, sampling) <= epsilon
    assert noise < gaussian_noise(epsilon, 60, 1e-5)


def test_without_the_accountant_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(
        ConfigError, match=r"^accounting for noise needs the extra 'privacy': pip install 'fedrec\[privacy"
    ):
        gaussian_epsilon(1.0, 1, 1e-5)


def test_sampling_hides_a_client_from_who_does_not_know_the_sample():
    known = gaussian_epsilon(2.0, 50, 1e-5)
    spent = [sampled_epsilon(2.0, 50, 1e-5, Sampling(10_000, drawn)) for drawn in (50, 200, 10_000)]
    assert spent[0] < spent[1] < known
    assert spent[2] == known
    assert sampled_epsilon(2.0, 100, 1e-5, Sampling(10_000, 50)) > spent[0]
    # One user's data for another's move a sum by twice the norm: the library is asked for half of the noise per norm.
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
    from dp_accounting.rdp import RdpAccountant

    replaced = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    replaced.compose(SampledWithoutReplacementDpEvent(10_000, 50, GaussianDpEvent(1.0)), 50)
    assert spent[0] == pytest.approx(replaced.get_epsilon(1e-5), rel=0.01)
    # Never below what Poisson sampling with half the sensitivity (data that are added, not replaced) costs exactly.
    from dp_accounting import PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    exact = PLDAccountant()
    exact.compose(PoissonSampledDpEvent(0.005, GaussianDpEvent(2.0)), 50)
    assert spent[0] > exact.get_epsilon(1e-5)
