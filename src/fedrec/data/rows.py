"""Delimited text as a slow but exact reader sees it: for the header, for errors, and to check the fast one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

from fedrec.errors import DataError


@dataclass(frozen=True)
class Row:
    """The values of a row, the number of its first line, and its lines as they stand in the file."""

    number: int
    values: list[str]
    lines: list[str]


@dataclass(frozen=True)
class Text:
    """Text whose values are parted by one byte; ``quoted`` says whether '"' may wrap a value."""

    data: bytes
    delimiter: str
    quoted: bool
    source: str

    def rows(self) -> Iterator[Row]:
        """Every row that is not blank."""
        lines: list[str] = []

        def seen() -> Iterator[str]:
            for line in io.TextIOWrapper(io.BytesIO(self.data), encoding="utf-8", newline=""):
                lines.append(line)
                yield line

        if self.quoted:
            reader = csv.reader(seen(), delimiter=self.delimiter, strict=True)
        else:
            reader = csv.reader(seen(), delimiter=self.delimiter, quoting=csv.QUOTE_NONE)
        start = 1
        try:
            for values in reader:
                if values:
                    yield Row(start, values, lines.copy())
                start += len(lines)
                lines.clear()
        except csv.Error as error:
            if "field limit" in str(error):
                most = f"longer than {csv.field_size_limit():,} characters"
                raise DataError(f"{self.source}, line {start}: a quote is not closed, or a value is {most}.") from None
            raise DataError(f"{self.source}, line {start}: a quote is not closed or out of place ({error}).") from None

    def line(self, index: int) -> int:
        """Line number of row ``index``, the header being row 0."""
        return next((row.number for k, row in enumerate(self.rows()) if k == index), index + 1)
