"""``fedrec methods`` and ``fedrec protocols``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.text import Text

from fedrec import methods
from fedrec.cli import completing
from fedrec.cli.common import DEFAULT_PROTOCOL, Form, FormatOption, JsonOption, err, out, print_json
from fedrec.cli.tables import plain_table, put
from fedrec.errors import ConfigError
from fedrec.methods import create
from fedrec.methods.citing import bibtex
from fedrec.methods.cost import bytes_per_round
from fedrec.methods.own_file import is_own_file
from fedrec.methods.tuned import tuned
from fedrec.protocol.presets import PRESETS, SUMMARIES
from fedrec.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("methods")(methods_command)
    app.command("protocols")(protocols_command)


def methods_command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One method, in detail.", autocompletion=completing.method_names),
    ] = None,
    as_json: JsonOption = False,
    form: FormatOption = "text",
    as_bibtex: Annotated[bool, typer.Option("--bibtex", help="Print whom to cite, as BibTeX.")] = False,
) -> None:
    """List the methods and what each server sees of uploads; with a NAME, all about one: what stays private, every setting."""
    as_json = as_json or form == "json"
    if as_bibtex:
        _print_bibtex(name)
        return
    if name is not None:
        found = describe(name)
        if as_json:
            print_json(found)
        else:
            _print_details(found, form)
        return
    rows = []
    for known in methods.names():
        try:
            rows.append(describe(known) if as_json else _brief(known))
        except ConfigError as error:  # somebody else's, installed beside this package
            err.print(str(error), soft_wrap=True)
    if as_json:
        print_json(rows)
        return
    taken = [max(len(row[key]) for row in rows) for key in ("name", "sees")]
    room = max(
        10, out.width - max(taken[0], 6) - max(taken[1], 15) - 4
    )  # beside the heads and their gaps: one line each
    room = room if form == "text" else 1000
    cells = [[row["name"], row["sees"], _cut(row["title"], room)] for row in rows]
    put(plain_table(["method", "the server sees", "what"], cells, texts=3), form)
    if form != "text":
        return
    if any("*" in row["sees"] for row in rows):
        out.print("* more with other settings")
    out.print("More of one, and its settings: fedrec methods NAME", soft_wrap=True)


def _print_bibtex(name: str | None) -> None:
    """Entries of one method, or of all, each once."""
    if name is not None:
        methods.find(name)
    entries = dict.fromkeys(entry for known in ([name] if name else methods.names()) for entry in bibtex(known))
    if not entries:
        raise ConfigError(f"{name} follows no paper that is known here; leave --bibtex out.")
    print("\n\n".join(entries))


def _brief(name: str) -> dict[str, Any]:
    kind = methods.find(name)
    usual, other = _sees(name)
    return {"name": name, "title": kind.title, "sees": usual if usual == other else f"{usual} *"}


def describe(name: str) -> dict[str, Any]:
    """All that is known of a method."""
    kind = methods.find(name)
    sent, (usual, other) = bytes_per_round(name), _sees(name)
    usual_settings = kind.configure({})
    return {
        "name": kind.name if is_own_file(name) else name,
        "title": kind.title,
        "paper": kind.paper,
        "private": kind.private,
        "uploaded": kind.uploaded,
        "sees": usual if usual == other else f"{usual}; {other} with other settings",
        "server": kind.server_keeps,
        "rounds": kind(usual_settings).rounds,
        "tuned": tuned(name, DEFAULT_PROTOCOL),
        "bytes_ml_1m_d16": None if sent is None else {"up": sent[0], "down": sent[1]},
        "of_parts": kind.of_parts,
        "settings": settings_of(kind.Config, usual_settings),
    }


def settings_of(kind: type[Settings], usual: Settings) -> dict[str, dict[str, Any]]:
    """Form, default and meaning of every setting."""
    values = usual.model_dump(mode="json")
    return {
        name: {"type": kind.form(name), "default": values[name], "meaning": kind.meaning(name)}
        for name in kind.model_fields
    }


def _sees(name: str) -> tuple[str, str]:
    """What the server sees with the settings a run has by default, and with those of the class."""
    kind = methods.find(name)
    return create(name).sees, kind.kind_for(kind.configure({})).sees


def _print_details(found: dict[str, Any], form: Form) -> None:
    rows = [[name, _value(one["default"]), one["type"], one["meaning"]] for name, one in found["settings"].items()]
    settings = plain_table(["setting", "default", "values", "meaning"], rows, texts=4)
    if form != "text":
        put(settings, form)
        return
    out.print(f"{found['name']}: {found['title']}", style="bold")
    sent = found["bytes_ml_1m_d16"]
    about = {
        "paper": found["paper"],
        "private on the client": found["private"],
        "uploaded": found["uploaded"],
        "the server sees": found["sees"],
        "kept by the server": found["server"],
        "per client and round": ("what its parts need" if found["of_parts"] else "")
        if sent is None
        else f"{sent['up'] / 1e3:,.1f} KB up, {sent['down'] / 1e3:,.1f} KB down, at the size of MovieLens-1M, d = 16",
        "rounds": str(found["rounds"]),
        f"tuned for {DEFAULT_PROTOCOL}": ", ".join(f"{key}={_value(value)}" for key, value in found["tuned"].items()),
    }
    for what, words in about.items():
        if words:
            out.print(f"{what}: {words}")
    out.print()
    if rows:
        put(settings)
        out.print("--set SETTING=VALUE wins over tuned values, and these over defaults.", soft_wrap=True)
    else:
        out.print("It has no settings.")


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "none" if value is None else json.dumps(value)


def protocols_command(as_json: JsonOption = False, form: FormatOption = "text") -> None:
    """List the protocols, every choice they make, and whether they leak."""
    if as_json or form == "json":
        print_json(
            {
                name: p.model_dump(mode="json") | {"leaks": p.leaks, "why": list(p.leak_reasons)}
                for name, p in PRESETS.items()
            }
        )
        return
    rows = [
        [
            name,
            Text("yes", "red") if preset.leaks else "no",
            f"{SUMMARIES[name]}. {'; '.join(preset.leak_reasons).capitalize()}" if preset.leaks else SUMMARIES[name],
        ]
        for name, preset in PRESETS.items()
    ]
    put(plain_table(["protocol", "leaks", "what"], rows, texts=3), form)
