"""The folders of a federation: one for the server, one per site to carry away, one with the authority's key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from fedrec.data.interactions import Ids
from fedrec.errors import ConfigError
from fedrec.running.files import FORMAT, read_object, write_json
from fedrec.settings import Settings

NAME = r"[A-Za-z0-9][A-Za-z0-9-]{0,62}"
"""Names of federations and sites, which are names of folders and services."""


CATALOGUE = "catalogue.json"


class ServerSettings(Settings):
    """``federation.json`` in the server's folder."""

    name: str
    host: str
    """Name or address sites reach the server under."""
    port: int = Field(ge=1, le=65535)
    listen: str = "0.0.0.0"
    """Address of this machine to listen on."""
    sites: tuple[str, ...]


class SiteSettings(Settings):
    """``site.json`` in a site's folder."""

    federation: str
    name: str
    server: str
    """Host and port of the server."""
    smallest_group: int = Field(10, ge=1)
    """Metrics of fewer users than these never leave the site."""
    sums_only: bool = False
    """Only methods whose server needs sums, and only sums over at least ``smallest_group`` users, run here."""
    secure_only: bool = False
    """Sums leave this site behind secure aggregation only."""
    data: str | None = None
    """File with the site's interactions."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Names of its columns, where they are not the usual ones."""


def check_name(kind: str, name: str) -> str:
    """The name, if it can be that of a folder and of a service."""
    if not re.fullmatch(NAME, name):
        raise ConfigError(f"'{name}' cannot be the name of a {kind}; use letters, digits and '-'.")
    return name


def server_settings(folder: Path) -> ServerSettings:
    """Those of a server's folder."""
    return ServerSettings(**_settings(folder, "federation.json", "server"))


def site_settings(folder: Path) -> SiteSettings:
    """Those of a site's folder."""
    return SiteSettings(**_settings(folder, "site.json", "site"))


def save(folder: Path, settings: ServerSettings | SiteSettings) -> None:
    """Write them."""
    name = "site.json" if isinstance(settings, SiteSettings) else "federation.json"
    write_json(folder / name, {"format": FORMAT} | settings.model_dump(mode="json"))


def _settings(folder: Path, name: str, what: str) -> dict[str, Any]:
    path = folder / name
    if not path.exists():
        raise ConfigError(f"{folder} is no folder of a {what} (it has no {name}); 'fedrec federation new' makes them.")
    content = read_object(path)
    kind = ServerSettings if name == "federation.json" else SiteSettings
    values = {key: value for key, value in content.items() if key != "format"}
    try:
        kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    return values


def catalogue(folder: Path) -> Ids:
    """The items all sites agree on."""
    path = folder / CATALOGUE
    if not path.exists():
        raise ConfigError(f"{path} is missing: name the items with 'fedrec federation catalogue {folder} ITEMS'.")
    ids = read_object(path).get("items")
    if not isinstance(ids, list) or not ids or len(set(map(str, ids))) != len(ids):
        raise ConfigError(f"{path} is no list of distinct items.")
    if not all(isinstance(one, int | str) and not isinstance(one, bool) for one in ids):
        raise ConfigError(f"{path} is no list of distinct items.")
    return tuple(ids)


def write_catalogue(folder: Path, ids: Ids) -> None:
    """Publish the items."""
    write_json(folder / CATALOGUE, {"format": FORMAT, "items": list(ids)})
