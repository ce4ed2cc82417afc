"""All commands in one place."""

from __future__ import annotations

from typing import Annotated

import typer

import fedrec.cli.audit as audit
import fedrec.cli.bench as bench
import fedrec.cli.compare as compare
import fedrec.cli.data as data
import fedrec.cli.export as export
import fedrec.cli.federation as federation
import fedrec.cli.inspect as inspect
import fedrec.cli.quickstart as quickstart
import fedrec.cli.recommend as recommend
import fedrec.cli.report as report
import fedrec.cli.reproduce as reproduce
import fedrec.cli.serve as serve
import fedrec.cli.show as show
import fedrec.cli.train as train
import fedrec.cli.tune as tune

app = typer.Typer(
    name="fedrec",
    help="Federated recommendation: train, judge and use recommenders that never collect what people did.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Federated recommendation: train, judge and use recommenders that never collect what people did."""


app.add_typer(data.app, name="data", help="Data sets: list, get, describe.")
app.add_typer(federation.app, name="federation")
for module in (
    quickstart,
    train,
    recommend,
    export,
    serve,
    show,
    report,
    inspect,
    audit,
    bench,
    reproduce,
    compare,
    tune,
):
    module.register(app)
