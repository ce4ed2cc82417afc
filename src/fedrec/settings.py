"""What every object of settings shares, whatever it sets: frozen, no unknown names, numbers that are numbers."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator, model_validator

LARGEST = 2**63 - 1
"""Whole numbers end up in 64-bit arrays and file formats."""

WORDS = {int: "integer", float: "number", bool: "true, false", str: "text", types.NoneType: "none", Path: "path"}
BOUNDS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))


def read_value(text: str) -> Any:
    """A number, list, true/false or null where the text is one, else the text; what "none" means the setting knows."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false", "null") else text)
    except (ValueError, RecursionError):
        return text.lower() if text.lower() == "none" else text


def finite(value: Any) -> Any:
    """Plain values for JSON, which knows neither NaN nor infinity: both become None."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Settings(BaseModel):
    """Base of all settings. The text under a field is what the field means, for lists and schemas."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _none_in_words(cls, values: Any) -> Any:
        return cls.without_word(values) if isinstance(values, dict) else values

    @classmethod
    def without_word(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The values, where the word "none" is no value, except where it is the name of a choice."""
        return {name: None if value == "none" and cls._empties(name) else value for name, value in values.items()}

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """True is 1 in Python, but nobody means it."""
        forms = set(_forms(cls.model_fields[str(info.field_name)].annotation))
        if forms & {int, float} and bool not in forms and any(isinstance(part, bool) for part in _parts(value)):
            raise ValueError("this is a number, not true or false")
        return value

    @field_validator("*")
    @classmethod
    def _fits_64_bits(cls, value: Any) -> Any:
        if any(isinstance(part, int) and abs(part) > LARGEST for part in _parts(value)):
            raise ValueError(f"a whole number can be {LARGEST:,} at most")
        return value

    @classmethod
    def meaning(cls, name: str) -> str:
        """What a setting means; one that is declared anew without a text means what it meant before."""
        for kind in cls.__mro__:
            if issubclass(kind, Settings) and name in kind.model_fields and kind.model_fields[name].description:
                return " ".join(str(kind.model_fields[name].description).replace("``", "").split())
        return ""

    @classmethod
    def form(cls, name: str) -> str:
        """What values a setting takes, in words."""
        field = cls.model_fields[name]
        limits = [
            f"{sign} {getattr(rule, key):g}" for rule in field.metadata for key, sign in BOUNDS if hasattr(rule, key)
        ]
        words, *others = _form_words(field.annotation).split(" or ")
        return " or ".join([" ".join([words, ", ".join(limits)]).strip(), *others])

    @classmethod
    def _empties(cls, name: str) -> bool:
        """Whether "none" can only mean that this setting has no value."""
        forms = set(_forms(cls.model_fields[name].annotation)) if name in cls.model_fields else set()
        return types.NoneType in forms and not forms & {"none", str, Path}


def _form_words(annotation: Any) -> str:
    """A type in words, for people who write no Python."""
    if annotation in WORDS:
        return WORDS[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _form_words(parts[0])
    if origin is Literal:
        return ", ".join(map(str, parts))
    if origin in (Union, types.UnionType):
        return " or ".join(map(_form_words, parts))
    if origin in (tuple, list):
        return f"list of {_form_words(parts[0])}s"
    return getattr(annotation, "__name__", str(annotation)).lower()


def _forms(annotation: Any) -> Iterator[Any]:
    """The types and choices an annotation is made of."""
    if get_origin(annotation) in (Union, types.UnionType, tuple, list):
        for part in get_args(annotation):
            yield from _forms(part)
    elif get_origin(annotation) is dict:
        yield from _forms(get_args(annotation)[1])
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif hasattr(annotation, "__metadata__"):  # Annotated
        yield from _forms(annotation.__origin__)
    else:
        yield annotation


def _parts(value: Any) -> Iterator[Any]:
    """A value, or what is in a list or table of them."""
    if isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _parts(part)
    else:
        yield value
