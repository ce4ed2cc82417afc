"""Noise from the options of a command: which settings they mean, and one sentence for those that mean none."""

import pytest

from command_line import refused, run, strict
from fedrec.cli.privacy import Central, noise_of, privacy_of
from fedrec.errors import ConfigError
from fedrec.federation.central_privacy import CentralPrivacy
from fedrec.federation.privacy import Privacy

TRAIN = ("train", "fedmf", "--data", "demo", "--rounds", "1", "--quiet")


def central(dp="central", epsilon=None, delta=None, clip=None, noise=None, observer=None):
    return Central(dp, epsilon, delta, clip, noise, observer)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"epsilon": 2.0}, CentralPrivacy(epsilon=2.0)),
        ({"noise": 3.0, "clip": 0.5, "delta": 1e-6}, CentralPrivacy(noise=3.0, clip=0.5, delta=1e-6)),
        ({"epsilon": 2.0, "observer": "outsider"}, CentralPrivacy(epsilon=2.0, observer="outsider")),
    ],
)
def test_options_of_noise_on_sums_are_its_settings(options, settings):
    assert noise_of(central(**options), None) == settings


def test_without_noise_on_sums_there_is_that_on_uploads_or_none():
    assert noise_of(central(dp=None), None) is None
    local = Privacy(clip=0.5)
    assert noise_of(central(dp=None), local) is local


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--epsilon", "2"), "error: --epsilon has no effect without --dp; add --dp central.\n"),
        (("--delta", "1e-6"), "error: --delta has no effect without --dp; add --dp central.\n"),
        (("--dp-clip", "1"), "error: --dp-clip has no effect without --dp; add --dp central.\n"),
        (("--dp-noise", "1"), "error: --dp-noise has no effect without --dp; add --dp central.\n"),
        (("--dp-observer", "server"), "error: --dp-observer has no effect without --dp; add --dp central.\n"),
        (("--dp", "central"), "needs --epsilon, to which the noise is calibrated, or else --dp-noise"),
        (("--dp", "central", "--epsilon", "2", "--dp-noise", "1"), "needs --epsilon, to which the noise is calibrated"),
        (("--dp", "central", "--epsilon", "2", "--ldp", "laplace"), "leave one out"),
        (("--dp", "centre", "--epsilon", "2"), "unknown --dp place 'centre'; did you mean 'central'?"),
        (("--dp", "central", "--epsilon", "2", "--dp-observer", "nobody"), "unknown --dp-observer 'nobody'"),
        (("--dp", "central", "--epsilon", "-2"), "error: --epsilon is -2.0: Input should be greater than 0.\n"),
        (
            ("--dp", "central", "--epsilon", "2", "--delta", "1"),
            "error: --delta is 1.0: Input should be less than 1.\n",
        ),
        (("--dp", "central", "--epsilon", "2", "--dp-clip", "0"), "error: --dp-clip is 0.0: Input should be greater"),
        (("--dp", "central", "--dp-noise", "-1"), "error: --dp-noise is -1.0: Input should be greater than or equal"),
        (("--ldp-clip", "1"), "error: --ldp-clip has no effect without --ldp; add --ldp laplace or --ldp gaussian.\n"),
        (("--ldp", "laplace", "--ldp-scale", "-1"), "error: --ldp-scale is -1.0: Input should be greater"),
    ],
)
def test_options_that_mean_no_noise_are_one_sentence(capsys, words, sentence):
    assert sentence in refused(capsys, *TRAIN, *words)


def test_options_of_noise_on_uploads_are_its_settings():
    assert privacy_of(None, None, None, None) is None
    assert privacy_of("laplace", None, None, None) == Privacy(mechanism="laplace")
    given = privacy_of("gaussian", 0.5, 0.25, 1e-6, reproducible=True)
    assert given == Privacy(mechanism="gaussian", clip=0.5, scale=0.25, delta=1e-6, reproducible=True)
    assert privacy_of("laplace", 0, None, None).clip is None, "0: no clipping"
    with pytest.raises(ConfigError, match="unknown --ldp mechanism 'gauss'"):
        privacy_of("gauss", None, None, None)


def test_a_run_with_noise_on_sums_says_what_it_spent(capsys):
    words = ("--dp", "central", "--epsilon", "3", "--dp-clip", "0.5", "--delta", "1e-6", "--json")
    code, out, _ = run(capsys, *TRAIN, *words)
    assert code == 0
    said = strict(out)["privacy"]
    assert (said["mechanism"], said["clip"], said["delta"], said["observer"]) == ("central", 0.5, 1e-6, "server")
    assert said["epsilon_total"] == pytest.approx(3.0, rel=1e-3)
    assert said["noise_multiplier"] > 1
