"""``fedrec audit --uploads``: what a server guesses from uploads, as a table and as JSON."""

from dataclasses import asdict

import pytest

import fedrec
from command_line import refused, run, strict
from fedrec.methods import create
from fedrec.secure.curious import VIEWS, curious

WORDS = ("audit", "--data", "demo", "--users", "20", "--epsilon", "4", "--seed", "3")


def test_what_is_printed_is_what_the_attack_finds(capsys, demo):
    code, out, _ = run(capsys, *WORDS, "--uploads", "fedmf", "--json")
    assert code == 0
    said = strict(out)
    about = {"data": "demo", "epsilon": 4.0, "delta": 1e-5, "users": 20, "seed": 3}
    assert {name: said[name] for name in about} == about
    split = fedrec.HONEST.split(demo, 3)
    expected = curious(create("fedmf", data="demo"), split, epsilon=4.0, clients=20, seed=3)
    (found,) = said["methods"].values()
    for one, other in zip(found, map(asdict, expected), strict=True):
        assert one["view"] == other["view"]
        if "noise" not in one["view"]:  # noise is from secrets that are new every time
            assert one == pytest.approx(other)


def test_a_table_has_a_row_for_every_method_and_view(capsys):
    code, out, err = run(capsys, *WORDS, "--uploads", "fedmf", "--uploads", "fedgram")
    assert code == 0
    for name in ("fedmf", "fedgram"):
        assert any(line.split()[:1] == [name] for line in out.splitlines())
    assert "Share of a user's items that the server guesses, demo; noise: epsilon 4" in " ".join(out.split())
    assert out.count(VIEWS[0]) >= 1
    assert "only what is above it is known about a user" in " ".join(err.split())


def test_a_centralised_method_uploads_nothing(capsys):
    """Which is said before any other method is attacked."""
    words = ("--uploads", "fedmf", "--uploads", "ease")
    assert refused(capsys, *WORDS, *words).startswith("error: ease is centralised: it uploads nothing")


def test_a_blend_uploads_what_its_parts_do(capsys):
    assert "blend trains other methods, and uploads what they upload" in refused(capsys, *WORDS, "--uploads", "blend")
