"""``fedrec train``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedrec.api import train
from fedrec.cli import completing
from fedrec.cli.common import (
    DATA,
    DEFAULT_DATA,
    DEFAULT_PROTOCOL,
    FOLDER,
    OUTPUT,
    PRIVACY,
    TRAINING,
    DataDirOption,
    DataListOption,
    DeviceOption,
    FormatOption,
    JsonOption,
    MethodArgument,
    SeedOption,
    check_path,
    choice,
    err,
    parse_settings,
    print_json,
    read_data,
    read_protocol,
)
from fedrec.cli.config_file import ConfigWriter, config_text, from_file, table_of, take_config
from fedrec.cli.defaults import DEFAULTS
from fedrec.cli.dry_run import tell
from fedrec.cli.own_data import NOTHING, reads_own_files
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
from fedrec.cli.splitting import split_data, tell_filtered
from fedrec.cli.tables import print_results
from fedrec.errors import ConfigError
from fedrec.methods import create
from fedrec.protocol.given import GIVEN, given_split
from fedrec.protocol.whole import WHOLE
from fedrec.running.estimate import estimate
from fedrec.running.options import RunOptions
from fedrec.running.saved import read_result
from fedrec.running.saving import RESULT


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train_command)


ALWAYS_LAST = 10**9
"""Evaluating so seldom is evaluating after the last round."""
_data = partial(typer.Option, rich_help_panel=DATA)
_training = partial(typer.Option, rich_help_panel=TRAINING)
_folder = partial(typer.Option, rich_help_panel=FOLDER)
_privacy = partial(typer.Option, rich_help_panel=PRIVACY)


@reads_own_files
def train_command(
    context: typer.Context,
    method: MethodArgument,
    data: DataListOption = DEFAULT_DATA,
    data_dir: DataDirOption = None,
    own: dict[str, Any] = NOTHING,
    protocol: Annotated[
        str | None,
        _data(
            metavar="NAME",
            help="honest (default), paper, pfedrec or hetefedrec; with choices: honest:candidates=0.",
            autocompletion=completing.protocols,
        ),
    ] = None,
    protocol_set: Annotated[
        list[str] | None,
        _data(
            metavar="KEY=VALUE", help="A choice of the protocol; repeat it.", autocompletion=completing.protocol_choices
        ),
    ] = None,
    split_file: Annotated[
        str | None,
        _data(metavar="PATH", help="Test pairs (user,item) of a published split.", callback=check_path),
    ] = None,
    final: Annotated[
        bool, _data("--final", help="Train on all rows and hold out nothing: for use, once settings are chosen.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        _training(
            "--set",
            metavar="KEY=VALUE",
            help="A setting; 'fedrec methods NAME' lists them. Repeat it.",
            autocompletion=completing.settings,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        _training(
            metavar="FILE",
            callback=take_config,
            is_eager=True,
            help="TOML: all this and METHOD; runs and 'tune' write one.",
        ),
    ] = None,
    merge: Annotated[
        str | None,
        _training(metavar="MODE", help="How clients merge tables: elastic, dynamic, static, replace, none."),
    ] = None,
    rounds: Annotated[
        int | None, _training(metavar="N", help="By default the method's own number.", min=0)
    ] = DEFAULTS.rounds,
    seed: SeedOption = DEFAULTS.seed,
    evaluate_every: Annotated[
        int, _training(metavar="N", help="Evaluate every so many rounds.", min=1)
    ] = DEFAULTS.evaluate_every,
    evaluate_users: Annotated[
        int | None, _training(metavar="N", help="Evaluate a random sample of so many users.", min=2)
    ] = DEFAULTS.evaluate_users,
    device: DeviceOption = DEFAULTS.device,
    threads: Annotated[
        int | None, _training(metavar="N", help="CPU threads; 1 beside other runs.", min=1)
    ] = DEFAULTS.threads,
    store: Annotated[str, _training(metavar="WHERE", help="Client state: memory, disk or disk-half.")] = DEFAULTS.store,
    out: Annotated[
        str | None, _folder(metavar="FOLDER", help="For logs, checkpoints, result and model.", callback=check_path)
    ] = None,
    resume: Annotated[bool, _folder("--resume", help="Continue the run in --out.")] = DEFAULTS.resume,
    checkpoint_every: Annotated[
        int, _folder(metavar="N", help="Write a checkpoint every so many rounds.", min=0)
    ] = DEFAULTS.checkpoint_every,
    keep_checkpoints: Annotated[
        bool, _folder("--keep-checkpoints", help="Keep them at the end, so that rounds can be added.")
    ] = DEFAULTS.keep_checkpoints,
    keep_model: Annotated[
        bool, _folder("--keep-model/--no-model", help="Save the model, or only what came of it.")
    ] = DEFAULTS.keep_model,
    tensorboard: Annotated[bool, _folder("--tensorboard", help="Also log for TensorBoard.")] = DEFAULTS.tensorboard,
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
    ldp_reproducible: Annotated[
        bool, _privacy("--ldp-reproducible", help="Noise from the seed, to repeat a run: no guarantee.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Say what memory, bytes and time it will take, and stop.", rich_help_panel=OUTPUT
        ),
    ] = False,
    as_json: JsonOption = False,
    form: FormatOption = "text",
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress.", rich_help_panel=OUTPUT)
    ] = not DEFAULTS.progress,
) -> None:
    """Train a METHOD ('fedrec methods' lists them) and judge it under a protocol."""
    if protocol is not None and split_file is not None:  # the one that was said now wins over the one in a file
        protocol = None if from_file(context, "protocol") else protocol
        split_file = None if from_file(context, "split_file") else split_file
    if final:
        if split_file is not None:
            raise ConfigError("--final holds out nothing and --split-file gives a test set; leave one out.")
        rounds = final_rounds(config, rounds if not from_file(context, "rounds") else None, quiet)
        evaluate_every = ALWAYS_LAST
    run_options = RunOptions(
        **{
            "rounds": rounds,
            "seed": seed,
            "device": device,
            "out": out,
            "evaluate_every": evaluate_every,
            "evaluate_users": evaluate_users,
            "checkpoint_every": checkpoint_every,
            "keep_checkpoints": keep_checkpoints,
            "keep_model": keep_model,
            "resume": resume,
            "progress": not quiet,
            "privacy": noise_of(
                Central(dp, epsilon, delta, dp_clip, dp_noise, dp_observer),
                privacy_of(ldp, ldp_clip, ldp_scale, ldp_delta, ldp_reproducible),
            ),
            "store": choice("store", store, ("memory", "disk", "disk-half")),
            "tensorboard": tensorboard,
            "threads": threads,
        }
    )
    choices = table_of(context, "protocol_set") | parse_settings(protocol_set or [], "--protocol-set")
    if split_file is not None:
        if protocol is not None:
            raise ConfigError(
                "--split-file is a protocol of its own and --protocol another one; leave one out (--protocol-set changes its "
                "choices)."
            )
        chosen = GIVEN.with_options(**choices) if choices else GIVEN
    elif final:
        read_protocol(DEFAULT_PROTOCOL if protocol is None else protocol, choices)
        chosen = WHOLE
    else:
        chosen = read_protocol(DEFAULT_PROTOCOL if protocol is None else protocol, choices)
    said = parse_settings(settings or [])
    if merge is not None and said.get("merge", merge) != merge:
        raise ConfigError(f"--merge {merge} and --set merge={said['merge']} contradict each other; leave one out.")
    options = table_of(context, "settings") | ({} if merge is None else {"merge": merge}) | said
    made = create(method, options, protocol=protocol or DEFAULT_PROTOCOL, data=data[0])
    interactions, source = read_data(data, data_dir, own)
    if split_file is not None:
        split = given_split(interactions, split_file, chosen, run_options.seed)
        tell_filtered(split, quiet)
        source["split_file"] = str(Path(split_file).resolve())
    else:
        split = split_data(chosen, interactions, run_options.seed, quiet)
    if chosen.leaks and not quiet:
        reasons = "; ".join(chosen.leak_reasons)
        err.print(f"protocol '{chosen.name}' leaks: {reasons}.", style="yellow", soft_wrap=True)
    for caution in made.cautions(split.data.n_items) if not quiet else []:
        err.print(f"{made.name}: {caution}", style="yellow", soft_wrap=True, highlight=False)
    if chosen.select_on == "test" and (every := run_options.evaluate_every) > 1 and not quiet:
        words = f"'{chosen.name}' reports the best of all rounds on test; --evaluate-every {every} looks at some of them only"
        err.print(f"{words}, which lowers what is reported.", style="yellow", soft_wrap=True)
    if dry_run:
        tell(estimate(made, split, run_options), as_json or form == "json")
        return
    listeners = []
    if run_options.out is not None:
        known: dict[str, Any] = {"settings": made.describe_config(), "protocol_set": choices, "merge": None}
        known |= {"data": data[0]} if len(data) == 1 else {}
        listeners = [ConfigWriter(run_options.out, lambda count: config_text(context, known | {"rounds": count}))]
    run = train(made, split, run_options, source=source, listeners=listeners)
    if as_json or form == "json":
        print_json(run.result.model_dump(mode="json"))
    else:
        print_results([run.result], form)


def final_rounds(config: Path | None, said: int | None, quiet: bool) -> int | None:
    """Rounds of training on all rows: as said, or as many as the run beside the configuration found best on validation."""
    if said is not None or config is None or not (config.parent / RESULT).exists():
        return said
    found = read_result(config.parent)
    if not quiet:
        err.print(
            f"{found.selected_round} rounds, which {config.parent} found best on {found.selected_on}.", soft_wrap=True
        )
    return found.selected_round
