"""Noise for differential privacy from the options of a command."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError

from fedrec.cli.common import PRIVACY, choice
from fedrec.errors import ConfigError
from fedrec.federation.central_privacy import CentralPrivacy
from fedrec.federation.privacy import Privacy
from fedrec.federation.stages import Noise

Kind = TypeVar("Kind", Privacy, CentralPrivacy)
_privacy = partial(typer.Option, rich_help_panel=PRIVACY)

Dp = Annotated[str | None, _privacy("--dp", metavar="WHERE", help="central: noise on sums over clients.")]
Epsilon = Annotated[
    float | None, _privacy("--epsilon", metavar="E", help="Budget of a user over the run; the noise follows from it.")
]
Delta = Annotated[float | None, _privacy("--delta", metavar="D", help="At which epsilon holds (default 1e-5).")]
DpClip = Annotated[float | None, _privacy("--dp-clip", metavar="NORM", help="Clips an upload (default 1).")]
DpNoise = Annotated[
    float | None,
    _privacy("--dp-noise", metavar="Z", help="In place of --epsilon: noise in multiples of the clip norm."),
]
DpObserver = Annotated[
    str | None, _privacy("--dp-observer", metavar="WHO", help="Epsilon against the server (default) or an outsider.")
]
Ldp = Annotated[str | None, _privacy(metavar="KIND", help="Local differential privacy: laplace or gaussian.")]
LdpClip = Annotated[
    float | None, _privacy(metavar="NORM", help="Clips an upload's change (default 1); 0: no clipping.")
]
LdpScale = Annotated[float | None, _privacy(metavar="SCALE", help="Of the noise (default 0.01).")]
LdpDelta = Annotated[float | None, _privacy(metavar="DELTA", help="Of the stated guarantee (default 1e-5).")]


@dataclass(frozen=True)
class Central:
    """What the options of noise on sums say."""

    dp: str | None
    epsilon: float | None
    delta: float | None
    clip: float | None
    noise: float | None
    observer: str | None


def noise_of(central: Central, local: Privacy | None) -> Noise | None:
    """The settings that ``--dp`` and the options beside it ask for, or those of ``--ldp``."""
    options = {
        "--epsilon": central.epsilon,
        "--delta": central.delta,
        "--dp-clip": central.clip,
        "--dp-noise": central.noise,
        "--dp-observer": central.observer,
    }
    if central.dp is None:
        for name, value in options.items():
            if value is not None:
                raise ConfigError(f"{name} has no effect without --dp; add --dp central.")
        return local
    if local is not None:
        raise ConfigError("--dp is noise on sums and --ldp noise on each upload; leave one out.")
    choice("--dp place", central.dp, ("central",))
    if (central.epsilon is None) == (central.noise is None):
        raise ConfigError("--dp central needs --epsilon, to which the noise is calibrated, or else --dp-noise.")
    if central.observer is not None:
        choice("--dp-observer", central.observer, ("server", "outsider"))
    values: dict[str, Any] = {
        "epsilon": central.epsilon,
        "delta": central.delta,
        "clip": central.clip,
        "noise": central.noise,
    }
    values["observer"] = central.observer
    given = {name: value for name, value in values.items() if value is not None}
    names = {"epsilon": "--epsilon", "delta": "--delta", "clip": "--dp-clip", "noise": "--dp-noise"}
    return _made(CentralPrivacy, given, names)


def privacy_of(
    ldp: str | None, clip: float | None, scale: float | None, delta: float | None, reproducible: bool = False
) -> Privacy | None:
    """The settings that ``--ldp`` and the options beside it ask for."""
    given = {"clip": clip, "scale": scale, "delta": delta, "reproducible": reproducible or None}
    if ldp is None:
        for name, value in given.items():
            if value is not None:
                raise ConfigError(f"--ldp-{name} has no effect without --ldp; add --ldp laplace or --ldp gaussian.")
        return None
    settings: dict[str, Any] = {"mechanism": choice("--ldp mechanism", ldp, ("laplace", "gaussian"))}
    settings |= {name: value for name, value in given.items() if value is not None}
    if clip == 0:
        settings["clip"] = None
    return _made(Privacy, settings, {})


def _made(kind: type[Kind], values: dict[str, Any], names: dict[str, str]) -> Kind:
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise ConfigError(f"{names.get(name, f'--ldp-{name}')} is {first['input']}: {first['msg']}.") from None
