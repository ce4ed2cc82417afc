"""All commands in one place."""

from __future__ import annotations

import fedrec.cli.audit as audit
import fedrec.cli.bench as bench
import fedrec.cli.compare as compare
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
from fedrec.cli.root import add_data, root

app = root()
add_data(app)
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
