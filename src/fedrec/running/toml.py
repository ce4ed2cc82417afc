"""Plain values as TOML, which Python reads but does not write."""

from __future__ import annotations

import json
import re
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_value(value: Any) -> str:
    """A text, number, truth, list or table in one line. TOML has no null: "none" is what settings understand."""
    if value is None:
        return '"none"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {toml_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON, but for one sign


def toml_lines(values: dict[str, Any]) -> list[str]:
    """A line per value."""
    return [f"{_key(key)} = {toml_value(value)}" for key, value in values.items()]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else toml_value(name)
