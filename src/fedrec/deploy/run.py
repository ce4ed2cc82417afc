"""One run of a federation, from the first round (or a checkpoint) to the result, in a run folder of the server."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrec.deploy.federation import Federation
from fedrec.deploy.folders import CATALOGUE, catalogue, write_catalogue
from fedrec.deploy.judge import Best, Judge
from fedrec.deploy.masked import check_sites
from fedrec.deploy.members import Member
from fedrec.deploy.plan import Plan
from fedrec.deploy.result import federation_result
from fedrec.deploy.run_state import FederationState, known_members
from fedrec.deploy.transport import Transport
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.arrows import Arrows
from fedrec.federation.clients import check_noise
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import PrivacyReport, Result
from fedrec.federation.stages import Stage, stage_of
from fedrec.running import checkpoint
from fedrec.running.claim import Claim, config_hash
from fedrec.running.files import FORMAT, append_line, checksum, write_json, write_tensors
from fedrec.running.folder import CHECKPOINTS, claim_folder, opened, tidy
from fedrec.running.listeners import CheckpointWriter, Listener, MetricsLog
from fedrec.running.loop import Loop
from fedrec.running.options import RunOptions
from fedrec.running.progress import ProgressDisplay
from fedrec.running.saved import is_finished, read_result
from fedrec.running.saving import ITEMS, MANIFEST, RESULT, SERVER
from fedrec.secure.suitable import require_sums

LOG = "federation.log"


def run(
    method: Recommender,
    plan: Plan,
    transport: Transport,
    expected: list[str],
    options: RunOptions,
    *,
    name: str,
    listeners: Sequence[Listener] = (),
    tell: Callable[[str], None] = lambda line: None,
) -> Result:
    """Train ``method`` with the sites that are ``expected``; ``options.out`` is the run folder."""
    folder = options.out
    if folder is None:
        raise ConfigError("a federation's run needs a run folder (out), to be able to go on after an interruption.")
    if method.of_parts:
        raise ConfigError(
            f"{method.name} trains other methods, which a federation does one at a time; train each of them."
        )
    if not isinstance(method, Arrows):
        raise ConfigError(f"{method.name} is centralised: it needs all data in one place, which a federation has not.")
    if plan.privacy is not None:
        check_noise(method, plan.privacy)
    if plan.central and not plan.secure:
        raise ConfigError(
            "noise on sums protects nobody whose site's sum the server sees; run behind secure aggregation."
        )
    if method.adds_noise:
        raise ConfigError(
            f"{method.name} would add its own noise at the server, which has seen the sum by then; leave that setting out and "
            "let sites add noise to their sums (central privacy)."
        )
    if plan.secure:
        require_sums(method)
        check_sites(len(expected))
    with opened(folder, options.resume):
        if options.resume and is_finished(folder):
            return read_result(folder)
        return _run(method, plan, transport, expected, options, name, folder, listeners, _teller(folder, tell))


def _teller(folder: Path, tell: Callable[[str], None]) -> Callable[[str], None]:
    def both(line: str) -> None:
        append_line(folder / LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")
        tell(line)

    return both


def _run(
    method: Arrows,
    plan: Plan,
    transport: Transport,
    expected: list[str],
    options: RunOptions,
    name: str,
    folder: Path,
    listeners: Sequence[Listener],
    tell: Callable[[str], None],
) -> Result:
    start = time.perf_counter()
    rounds = method.rounds if options.rounds is None else options.rounds
    plan = replace(plan, rounds=rounds)
    if plan.hashed and (folder / CATALOGUE).exists():  # of the run that goes on
        plan = replace(plan, catalogue=catalogue(folder))
    found = checkpoint.newest(folder / CHECKPOINTS) if options.resume else None
    saved = None if found is None else checkpoint.load(found)
    federation = Federation(method, plan, transport, tell)
    federation.gather(expected, None if saved is None else known_members(saved, folder))
    claim = _claim(method, federation.plan, federation.members, options, name)
    claim_folder(folder, claim, options.resume)
    if plan.hashed:
        write_catalogue(folder, federation.plan.catalogue)
    state = FederationState(claim, federation, Judge(federation), start=start)
    if saved is not None:
        state.restore(saved, folder)
    elif options.checkpoint_every:  # who takes part is settled, also where the first round fails
        CheckpointWriter(state, folder).checkpoint(0)
    if state.history.rounds > claim.rounds:
        raise ConfigError(f"{folder} has already finished {state.history.rounds} rounds; ask for as many or more.")
    for one in listeners:
        if isinstance(one, ProgressDisplay) and federation.plan.privacy is not None:
            one.note = lambda: _stage(federation).words(federation.most_uploads, state.history.rounds)
    told = [MetricsLog(folder), CheckpointWriter(state, folder), *listeners]
    title = f"{method.name} on {name} ({plan.protocol.name})"
    Loop(state, options, claim.rounds, title, told).run()
    best = state.selection.conclude(state.history.rounds)
    privacy = _privacy(federation, state.history.rounds)  # of all rounds, before going back to the best one
    federation.load_state(best.state)
    _, shown = federation.evaluate(best.round, top=True)
    federation.finish(best.round)
    if shown is None:
        raise FedrecError("no site told what it recommends.")
    wire = {
        member.name: {
            "users": len(member.counts),
            "message_bytes_sent": transport.sent.get(member.name, 0),
            "message_bytes_received": transport.received.get(member.name, 0),
        }
        for member in federation.members
    }
    result = federation_result(state, best, shown, wire, privacy)
    _save(folder, federation, best, result)
    tidy(folder, options.keep_checkpoints)
    return result


def _privacy(federation: Federation, rounds: int) -> PrivacyReport | None:
    """What noise is worth for the client that was asked for most."""
    if federation.plan.privacy is None:
        return None
    notes = federation.method.privacy_notes()
    return PrivacyReport.model_validate(_stage(federation).describe(federation.most_uploads, notes, rounds=rounds))


def _stage(federation: Federation) -> Stage:
    """The stage that the sites have, for what it costs."""
    assert federation.plan.privacy is not None
    stage = stage_of(federation.plan.privacy, federation.plan.seed)
    stage.meet(federation.method, federation.task)
    return stage


def _save(folder: Path, federation: Federation, best: Best, result: Result) -> None:
    """The server's model and the result; private state stays at the sites."""
    server = {name: value for name, value in best.state.items() if name.startswith("server.")}
    write_tensors(folder / SERVER, server)
    write_json(folder / ITEMS, {"format": FORMAT, "ids": list(federation.plan.catalogue)})
    write_json(folder / RESULT, result.model_dump(mode="json"))
    files = {name: checksum(folder / name) for name in (SERVER, ITEMS, RESULT)}
    write_json(folder / MANIFEST, {"format": FORMAT, "files": files})


def _claim(method: Arrows, plan: Plan, members: list[Member], options: RunOptions, name: str) -> Claim:
    config: dict[str, Any] = method.describe_config()
    splits = [[member.name, member.split_hash] for member in members]
    return Claim(
        method=method.name,
        data=name,
        protocol=plan.protocol.name,
        leaks=plan.protocol.leaks,
        leak_reasons=list(plan.protocol.leak_reasons),
        seed=plan.seed,
        config=config,
        config_hash=config_hash(method, plan.privacy),
        split_hash=hashlib.sha256(json.dumps(splits).encode()).hexdigest(),
        split_seed=plan.split_seed,
        protocol_options=plan.protocol,
        source={"federation": name, "sites": [member.name for member in members]},
        privacy=None if plan.privacy is None else plan.privacy.model_dump(mode="json"),
        evaluate_every=options.evaluate_every,
        rounds=method.rounds if options.rounds is None else options.rounds,
    )
