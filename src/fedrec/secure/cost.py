"""What a secure sum costs: seconds of processor time and bytes per party, measured in one process.

python -m fedrec.secure.cost --parties 3 10 --numbers 27000 60000 --drop 1
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Literal

import torch

from fedrec.secure.in_process import Step, secure_sum

COLUMNS = ("parties", "numbers", "ring", "dropped", "party s", "server s", "sent", "received", "plain")


def measure(parties: int, numbers: int, drop: int = 0, ring: Literal[32, 64] = 64) -> dict[str, float]:
    """One round of random floats, from which the last ``drop`` parties vanish after they shared their secrets."""
    rng = torch.Generator().manual_seed(0)
    totals = [{"x": torch.randn(numbers, generator=rng)} for _ in range(parties)]
    silent: dict[int, Step] = dict.fromkeys(range(parties - drop, parties), "masked")
    found = secure_sum(totals, silent, bounds={"x": 8.0}, ring=ring)
    stayed, cost = found.parties, found.cost
    plain = sum(totals[party]["x"].double() for party in stayed)
    assert torch.allclose(found.total["x"].double(), torch.as_tensor(plain), atol=1e-4)
    values = (
        *(parties, numbers, ring, drop),
        max(cost.seconds[party] for party in stayed),
        cost.server_seconds,
        *(max(bytes_of[party] for party in stayed) for bytes_of in (cost.sent, cost.received)),
        4 * numbers,
    )
    return dict(zip(COLUMNS, values, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """A row per case as it is measured."""
    parser = argparse.ArgumentParser(prog="python -m fedrec.secure.cost", description=__doc__)
    parser.add_argument("--parties", type=int, nargs="+", default=[3, 10, 50])
    parser.add_argument("--numbers", type=int, nargs="+", default=[27_000, 60_000])
    parser.add_argument("--drop", type=int, nargs="+", default=[0])
    parser.add_argument("--ring", type=int, nargs="+", choices=[32, 64], default=[64])
    chosen = parser.parse_args(arguments)
    measure(2, 1)  # libraries are loaded
    print("| " + " | ".join(COLUMNS) + " |\n|" + " ---: |" * len(COLUMNS))
    for numbers in chosen.numbers:
        for parties in chosen.parties:
            for drop in chosen.drop:
                for ring in chosen.ring:
                    row = measure(parties, numbers, drop, ring).items()
                    print("| " + " | ".join(f"{v:.3f}" if name.endswith(" s") else f"{v:,}" for name, v in row) + " |")


if __name__ == "__main__":
    main()
