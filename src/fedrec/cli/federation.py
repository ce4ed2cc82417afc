"""``fedrec federation``: a real federation of separate machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedrec.cli import completing
from fedrec.cli.common import (
    DEFAULT_PROTOCOL,
    DataDirOption,
    JsonOption,
    MethodArgument,
    ProtocolOption,
    SeedOption,
    err,
    out,
    parse_settings,
    print_json,
    read_protocol,
)
from fedrec.cli.defaults import DEFAULTS
from fedrec.cli.privacy import (
    Central,
    Delta,
    Dp,
    DpClip,
    DpNoise,
    DpObserver,
    Epsilon,
    Ldp,
    LdpClip,
    LdpDelta,
    LdpScale,
    noise_of,
    privacy_of,
)
from fedrec.cli.tables import print_results
from fedrec.errors import ConfigError
from fedrec.methods import create
from fedrec.running.options import RunOptions
from fedrec.running.progress import ProgressDisplay

app = typer.Typer(help="A real federation: a server, and sites whose data never leave them.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The server's folder.")]
SiteFolder = Annotated[Path, typer.Argument(help="The site's folder.")]
HERE = Path()


def _needs_extra() -> None:
    try:
        import cryptography  # noqa: F401
        import flwr  # noqa: F401
    except ImportError:
        raise ConfigError("this needs the extra 'deploy': pip install 'fedrec[deploy]'.") from None


@app.command("new")
def new(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    sites: Annotated[int | None, typer.Option(help="Number of sites.", min=1)] = None,
    names: Annotated[str | None, typer.Option(help="Names of the sites, with commas between them.")] = None,
    items: Annotated[
        str | None, typer.Option(help="File with the column item, or data set: the items all sites agree on.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the federation.")] = "federation",
    host: Annotated[str, typer.Option(help="Name or address under which sites reach the server.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The server's port.", min=1, max=65535)] = 8000,
    listen: Annotated[str | None, typer.Option(help="Address the server listens on.")] = None,
    days: Annotated[int, typer.Option(help="Days until the certificates end.", min=1)] = 825,
    smallest_group: Annotated[
        int, typer.Option(help="Metrics over fewer users than these never leave a site.", min=1)
    ] = 10,
    sums_only: Annotated[
        bool, typer.Option("--sums-only", help="Sites run only methods whose server needs sums, over enough users.")
    ] = False,
    secure_only: Annotated[
        bool, typer.Option("--secure-only", help="Sites let sums leave behind secure aggregation only.")
    ] = False,
) -> None:
    """Make keys, certificates and a folder for the server and for each site."""
    _needs_extra()
    from fedrec.deploy.items import item_ids
    from fedrec.deploy.provision import provision

    chosen = [part.strip() for part in names.split(",")] if names else [f"site-{k + 1}" for k in range(sites or 0)]
    if not chosen:
        raise ConfigError("how many sites? Give --sites 3, or --names north,south.")
    if sites is not None and len(chosen) != sites:
        raise ConfigError(f"--sites {sites} and {len(chosen)} names contradict each other; leave one out.")
    ids = None if items is None else item_ids(items)
    provision(
        folder,
        chosen,
        items=ids,
        name=name,
        host=host,
        port=port,
        listen=listen,
        days=days,
        smallest_group=smallest_group,
        sums_only=sums_only,
        secure_only=secure_only,
    )
    err.print(f"made {folder}: read {folder / 'README.md'}", highlight=False, soft_wrap=True)


@app.command("catalogue")
def catalogue(
    folder: Folder, items: Annotated[str, typer.Argument(help="File with the column item, or data set.")]
) -> None:
    """Name the items that all sites agree on."""
    from fedrec.deploy.folders import server_settings, write_catalogue
    from fedrec.deploy.items import item_ids

    server_settings(folder)
    ids = item_ids(items)
    write_catalogue(folder, ids)
    err.print(f"{len(ids)} items", highlight=False)


@app.command("server")
def server(folder: Folder = HERE) -> None:
    """Be the server, until stopped."""
    _needs_extra()
    from fedrec.deploy.service import serve

    serve(folder)


@app.command("site")
def site(
    folder: SiteFolder = HERE,
    data: Annotated[Path | None, typer.Option(help="File with the site's interactions; it is remembered.")] = None,
    user_column: Annotated[str | None, typer.Option(help="Name of the user column.")] = None,
    item_column: Annotated[str | None, typer.Option(help="Name of the item column.")] = None,
    rating_column: Annotated[str | None, typer.Option(help="Name of the rating column.")] = None,
    time_column: Annotated[str | None, typer.Option(help="Name of the timestamp column.")] = None,
) -> None:
    """Be a site, until stopped."""
    _needs_extra()
    from fedrec.deploy.service import take_part

    named = {"user": user_column, "item": item_column, "rating": rating_column, "timestamp": time_column}
    take_part(folder, data, {key: value for key, value in named.items() if value})


@app.command("run")
def run(
    method: MethodArgument,
    server: Annotated[Path, typer.Option(help="The server's folder.")] = HERE,
    protocol: ProtocolOption = DEFAULT_PROTOCOL,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of training; by default the method's own number.", min=0)
    ] = DEFAULTS.rounds,
    seed: SeedOption = DEFAULTS.seed,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting of the method, key=value; repeat it.", autocompletion=completing.settings
        ),
    ] = None,
    protocol_set: Annotated[
        list[str] | None, typer.Option(help="A choice of the protocol, key=value; repeat it.")
    ] = None,
    merge: Annotated[str | None, typer.Option(help="How clients merge the downloaded table.")] = None,
    run_folder: Annotated[
        Path | None, typer.Option("--out", help="Run folder; by default runs/METHOD in the server's folder.")
    ] = None,
    evaluate_every: Annotated[int, typer.Option(help="Evaluate every so many rounds.", min=1)] = 1,
    checkpoint_every: Annotated[int, typer.Option(help="Write a checkpoint every so many rounds.", min=0)] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in its folder.")] = False,
    deadline: Annotated[float, typer.Option(help="Seconds a site has for an answer.", min=1)] = 600,
    min_sites: Annotated[int, typer.Option(help="Sites that must answer for a round to count.", min=1)] = 1,
    wait: Annotated[float, typer.Option(help="Seconds to wait for sites to connect.", min=0)] = 60,
    dp: Dp = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    dp_clip: DpClip = None,
    dp_noise: DpNoise = None,
    dp_observer: DpObserver = None,
    ldp: Ldp = None,
    ldp_clip: LdpClip = None,
    ldp_scale: LdpScale = None,
    ldp_delta: LdpDelta = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Behind secure aggregation: the server learns sums over all sites only.")
    ] = False,
    private_catalogue: Annotated[
        bool,
        typer.Option(
            "--private-catalogue", help="Items are what sites have, under hashes that the server cannot read."
        ),
    ] = False,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Train a method with the sites that are connected, on the server's machine."""
    _needs_extra()
    from fedrec.deploy.folders import server_settings
    from fedrec.deploy.service import run_at

    about = server_settings(server)
    chosen = read_protocol(protocol, parse_settings(protocol_set or [], "--protocol-set"))
    made = create(method, parse_settings(settings or []), protocol=protocol, data=about.name, merge=merge)
    options = RunOptions(
        rounds=rounds,
        seed=seed,
        out=run_folder or server / "runs" / method,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        resume=resume,
        progress=not quiet,
        privacy=noise_of(
            Central(dp, epsilon, delta, dp_clip, dp_noise, dp_observer),
            privacy_of(ldp, ldp_clip, ldp_scale, ldp_delta),
        ),
    )
    shown = [] if quiet else [ProgressDisplay(chosen)]
    result = run_at(
        server,
        made,
        chosen,
        options,
        deadline=deadline,
        min_sites=min_sites,
        wait=wait,
        secure=secure,
        private_catalogue=private_catalogue,
        listeners=shown,
        tell=lambda line: None if quiet else err.print(line, markup=False, highlight=False, soft_wrap=True),
    )
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        print_results([result])


