"""``fedrec federation new``: certificates, keys, folders, start scripts and services."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from fedrec.data.interactions import Ids
from fedrec.deploy import guides
from fedrec.deploy.certificates import authority, node_key, server_certificate
from fedrec.deploy.folders import ServerSettings, SiteSettings, check_name, save, write_catalogue
from fedrec.deploy.union import KEY
from fedrec.errors import ConfigError

DAYS = 825
"""Life of certificates, unless asked for otherwise."""


def provision(
    folder: Path,
    sites: list[str],
    *,
    items: Ids | None = None,
    name: str = "federation",
    host: str = "127.0.0.1",
    port: int = 8000,
    listen: str | None = None,
    days: int = DAYS,
    smallest_group: int = 10,
    sums_only: bool = False,
    secure_only: bool = False,
) -> None:
    """Make everything a federation needs; the folders of the sites are to be carried to them."""
    check_name("federation", name)
    for site in sites:
        check_name("site", site)
    if len(set(sites)) != len(sites) or not sites:
        raise ConfigError("sites need one name each; give different ones.")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; give the name of a new folder.")
    listen = listen or ("127.0.0.1" if host in ("127.0.0.1", "localhost") else "0.0.0.0")
    issuer, server = authority(name, days), folder / "server"
    certificate = server_certificate(issuer, [host], days)
    _write(folder / "authority" / "ca.key", issuer.key, secret=True)
    _write(folder / "authority" / "ca.crt", issuer.certificate)
    _write(server / "ca.crt", issuer.certificate)
    _write(server / "server.crt", certificate.certificate)
    _write(server / "server.key", certificate.key, secret=True)
    _write(server / "secret", secrets.token_hex(32).encode(), secret=True)
    settings = ServerSettings(name=name, host=host, port=port, listen=listen, sites=tuple(sites))
    save(server, settings)
    if items is not None:
        write_catalogue(server, items)
    _texts(server, guides.server(settings))
    names = secrets.token_hex(32).encode()
    for site in sites:
        place, key = folder / "sites" / site, node_key()
        _write(place / "site.key", key.private, secret=True)
        _write(place / KEY, names, secret=True)
        _write(place / "ca.crt", issuer.certificate)
        _write(server / "keys" / f"{site}.pub", key.public)
        about = SiteSettings(
            federation=name,
            name=site,
            server=f"{host}:{port}",
            smallest_group=smallest_group,
            sums_only=sums_only,
            secure_only=secure_only,
        )
        save(place, about)
        _texts(place, guides.site(about))
    _texts(folder, guides.whole(settings))


def _texts(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        _write(folder / name, text.encode())
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)


def _write(path: Path, content: bytes, *, secret: bool = False) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); choose another folder.") from None
