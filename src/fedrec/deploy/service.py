"""What the commands of a federation do: serve, take part, run, look, recommend."""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedrec.data.interactions import Interactions
from fedrec.data.reading import read_csv
from fedrec.deploy.certificates import expiry
from fedrec.deploy.folders import ServerSettings, SiteSettings, catalogue, save, server_settings, site_settings
from fedrec.deploy.plan import Plan
from fedrec.deploy.run import run
from fedrec.deploy.site import Site
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import Result
from fedrec.protocol.protocol import Protocol
from fedrec.running.files import NotWrittenError, write_json
from fedrec.running.listeners import Listener
from fedrec.running.lock import locked
from fedrec.running.options import RunOptions

REGISTER = 60.0
"""Seconds for the link to come up before sites' keys are registered."""


def serve(folder: Path) -> None:
    """Be the server: pass messages between sites and runs until stopped."""
    settings = server_settings(folder)
    _check_certificate(folder / "server.crt")
    _check_port(settings)
    with locked(folder):
        from fedrec.deploy.flower import link  # with Flower and all, which takes a second

        threading.Thread(target=_register, args=(folder, settings), daemon=True).start()
        link.serve(folder, settings.listen, settings.port)


def _register(folder: Path, settings: ServerSettings) -> None:
    from fedrec.deploy.flower.control import Control

    end = time.monotonic() + REGISTER
    while True:
        try:
            control = Control(folder, settings.port)
            control.register({site: folder / "keys" / f"{site}.pub" for site in settings.sites})
            print(f"fedrec: serving {settings.name} on {settings.listen}:{settings.port}", file=sys.stderr, flush=True)
            return
        except FedrecError as error:
            if time.monotonic() > end:
                print(f"fedrec: sites cannot be registered: {error}", file=sys.stderr, flush=True)
                return
            time.sleep(0.3)


def _check_port(settings: ServerSettings) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.listen, settings.port))
        except OSError as error:
            raise ConfigError(
                f"port {settings.port} of {settings.listen} cannot be listened on ({error.strerror}); stop what uses it, "
                "perhaps another server of this federation, or change the port in federation.json and every site.json."
            ) from None


def _check_certificate(path: Path) -> None:
    import datetime

    if not path.exists():
        raise ConfigError(f"{path} is missing; 'fedrec federation new' makes it.")
    end = expiry(path.read_bytes())
    if end < datetime.datetime.now(datetime.UTC):
        raise ConfigError(f"{path} expired on {end:%Y-%m-%d}; make a new federation, or sign a new certificate.")


def take_part(folder: Path, data: Path | None, columns: dict[str, str]) -> None:
    """Be a site: answer the server until stopped."""
    settings = site_settings(folder)
    if data is not None:
        settings = settings.model_copy(update={"data": str(data.resolve()), "columns": columns})
        save(folder, settings)
    interactions = _rows(settings)  # so that a mistake shows now and not in a run
    with locked(folder):
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
        for noisy in ("httpx", "flwr"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        logging.getLogger("flwr").propagate = False  # it has a handler of its own
        log = logging.getLogger("fedrec.site")
        log.info(
            "site %s of %s: %d users, %d rows",
            settings.name,
            settings.federation,
            interactions.n_users,
            len(interactions),
        )
        del interactions
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that the server hears of the end
        site = Site(
            folder,
            lambda: _rows(settings),
            smallest=settings.smallest_group,
            sums_only=settings.sums_only,
            secure_only=settings.secure_only,
        )
        from fedrec.deploy.flower import home, node

        home(folder)

        def answer(data: bytes) -> bytes:
            found = site.answer(data)
            with suppress(NotWrittenError):  # a full disk is told of where it matters
                write_json(folder / "traffic.json", {"sent": node.TRAFFIC.sent, "received": node.TRAFFIC.received})
            return found

        node.serve(
            settings.server,
            folder / "ca.crt",
            folder / "site.key",
            answer,
            lambda _: log.info("connected to %s", settings.server),
        )


def interactions_of(folder: Path) -> Interactions:
    """The data of the site in a folder."""
    return _rows(site_settings(folder))


def _rows(settings: SiteSettings) -> Interactions:
    if settings.data is None:
        raise ConfigError("this site has no data yet; name its file when it is started for the first time.")
    return read_csv(settings.data, **settings.columns)


def run_at(
    folder: Path,
    method: Recommender,
    protocol: Protocol,
    options: RunOptions,
    *,
    deadline: float,
    min_sites: int,
    wait: float,
    secure: bool = False,
    private_catalogue: bool = False,
    listeners: Sequence[Listener] = (),
    tell: Callable[[str], None] = lambda line: None,
) -> Result:
    """Run a method with the sites of the server in ``folder``, from the server's machine."""
    settings, out = server_settings(folder), options.out
    if out is None:
        raise ConfigError("a federation's run needs a run folder.")
    if not 1 <= min_sites <= len(settings.sites):
        raise ConfigError(f"min-sites is {min_sites}; give 1 to {len(settings.sites)}, the number of sites.")
    plan = Plan(
        run=_run_name(out, options.resume),
        catalogue=() if private_catalogue else catalogue(folder),
        hashed=private_catalogue,
        protocol=protocol,
        seed=options.seed,
        split_seed=options.seed,
        deadline=deadline,
        min_sites=min_sites,
        wait=wait,
        secure=secure,
        privacy=options.privacy,
    )
    from fedrec.deploy.flower.grid import connected

    with connected(folder, settings.port) as transport:
        return run(
            method, plan, transport, list(settings.sites), options, name=settings.name, listeners=listeners, tell=tell
        )


def _run_name(out: Path, resume: bool) -> str:
    """The name sites keep a run under: the folder's, and when it began."""
    note = out / "name"
    if resume and note.exists():
        return note.read_text().strip()
    name = re.sub(r"[^A-Za-z0-9.-]", "-", out.name).strip(".-")[:60] or "run"
    stamp = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if not resume:
        out.mkdir(parents=True, exist_ok=True)
        if not note.exists():
            note.write_text(stamp + "\n")
    return note.read_text().strip() if note.exists() else stamp


def connected_sites(folder: Path) -> list[tuple[str, str]]:
    """The sites of a server, and whether they are connected."""
    from fedrec.deploy.flower.control import Control

    settings = server_settings(folder)
    known = {one.name: one.status for one in Control(folder, settings.port).nodes() if one.status != "unregistered"}
    return [(name, known.get(name, "unknown")) for name in settings.sites]


def runs_of(folder: Path) -> list[dict[str, Any]]:
    """The runs in a server's folder: name, method, rounds done, whether they have ended."""
    found = []
    for path in sorted((folder / "runs").iterdir()) if (folder / "runs").is_dir() else ():
        with suppress(OSError, ValueError, KeyError):
            claim = json.loads((path / "run.json").read_text())
            lines = (path / "metrics.jsonl").read_text().splitlines() if (path / "metrics.jsonl").exists() else []
            ended = (path / "manifest.json").exists()
            about = {"run": path.name, "method": claim["method"], "rounds": claim["rounds"]}
            found.append(about | {"done": len(lines), "ended": ended})
    return found
