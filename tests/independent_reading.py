"""Reads rows of interactions in another way than the library does, slowly, value by value, to compare with."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

ROLES = ("user", "item", "rating", "timestamp")
USUAL = {"rating": ("rating", "stars"), "timestamp": ("timestamp", "ts")}  # as far as the texts tried here have them
DELIMITERS = ("::", "\t", ",", ";", "|", " ")


def text_rows(text, delimiter):
    """Rows of values of a delimited text: quotes wrap values unless the delimiter is wide; empty lines are none."""
    quoted, wide = len(delimiter) == 1, len(delimiter)
    rows, row, value, at = [], [], [], 0
    inside = wrapped = False
    while at < len(text):
        sign = text[at]
        if inside:
            if sign != '"':
                value.append(sign)
            elif text[at + 1 : at + 2] == '"':
                value.append('"')
                at += 1
            else:
                inside = False
            at += 1
        elif quoted and sign == '"' and not value and not wrapped:
            inside = wrapped = True
            at += 1
        elif text.startswith(delimiter, at):
            row.append("".join(value))
            value, wrapped = [], False
            at += wide
        elif sign in "\r\n":
            if row or value or wrapped:
                rows.append([*row, "".join(value)])
            row, value, wrapped = [], [], False
            at += 1
        else:
            value.append(sign)
            at += 1
    assert not inside, "a quote is never closed"
    return [*rows, [*row, "".join(value)]] if row or value or wrapped else rows


def text_table(data, delimiter, header):
    """Names of columns (None without a header) and rows of stripped values; every row must be as wide as the first."""
    rows = [[value.strip() for value in row] for row in text_rows(data.decode("utf-8-sig"), delimiter)]
    assert len({len(row) for row in rows}) == 1, "rows of different width"
    return (rows[0], rows[1:]) if header else (None, rows)


def interactions(names, rows, places):
    """Users, items, ratings and timestamps of every row; ``places`` has names or positions of columns by role."""
    found = {role: None for role in ROLES}
    for role, place in places.items():
        if place == "auto":
            place = usual(role, names or [])
        if place is None:
            continue
        if isinstance(place, str):
            assert names.count(place) == 1
            place = names.index(place)
        found[role] = [row[place] for row in rows]
    return {
        "user": ids(found["user"]),
        "item": ids(found["item"]),
        "rating": numbers(found["rating"], float),
        "timestamp": numbers(found["timestamp"], whole if not dates(found["timestamp"]) else seconds),
    }


def usual(role, names):
    """Position of the column with the best of the usual names, if there is one."""
    plain_names = [re.sub("[^a-z0-9]", "", name.split(":")[0].lower()) for name in names]
    return next((plain_names.index(name) for name in USUAL[role] if name in plain_names), None)


def ids(values):
    """Whole numbers if all are written as such, else text."""
    assert all(value not in ("", None) for value in values), "an id is empty"
    values = [as_text(value) for value in values]
    if all(re.fullmatch(r"0|-?[1-9][0-9]*", value) and -(2**63) <= int(value) < 2**63 for value in values):
        return [int(value) for value in values]
    return values


def as_text(value):
    if isinstance(value, bytes):
        return value.decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


def numbers(values, read):
    values = values and [value.decode() if isinstance(value, bytes) else value for value in values]
    if values is None or all(value in ("", None) for value in values):
        return None
    return [read(value) for value in values]


def dates(values):
    return bool(values) and re.match(r"\d{4}-\d{2}-\d{2}", str(values[0])) is not None


def seconds(value):
    """Seconds since 1970 of a date, in UTC."""
    return int(datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp())


def whole(value):
    """A whole number, however it is written."""
    if isinstance(value, str):
        value = Decimal(value)
    assert Fraction(value).denominator == 1, "a fraction"
    return int(value)


def plain(data):
    """What the library read, in the same form."""
    return {
        "user": [data.user_ids[code] for code in data.users],
        "item": [data.item_ids[code] for code in data.items],
        "rating": None if data.ratings is None else data.ratings.tolist(),
        "timestamp": None if data.timestamps is None else data.timestamps.tolist(),
    }
