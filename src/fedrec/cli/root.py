"""The command that all others stand under, and those that only read data, which start without torch and all."""

from __future__ import annotations

from typing import Annotated

import typer

import fedrec.cli.data as data


def root() -> typer.Typer:
    """``fedrec`` without a command."""
    app = typer.Typer(
        name="fedrec",
        help="Federated recommendation: train, judge and use recommenders that never collect what people did.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(main)
    return app


def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Federated recommendation: train, judge and use recommenders that never collect what people did."""


def add_data(app: typer.Typer) -> None:
    """Add ``fedrec data``."""
    app.add_typer(data.app, name="data", help="Data sets: list, get, describe.")


def data_only() -> typer.Typer:
    """``fedrec`` where it is known that ``data`` follows."""
    app = root()
    add_data(app)
    return app
