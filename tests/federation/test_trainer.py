import math

import pytest

from fedrec.federation.trainer import RoundReport, is_private


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
