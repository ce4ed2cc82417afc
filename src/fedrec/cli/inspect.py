"""``fedrec methods`` and ``fedrec protocols``."""

from __future__ import annotations

from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from fedrec import methods
from fedrec.cli.common import JsonOption, err, out, print_json
from fedrec.errors import ConfigError
from fedrec.federation.recommender import Recommender
from fedrec.methods import create
from fedrec.methods.cost import bytes_per_round
from fedrec.protocol.presets import PRESETS, SUMMARIES


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("methods")(list_methods)
    app.command("protocols")(list_protocols)


def list_methods(as_json: JsonOption = False) -> None:
    """List the methods: what each keeps private, uploads and stores on the server, and what the server sees of uploads."""
    rows = []
    for name in methods.names():
        try:
            rows.append(_describe(name))
        except ConfigError as error:  # somebody else's, installed beside this package
            err.print(escape(str(error)), soft_wrap=True)
    if as_json:
        print_json(rows)
        return
    table = Table(
        "method",
        "what",
        "private on the client",
        "uploaded",
        "the server sees",
        "kept by the server",
        "KB up",
        "KB down",
    )
    for row in rows:
        sent = row["bytes_ml_1m_d16"]
        size = ["-", "-"] if sent is None else [f"{sent[way] / 1e3:,.1f}" for way in ("up", "down")]
        table.add_row(row["name"], row["title"], row["private"], row["uploaded"], row["sees"], row["server"], *size)
    out.print(table)
    out.print("KB: per client and round at the size of MovieLens-1M, d = 16, where the method has an embedding size.")


def _describe(name: str) -> dict[str, Any]:
    kind = methods.find(name)
    sent = bytes_per_round(name)
    return {
        "name": name,
        "title": kind.title,
        "paper": kind.paper,
        "private": kind.private,
        "uploaded": kind.uploaded,
        "sees": _sees(kind),
        "server": kind.server_keeps,
        "bytes_ml_1m_d16": None if sent is None else {"up": sent[0], "down": sent[1]},
        "settings": kind.configure({}).model_dump(mode="json"),
    }


def _sees(kind: type[Recommender]) -> str:
    """What the server sees with the settings a run has by default; where settings decide it, with the others, too."""
    usual = create(kind.name)
    other = kind.kind_for(kind.configure({})).sees
    return usual.sees if usual.sees == other else f"{usual.sees}; {other} with other settings"


def list_protocols(as_json: JsonOption = False) -> None:
    """List the protocols, every choice they make, and whether they leak."""
    if as_json:
        print_json(
            {
                name: p.model_dump(mode="json") | {"leaks": p.leaks, "why": list(p.leak_reasons)}
                for name, p in PRESETS.items()
            }
        )
        return
    table = Table("protocol", "leaks", "what")
    for name, preset in PRESETS.items():
        why = f"{SUMMARIES[name]}. {'; '.join(preset.leak_reasons).capitalize()}" if preset.leaks else SUMMARIES[name]
        table.add_row(name, "[red]yes[/red]" if preset.leaks else "no", why)
    out.print(table)
