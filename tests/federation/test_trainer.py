import math
from types import SimpleNamespace

import pytest

from fedrec.federation.trainer import FromHistory, OfParts, RoundReport, Setup, is_private, is_secret, is_working


def test_parts_of_a_round_add_up() -> None:
    whole = RoundReport(0.5, 3, 10, 20, {"sampling": 1.0, "training": 2.0})
    part = RoundReport(9.0, 4, 100, 200, {"training": 0.5, "aggregation": 0.25})
    whole.add(part)
    assert (whole.clients, whole.bytes_up, whole.bytes_down) == (7, 110, 220)
    assert whole.seconds == pytest.approx({"sampling": 1.0, "training": 2.5, "aggregation": 0.25})
    assert whole.loss == 0.5, "the loss is a mean, which needs the weights of its parts"
    assert part == RoundReport(9.0, 4, 100, 200, {"training": 0.5, "aggregation": 0.25})


def test_an_empty_report_takes_the_first_part_over() -> None:
    whole = RoundReport()
    whole.add(RoundReport(1.0, 4, 5, 6, {"training": 2.0}))
    assert (whole.clients, whole.bytes_up, whole.bytes_down, whole.seconds) == (4, 5, 6, {"training": 2.0})
    assert math.isnan(whole.loss)
    assert RoundReport().seconds == {}, "no report shares its seconds with another"


def test_what_is_of_the_clients_or_of_what_they_did_is_private() -> None:
    names = ["clients.user", "ledger.visits", "server.items", "items", "server.clients.x", "Clients.x", "ledgers"]
    assert [is_private(name) for name in names] == [True, True, False, False, False, False, False]


def test_what_only_a_run_that_goes_on_needs_is_told_from_the_model() -> None:
    names = ["server.working.sum", "server.items", "working.sum", "secret.noise", "clients.secret.x"]
    assert [is_working(name) for name in names] == [True, False, False, False, False]
    assert [is_secret(name) for name in names] == [False, False, False, True, False]
    assert is_private("secret.noise")


def test_a_setup_is_a_run_on_the_cpu_of_which_nothing_else_is_said() -> None:
    setup = Setup()
    assert (setup.seed, setup.device.type) == (0, "cpu")
    assert (setup.privacy, setup.store_folder, setup.shares) == (None, None, None)


def test_who_scores_from_a_history_or_in_parts_is_known_by_how_it_can_be_asked() -> None:
    both = SimpleNamespace(scores_from=len, contributions=len, added=len)
    scoring = SimpleNamespace(scores_from=len)
    assert [isinstance(one, FromHistory) for one in (both, scoring)] == [True, False]
    assert [isinstance(one, OfParts) for one in (both, scoring)] == [True, False]
