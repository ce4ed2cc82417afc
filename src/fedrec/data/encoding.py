"""Text of other encodings as UTF-8."""

from __future__ import annotations

import codecs

from fedrec.errors import DataError, OptionError

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def as_utf8(data: bytes, encoding: str | None, source: str) -> bytes:
    """The same text in UTF-8; without an ``encoding`` it is UTF-8, or UTF-16 if it begins with that mark."""
    if encoding is None:
        if not data.startswith(_UTF16):
            return data
        encoding = "utf-16"
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        ways = ("name one such as latin-1 or cp1252", "encoding", "latin-1")
        raise OptionError(f"{source}: there is no encoding '{encoding}'", ways) from None
    if name == "utf-8":
        return data
    try:
        return data.decode(name).encode()
    except (UnicodeError, LookupError, AttributeError) as error:
        raise DataError(f"{source}: the file is not {encoding} text ({error}); name its encoding.") from None
