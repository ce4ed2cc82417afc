"""What a method sends each way in a round, as lists of methods show it."""

import pytest

from command_line import run, strict
from fedrec.methods.cost import ITEMS, POSITIVES, bytes_per_round

TABLE = ITEMS * 16 * 4  # 32-bit numbers


@pytest.mark.parametrize(
    ("name", "up", "down"),
    [
        ("local", 0, 0),
        ("popularity", POSITIVES * 8, ITEMS * 4),  # which items, and a one for each; how often each was seen
        ("fedem", TABLE, TABLE + 1),  # and whether it is drawn to upload
        ("gpfedrec", TABLE, 2 * TABLE),
    ],
)
def test_bytes_each_way(name, up, down):
    assert bytes_per_round(name) == (up, down)


def test_changes_of_rows_name_their_rows():
    up, down = bytes_per_round("fedmf")
    assert down == TABLE
    rows = up / (16 * 4 + 4)
    assert POSITIVES < rows < 5 * POSITIVES, "a row per positive and per negative, most of them different"


def test_models_that_collect_everything_send_nothing():
    assert bytes_per_round("ease") is None


def test_what_is_made_of_others_sends_what_they_send(capsys):
    assert bytes_per_round("blend") is None
    out = " ".join(run(capsys, "methods", "blend")[1].split())
    assert "per client and round: what its parts need rounds: 21 " in out
    assert "per client" not in run(capsys, "methods", "ease")[1]


@pytest.mark.parametrize("name", ["popularity", "fedmf", "gpfedrec"])
def test_the_list_of_methods_shows_them(capsys, name):
    code, out, _ = run(capsys, "methods", "--json")
    assert code == 0
    shown = {row["name"]: row["bytes_ml_1m_d16"] for row in strict(out)}
    assert (shown[name]["up"], shown[name]["down"]) == pytest.approx(bytes_per_round(name), abs=0.1)
