"""``fedrec data``: list, get, stats."""

from __future__ import annotations

from typing import Any

import typer

from fedrec.cli.common import (
    DataDirOption,
    FormatOption,
    JsonOption,
    NamesArgument,
    err,
    out,
    print_json,
    read_data,
)
from fedrec.cli.flags import sentence
from fedrec.cli.own_data import NOTHING, reads_own_files
from fedrec.cli.tables import plain_table, put
from fedrec.data import catalogue, filter_interactions, stats
from fedrec.errors import OptionError

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_sets(as_json: JsonOption = False, form: FormatOption = "text") -> None:
    """List the known data sets."""
    if as_json or form == "json":
        print_json({name: {"title": e.title, "terms": e.terms} for name, e in catalogue.items()})
        return
    rows = [
        [name, e.title, "yes" if e.timestamps else "no", *(f"{n:,}" for n in (e.users, e.items, e.rows))]
        for name, e in catalogue.items()
    ]
    put(plain_table(["name", "what", "time", "users", "items", "rows"], rows, texts=3), form)
    (out if form == "text" else err).print("Terms of use: fedrec data list --json. Get one with: fedrec data get NAME")


@app.command()
@reads_own_files
def get(
    names: NamesArgument,
    data_dir: DataDirOption = None,
    own: dict[str, Any] = NOTHING,
) -> None:
    """Find or download a data set and say what is in it."""
    data, _ = read_data(names, data_dir, own)
    err.print(
        f"{', '.join(names)}: {data.n_users:,} users, {data.n_items:,} items, {len(data):,} rows.", soft_wrap=True
    )
    if data.terms:
        err.print(f"Terms: {data.terms}", soft_wrap=True)


@app.command("stats")
@reads_own_files
def show_stats(
    names: NamesArgument,
    data_dir: DataDirOption = None,
    own: dict[str, Any] = NOTHING,
    min_interactions: int = typer.Option(10, min=1, help="Users with fewer rows are dropped in the filtered counts."),
    as_json: JsonOption = False,
    form: FormatOption = "text",
) -> None:
    """Count users, items and rows, raw and after the papers' filter."""
    data, _ = read_data(names, data_dir, own)
    raw = stats(data)
    found: dict[str, Any] = {"data": data.name, "raw": raw}
    try:
        kept = filter_interactions(data, min_per_user=min_interactions, positive_only=True)
    except OptionError as error:
        found |= {"filtered": None, "reason": sentence(error, "data")}
        err.print(found["reason"], soft_wrap=True, highlight=False)
    else:  # data that were read have no user or item without rows
        filtered = raw if len(kept) == len(data) else stats(kept)
        found["filtered"] = {"min_interactions": min_interactions} | filtered
    if as_json or form == "json":
        print_json(found | {key: raw[key] for key in ("users", "items", "rows")})
        return
    shown = found["filtered"] or dict.fromkeys(raw, "-")
    rows = [[key.replace("_", " "), _text(value), _text(shown[key])] for key, value in raw.items()]
    put(plain_table(["", "raw", f"users with >= {min_interactions} rows"], rows), form)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
