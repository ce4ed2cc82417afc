"""How much Gaussian noise a budget asks for, against the curve of the mechanism in plain numbers."""

import math
import sys

import pytest

from fedrec.errors import ConfigError
from fedrec.parts.gaussian import noise_multiplier, report, spent_epsilon


def below(x):
    return math.erfc(-x / 2**0.5) / 2


def spent_delta(epsilon, multiplier):
    """Balle and Wang (ICML 2018), Theorem 8: the delta of one Gaussian release at this epsilon."""
    half, far = 1 / (2 * multiplier), epsilon * multiplier
    return below(half - far) - math.exp(epsilon) * below(-half - far)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_one_release_spends_the_budget_and_no_more(epsilon, delta):
    multiplier = noise_multiplier(epsilon, delta, 1)
    assert spent_delta(epsilon, multiplier) == pytest.approx(delta, rel=1e-3)
    assert spent_epsilon(multiplier, delta, 1) == pytest.approx(epsilon, rel=1e-3)


def test_many_releases_are_one_with_the_root_of_that_many_times_less_noise():
    one = noise_multiplier(2.0, 1e-5, 1)
    assert noise_multiplier(2.0, 1e-5, 9) == pytest.approx(3 * one)
    assert spent_epsilon(3 * one, 1e-5, 9) == pytest.approx(spent_epsilon(one, 1e-5, 1))
    assert spent_epsilon(one, 1e-5, 4) == pytest.approx(spent_epsilon(one / 2, 1e-5, 1))
    assert spent_epsilon(one, 1e-5, 4) > 2 * spent_epsilon(one, 1e-5, 1) > 0


def test_a_result_says_what_was_spent_and_on_which_conditions():
    said = report(1.0, 1e-5, 0.75, 4)
    assert said["noise_multiplier"] == noise_multiplier(1.0, 1e-5, 4)
    assert said["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert (said["delta"], said["noise_std"]) == (1e-5, 0.75)
    assert set(said) == {"epsilon", "delta", "noise_multiplier", "noise_std", "verdict"}
    assert said["verdict"].startswith(
        "what the server sees is (epsilon 1, delta 1e-05) differentially private for adding"
    )
    assert "if the sum is secure" in said["verdict"]
    assert report(1.0, 1e-5, 0.75) == report(1.0, 1e-5, 0.75, 1)
    assert report(1.0, 1e-5, 0.75)["noise_multiplier"] == pytest.approx(said["noise_multiplier"] / 2)


def test_without_the_accountant_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"noise needs the extra 'privacy': pip install 'fedrec\[privacy\]'"):
        noise_multiplier(1.0, 1e-5, 1)
