"""Which run a folder holds: ``run.json``, written first, and again in every checkpoint. Another run may not go on there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import Identity
from fedrec.federation.stages import Noise
from fedrec.protocol.split import Split
from fedrec.running.files import read_object, write_json
from fedrec.running.options import RunOptions


class Claim(Identity):
    """A run's identity and the options its numbers depend on."""

    privacy: dict[str, Any] | None
    evaluate_every: int
    evaluate_users: int | None = None
    """How many users are evaluated, drawn by the seed; null: everybody."""
    half_precision: bool = False
    """Whether item tables of clients are kept in half precision."""
    rounds: int
    """Rounds asked for when the run began; a resumed run may ask for more."""

    @property
    def identity(self) -> Identity:
        """The part that is in the result, too."""
        return Identity(**{name: getattr(self, name) for name in Identity.model_fields})


def config_hash(method: Recommender, privacy: Noise | None) -> str:
    """sha256 of a method, its settings and the privacy stage's."""
    stage = None if privacy is None else privacy.model_dump(mode="json")
    text = json.dumps([method.name, method.describe_config(), stage], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def claim_of(method: Recommender, split: Split, options: RunOptions, source: dict[str, Any] | None) -> Claim:
    """The claim of a run that is about to begin."""
    config = method.describe_config()
    privacy = None if options.privacy is None else options.privacy.model_dump(mode="json")
    return Claim(
        method=method.name,
        data=split.data.name,
        protocol=split.protocol.name,
        leaks=split.protocol.leaks,
        leak_reasons=list(split.protocol.leak_reasons),
        seed=options.seed,
        config=config,
        config_hash=config_hash(method, options.privacy),
        split_hash=split.hash,
        split_seed=split.seed,
        protocol_options=split.protocol,
        source=source or {"name": split.data.name},
        privacy=privacy,
        evaluate_every=options.evaluate_every,
        evaluate_users=options.evaluate_users,
        half_precision=options.store == "disk-half",
        rounds=method.rounds if options.rounds is None else options.rounds,
    )


def write_claim(folder: Path, claim: Claim) -> None:
    """Note in the folder which run it holds."""
    write_json(folder / "run.json", claim.model_dump(mode="json"))


def read_claim(folder: Path) -> Claim | None:
    """The claim of a folder; None where it holds none."""
    path = folder / "run.json"
    return parse_claim(read_object(path), path) if path.exists() else None


def parse_claim(content: Any, path: Path) -> Claim:
    """A claim from plain values."""
    try:
        return Claim.model_validate(content)
    except (ValidationError, ConfigError):
        raise FedrecError(f"{path} does not say which run this is; choose another run folder.") from None


def check_same(known: Claim, wanted: Claim, folder: Path) -> None:
    """Refuse to go on with another run than the one the folder holds, naming what differs."""
    for name, before, now in _settings(known, wanted):
        if before != now:
            raise ConfigError(
                f"{folder} holds a run with {name} {_word(before)}, not {_word(now)}; resume it with its own settings or "
                "choose another run folder."
            )
    for name in ("split_hash", "config_hash"):
        if getattr(known, name) != getattr(wanted, name):
            what = "other data" if name == "split_hash" else "settings changed by hand"
            raise ConfigError(f"{folder} holds a run on {what}, so it cannot be resumed; choose another run folder.")


def _settings(known: Claim, wanted: Claim) -> Iterator[tuple[str, Any, Any]]:
    """Everything that can differ, by name: broad things first, for they bring the others with them."""
    names = ["method", "seed", "split_seed", "evaluate_every", "evaluate_users", "half_precision"]
    if known.split_hash != wanted.split_hash:  # the same rows may bear another name
        names.insert(1, "data")
    if "*" not in known.protocol + wanted.protocol:  # else a choice is what differs
        names.insert(1, "protocol")
    for name in names:
        yield name, getattr(known, name), getattr(wanted, name)
    plain = [
        (claim.config, claim.protocol_options.model_dump(mode="json", exclude={"name"})) for claim in (known, wanted)
    ]
    for before, now in zip(*plain, strict=True):
        for name in [*before, *(set(now) - set(before))]:
            yield name, before.get(name), now.get(name)
    for name in ("mechanism", "clip", "scale", "epsilon", "noise", "delta", "observer", "reproducible"):
        before, now = ((claim.privacy or {}).get(name) for claim in (known, wanted))
        yield f"privacy {name}", before, now


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
