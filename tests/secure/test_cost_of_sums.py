"""What a secure sum costs is counted as it is, and printed as a table."""

import pytest

from fedrec.secure.cost import COLUMNS, main, measure

pytest.importorskip("cryptography")


def test_a_case_is_measured_with_what_was_sent_plain_beside_it():
    found = measure(4, 500, drop=1)
    assert tuple(found) == COLUMNS
    assert (found["parties"], found["numbers"], found["ring"], found["dropped"], found["plain"]) == (
        4,
        500,
        64,
        1,
        2000,
    )
    assert found["party s"] > 0
    assert found["server s"] > 0
    assert found["sent"] > 8 * 500, "every number takes the bytes of the ring"
    assert found["received"] > 0


def test_a_smaller_ring_and_fewer_numbers_cost_fewer_bytes():
    """Of 2,000 numbers the halves of the ring are all that is saved; keys and shares stay."""
    large, small, few = measure(3, 2000), measure(3, 2000, ring=32), measure(3, 1000)
    assert large["sent"] - small["sent"] == pytest.approx(4 * 2000, abs=200)
    assert large["sent"] - few["sent"] == pytest.approx(8 * 1000, abs=200)


def test_a_table_has_a_row_for_every_case(capsys):
    main(["--parties", "3", "4", "--numbers", "10", "20", "--drop", "0", "1", "--ring", "64"])
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert head == "| " + " | ".join(COLUMNS) + " |"
    assert rule.count("---:") == len(COLUMNS)
    cases = [tuple(int(cell) for cell in row.strip("| ").split(" | ")[:4]) for row in rows]
    assert cases == [(p, n, 64, d) for n in (10, 20) for p in (3, 4) for d in (0, 1)]
