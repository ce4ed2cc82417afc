"""``fedrec train --dry-run``: what a run will need, in words."""

from __future__ import annotations

from fedrec.cli.common import err, out, print_json
from fedrec.cli.tables import plain_table
from fedrec.running.estimate import Estimate


def tell(found: Estimate, as_json: bool) -> None:
    """One object, or a table."""
    if as_json:
        print_json(found)
        return
    rows = [
        ["state of all clients", _bytes(found["private_bytes"])],
        ["state of the server", _bytes(found["server_bytes"])],
        ["memory that is free", _bytes(found["free_bytes"])],
        ["a checkpoint, at most", _bytes(found["checkpoint_bytes"])],
        ["clients send in a round", _bytes(found["bytes_up_per_round"])],
        ["clients receive in a round", _bytes(found["bytes_down_per_round"])],
        ["a round", _time(found["seconds_per_round"])],
        ["an evaluation", _time(found["seconds_per_evaluation"])],
        [f"all {found['rounds']} rounds", _time(found["seconds"])],
    ]
    title = f"{found['method']}: {found['clients']:,} clients, {found['items']:,} items"
    out.print(plain_table(("what", "about"), rows, title=title))
    if not found["fits"]:
        err.print(
            "This does not fit into memory: lower dim, filter the data, or keep client state on disk (--store disk).",
            style="yellow",
            soft_wrap=True,
        )


def _bytes(number: float | None) -> str:
    if number is None:
        return "unknown"
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB" if number < 1000 else f"{number / 1000:.3g} TB"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