@app.command("demo")
def demo(
    rounds: Annotated[int, typer.Option(help="Rounds of each method.", min=1)] = 3,
    data: Annotated[str, typer.Option(help="Data set.")] = "ml-100k",
    keep: Annotated[Path | None, typer.Option(help="Leave everything in this new folder.")] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Start a server and three sites on this machine, train with them, and compare with the simulation."""
    _needs_extra()
    from fedrec.cli.federation_demo import demo as show

    show(rounds, data, keep, data_dir)


@app.command("status")
def status(folder: Folder = HERE, as_json: JsonOption = False) -> None:
    """Which sites are connected, and which runs there are."""
    _needs_extra()
    from fedrec.deploy.service import connected_sites, runs_of

    sites, runs = connected_sites(folder), runs_of(folder)
    if as_json:
        print_json({"sites": [{"site": name, "status": state} for name, state in sites], "runs": runs})
        return
    table = Table("site", "status")
    for name, state in sites:
        table.add_row(name, state)
    out.print(table)
    if runs:
        table = Table("run", "method", "rounds", "state")
        for one in runs:
            table.add_row(
                one["run"], one["method"], f"{one['done']}/{one['rounds']}", "ended" if one["ended"] else "open"
            )
        out.print(table)


@app.command("recommend")
def recommend(
    user: Annotated[str, typer.Option(help="Original id of a user of this site.")],
    folder: SiteFolder = HERE,
    run: Annotated[
        str | None, typer.Option(help="Name of a run at this site; by default the newest that has ended.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Length of the list.", min=1)] = 10,
    as_json: JsonOption = False,
) -> None:
    """Print the best new items for a user, at the user's site; nothing is sent anywhere."""
    _needs_extra()
    from fedrec.cli.recommend import show_list
    from fedrec.deploy.recommending import recommend as best

    show_list(user, best(folder, user, k, run), as_json, k)
