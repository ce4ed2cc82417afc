"""What commands share: options, JSON on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedrec.data import Interactions, catalogue, load, read_csv
from fedrec.errors import ConfigError, unknown
from fedrec.protocol import Protocol, preset
from fedrec.running.options import RunOptions

err = Console(stderr=True)
out = Console() if sys.stdout.isatty() else Console(width=120)
DEFAULTS = RunOptions()
"""Defaults of everything that is an option of a run in Python, too."""

DataOption = Annotated[str, typer.Option("--data", help="Name of a known data set, or path of a CSV or Parquet file.")]
DataDirOption = Annotated[
    str | None, typer.Option("--data-dir", help="Folder with <name>/ratings.csv.gz (also: FEDREC_DATA).")
]
ProtocolOption = Annotated[str, typer.Option("--protocol", help="honest, paper, pfedrec or hetefedrec.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Seed of everything random.")]
RunFolder = Annotated[Path, typer.Argument(help="Folder of a finished run (what --out named).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")]


def print_json(value: Any) -> None:
    """One object on stdout."""
    print(json.dumps(value, indent=2))


def read_data(
    name: str, data_dir: str | None, columns: dict[str, Any] | None = None
) -> tuple[Interactions, dict[str, Any]]:
    """A data set by name or file (with the names of its columns), and how to find it again."""
    if not name:
        raise ConfigError("--data is empty; give the name of a data set or the path of a file.")
    if name in catalogue or name == "demo":
        return load(name, data_dir=data_dir), {"name": name}
    path = Path(name)
    if path.exists() or path.suffix or "/" in name:
        data = read_csv(path, **(columns or {}))
        for note in data.notes:
            err.print(note, markup=False, highlight=False, soft_wrap=True)
        return data, {"path": str(path.resolve())} | (columns or {})
    return load(name, data_dir=data_dir), {"name": name}


def parse_settings(pairs: list[str], option: str = "--set") -> dict[str, Any]:
    """``key=value`` words; values are read as JSON where they are JSON, else as text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise ConfigError(f"{option} takes key=value, not '{pair}'.")
        settings[key.strip()] = parse_value(text.strip())
    return settings


def parse_value(text: str) -> Any:
    """A number, list, true/false or null where the text is one, else the text; what "none" means the setting knows."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false", "null") else text)
    except (ValueError, RecursionError):
        return text.lower() if text.lower() == "none" else text


def read_protocol(name: str, settings: list[str]) -> Protocol:
    """A preset, with choices changed by ``--protocol-set``."""
    options = parse_settings(settings, "--protocol-set")
    chosen = preset(name)
    return chosen.with_options(**options) if options else chosen


def choice(kind: str, value: str, known: tuple[str, ...]) -> str:
    """The value if it is known."""
    if value not in known:
        raise ConfigError(unknown(kind, value, known))
    return value
