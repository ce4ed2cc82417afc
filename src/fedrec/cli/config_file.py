"""A configuration file for ``fedrec train``: every option by its name, in TOML.

``fedrec train`` writes one into every run folder. What stands in a file is like a default: whatever is said on the
command line wins, setting by setting.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from typer import Context

from fedrec.data.loading import known_by_name
from fedrec.errors import ConfigError, unknown
from fedrec.methods.own_file import found_from_anywhere
from fedrec.running.files import write_text
from fedrec.running.listeners import Listener, RunStart
from fedrec.running.saving import CONFIG
from fedrec.running.toml import toml_lines
from fedrec.version import installed_version

TABLES = {"settings": "--set", "protocol_set": "--protocol-set"}
"""Options that are tables in a file: names and values, each of which the command line can change."""
NEVER = ("config", "resume", "out", "as_json", "format", "quiet", "dry_run")
"""Options that say where a run goes and what is printed, not what is run: they are read, but not written."""


def take_config(context: Context, path: Path | None) -> Path | None:
    """The callback of an eager option: all that the file says becomes the default of the other options."""
    if path is None:
        return None
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read ({error.strerror}); check its path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration {path} is no TOML: {error}.") from None
    context.meta["tables"] = {name: _table(values.pop(name, {}), name, path) for name in TABLES}
    run = _table(values.pop("run", {}), "run", path)
    if "progress" in run:
        run["quiet"] = run.pop("progress") is False
    known = {option.name: option for option in context.command.params if option.name not in ("config", *TABLES)}
    defaults = {}
    for key, value in [*values.items(), *run.items()]:
        name = key.replace("-", "_")
        if name not in known:
            raise ConfigError(unknown(f"option in {path}", key, [*map(str, known), *TABLES, "run"]))
        several = known[name].multiple and not isinstance(value, list | dict)
        defaults[name] = _checked(known[name], [value] if several else value, key, path, context)
    context.default_map = defaults
    return path


def table_of(context: Context, name: str) -> dict[str, Any]:
    """One of the tables of the configuration, if there is one."""
    found: dict[str, Any] = context.meta.get("tables", {}).get(name, {})
    return found


def from_file(context: Context, name: str) -> bool:
    """Whether an option has its value from the configuration."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


class ConfigWriter(Listener):
    """Writes the configuration of a run into its folder, once the folder is the run's."""

    def __init__(self, folder: Path, text: Callable[[int], str]) -> None:
        """The folder, and what to write there for a number of rounds."""
        self._path, self._text = folder / CONFIG, text

    def start(self, run: RunStart) -> None:
        """Write it, also when the run goes on with more rounds."""
        write_text(self._path, self._text(run.rounds))


def config_text(context: Context, resolved: dict[str, Any]) -> str:
    """The options of this call as a file from which it can be repeated; ``resolved`` are those that became something else."""
    tables = {name: resolved[name] for name in TABLES}
    values: dict[str, Any] = {}
    for option in context.command.params:
        name = str(option.name)
        if name in NEVER or name in TABLES or name == "help":
            continue
        value = resolved.get(name, context.params.get(name))
        if value is not None and value != [] and value != ():
            values[name] = _found_from_anywhere(option, value)
    lines = [
        f"# fedrec {installed_version()}: 'fedrec train --config FILE' repeats this run; the command line wins.",
        *toml_lines(values),
    ]
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]", *toml_lines(table)]
    return "\n".join(lines) + "\n"


def _found_from_anywhere(option: click.Parameter, value: Any) -> Any:
    """A path as it is found from every folder; other values as they are."""
    if isinstance(value, list | tuple):
        return [_found_from_anywhere(option, part) for part in value]
    if isinstance(value, str) and option.name == "method":
        return found_from_anywhere(value)
    if any(word in str(option.metavar) for word in ("PATH", "FILE", "FOLDER")) and not known_by_name(str(value)):
        return str(Path(value).resolve())
    return str(value) if isinstance(value, Path) else value


def _table(value: Any, name: str, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"the configuration {path}: {name} is a table of names and values, written [{name}].")
    return dict(value)


def _checked(option: click.Parameter, value: Any, key: str, path: Path, context: Context) -> Any:
    """A value that the option can take, or a sentence that names the file."""
    parts = value if isinstance(value, list) else [value]
    if isinstance(value, dict) or isinstance(value, list) != (option.multiple or option.nargs == -1):
        form = "a list" if option.multiple else "one value"
        raise ConfigError(f"the configuration {path}: {key} takes {form}, not {value!r}.")
    for part in parts:
        flag = isinstance(option.type, click.types.BoolParamType)
        if flag != isinstance(part, bool):
            raise ConfigError(
                f"the configuration {path}: {key} is {part!r}; "
                + ("use true or false." if flag else "this is no truth.")
            )
        try:
            option.type.convert(part, option, context)
        except click.UsageError as error:
            raise ConfigError(f"the configuration {path}: {key} is {part!r}; {error.message}") from None
    return value
