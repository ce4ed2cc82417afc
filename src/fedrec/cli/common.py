"""What commands share: options, JSON on stdout, everything else on stderr.

Commands that only read data start without torch, which takes longer to load than most data to read; so nothing here imports it
before it is used.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedrec.cli import completing
from fedrec.cli.flags import flag
from fedrec.data import Interactions
from fedrec.data.loading import is_file, known_by_name, load_any
from fedrec.errors import ConfigError, unknown
from fedrec.screen import screen
from fedrec.settings import finite, read_value

if TYPE_CHECKING:
    from fedrec.protocol import Protocol

err = screen(stderr=True)
out = screen()
DEFAULT_PROTOCOL, DEFAULT_DATA = "honest", ["ml-100k"]

DATA, TRAINING, FOLDER, PRIVACY, OUTPUT = "Data and protocol", "Training", "Run folder", "Privacy", "Output"
OWN = "Files of your own"
"""Groups of options in the help of a command that has many."""


def check_seed(seed: int) -> int:
    """Seeds are whole numbers of 63 bits."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"--seed is {seed}; give a whole number from 0 to {2**63 - 1}.")
    return seed


def named_path(text: str) -> Path:
    """A path that is not empty."""
    return Path(str(check_path(text)))


def check_path(value: str | None) -> str | None:
    """An empty path would be the folder one is in."""
    if value == "":
        raise ConfigError("a path is empty; give a name, or leave the option out.")
    return value


_data = partial(typer.Option, "--data", metavar="NAME|PATH", rich_help_panel=DATA, autocompletion=completing.data_sets)
DataOption = Annotated[str, _data(help="Name of a known data set, or path of a CSV or Parquet file.")]
DataListOption = Annotated[
    list[str], _data(help="Name of a known data set, or path of a CSV or Parquet file; repeat it, or quote a '*.csv'.")
]
DataDirOption = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        help="Folder with <name>/ratings.csv.gz (also: FEDREC_DATA).",
        callback=check_path,
        rich_help_panel=DATA,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed", metavar="N", callback=check_seed, help="Seed of everything random.", rich_help_panel=TRAINING
    ),
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME",
        help="Name of a known data set, or path of a file or several.",
        autocompletion=completing.data_sets,
    ),
]
MethodArgument = Annotated[
    str,
    typer.Argument(
        help="Name of a method ('fedrec methods'), or file.py:Class.", autocompletion=completing.method_names
    ),
]
ProtocolOption = Annotated[
    str,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="honest, paper, pfedrec or hetefedrec; with choices: honest:candidates=0.",
        rich_help_panel=DATA,
        autocompletion=completing.protocols,
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="auto, cpu, cuda or cuda:1.",
        rich_help_panel=TRAINING,
        autocompletion=completing.devices,
    ),
]
RunFolder = Annotated[Path, typer.Argument(help="Folder of a finished run (what --out named).")]
OwnMethodOption = Annotated[
    str | None,
    typer.Option("--method", metavar="FILE:CLASS", help="Of a run of a method of your own, in a file."),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.", rich_help_panel=OUTPUT),
]

Form = Literal["text", "markdown", "latex", "csv", "json"]
FormatOption = Annotated[
    Form,
    typer.Option(
        "--format",
        metavar="FORM",
        help="Of tables: text, markdown, latex, csv, or json, which is what --json prints.",
        rich_help_panel=OUTPUT,
    ),
]


def print_json(value: Any) -> None:
    """One object on stdout, readable by every JSON reader: no NaN, no infinity."""
    print(json.dumps(finite(value), indent=2, allow_nan=False))


def read_data(
    name: str | list[str], data_dir: str | None, own: dict[str, Any] | None = None
) -> tuple[Interactions, dict[str, Any]]:
    """A data set by name, or files with the options of reading them, and how to find it again."""
    names = [name] if isinstance(name, str) else name
    if not all(names):
        raise ConfigError("--data is empty; give the name of a data set or the path of a file.")
    for one in names:
        if not known_by_name(one) and _is_file(one):
            continue
        if len(names) > 1:
            raise ConfigError(f"--data names several files, and '{one}' is no file; give one data set, or files only.")
        for option in (own or {}).keys() - {"items"}:
            value = (own or {})[option]
            raise ConfigError(
                f"{flag(option, value).split()[0]} is for files of your own, and '{one}' is a data set by name; leave it "
                "out, or give --data a path."
            )
    data, source = load_any(names, data_dir, own)
    for note in data.notes:
        err.print(note, soft_wrap=True, highlight=False)
    return data, source


def _is_file(name: str) -> bool:
    """Whether a name is a path: there is such a file, or it looks like one."""
    try:
        return is_file(name)
    except OSError as error:
        shown = name if len(name) <= 100 else f"{name[:100]}... ({len(name):,} characters)"
        raise ConfigError(f"--data {shown} cannot be a file ({error.strerror}); give a shorter path.") from None


def parse_settings(pairs: list[str], option: str = "--set") -> dict[str, Any]:
    """``key=value`` words; values are read as JSON where they are JSON, else as text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise ConfigError(f"{option} takes key=value, not '{pair}'.")
        if (name := key.strip()) in settings:
            raise ConfigError(f"{option} gives {name} twice; leave one out.")
        settings[name] = read_value(text.strip())
    return settings


def read_protocol(name: str, options: dict[str, Any]) -> Protocol:
    """A preset, with choices changed."""
    from fedrec.protocol import preset

    chosen = preset(name)
    return chosen.with_options(**options) if options else chosen


def choice(kind: str, value: str, known: tuple[str, ...]) -> str:
    """The value if it is known."""
    if value not in known:
        raise ConfigError(unknown(kind, value, known))
    return value
