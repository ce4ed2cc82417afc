"""The options of reading files of one's own, the same for every command that reads data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Annotated, Any

import typer

from fedrec.cli.common import OWN, check_path

NOTHING: dict[str, Any] = {}
_own = partial(typer.Option, rich_help_panel=OWN)


def reads_own_files(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options below in place of its parameter ``own``, which gets what was said as options of ``read``."""
    signature, options = inspect.signature(command, eval_str=True), inspect.signature(_options, eval_str=True)

    @wraps(command)
    def with_options(**values: Any) -> None:
        own = _options(**{name: values.pop(name) for name in options.parameters})
        command(**values, own=own)

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        parameters += options.parameters.values() if name == "own" else [parameter]
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_options


def _options(
    user_column: Annotated[
        str | None, _own(metavar="NAME", help="Of the user; usual names are known. A number without a header.")
    ] = None,
    item_column: Annotated[str | None, _own(metavar="NAME", help="Of the item.")] = None,
    rating_column: Annotated[str | None, _own(metavar="NAME", help="Of the rating or count; none: ignore it.")] = None,
    time_column: Annotated[str | None, _own(metavar="NAME", help="Of the time; none: ignore it.")] = None,
    delimiter: Annotated[str | None, _own(metavar="SIGN", help="What parts columns, if it is not seen.")] = None,
    header: Annotated[
        bool | None, _own("--header/--no-header", help="Whether the first line names columns, if it is not seen.")
    ] = None,
    encoding: Annotated[str | None, _own(metavar="NAME", help="Such as latin-1; UTF-8 unless given.")] = None,
    where: Annotated[
        list[str] | None, _own(metavar="CONDITION", help="Rows to read: event=buy,cart or price>=10. Repeat it.")
    ] = None,
    drop_empty: Annotated[bool, _own("--drop-empty", help="Leave out rows without a user or an item.")] = False,
    min_rating: Annotated[float | None, _own(metavar="X", help="Leave out rows rated lower.")] = None,
    min_count: Annotated[int, _own(metavar="N", help="Leave out a user's items with fewer rows than this.", min=1)] = 1,
    items: Annotated[
        str | None, _own(metavar="FILE", help="Titles of items: id, title, more.", callback=check_path)
    ] = None,
) -> dict[str, Any]:
    """What was said, as ``fedrec.read`` takes it."""
    columns = {"user": user_column, "item": item_column, "rating": rating_column, "timestamp": time_column}
    found: dict[str, Any] = {role: name for role, name in columns.items() if name is not None}
    for role in ("rating", "timestamp"):
        if found.get(role) == "none":
            found[role] = None
    said = {
        "delimiter": delimiter,
        "header": header,
        "encoding": encoding,
        "where": where or None,
        "drop_empty": drop_empty or None,
        "min_rating": min_rating,
        "min_count": min_count if min_count > 1 else None,
        "items": items,
    }
    return found | {name: value for name, value in said.items() if value is not None}
