"""What the fuzz campaign is made of: ways to spoil bytes and plain values, and limits on time and memory."""

import json
import math
import resource
import signal
from contextlib import contextmanager

from fedrec.errors import FedrecError

NASTY = [
    "", " ", '"', '""', '"""', "'", ",", ";", "\t", "::", "|", "\n", "\r", "\r\n", "\x00", "\x0b", "\x0c", "\x1c", "\x1f",
    "\x7f", "\x85", "\xa0", "\u2028", "\u3000", "\ufeff", "\ud7ff", "\U0010ffff", "é", "e\u0301", "-", "+5", "-0", "-0.0",
    "0x10", "1_000", "1e5", "1E400", "1e-400", ".5", "5.", "1.5", "nan", "NaN", "inf", "-Infinity", "null", "None", "NA",
    "true", "007", "\u0663", "\uff11", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1" * 400,
    "9007199254740993", "881250949.0", "x" * 5000, "[/x28]", "../../x", "user", "item", "rating", "timestamp", "\\", "\\n", "#",
    '","', '"\n"', 'a"b', '"a"b', 'a,"b', '" "', "\U0001f30d", "2024-01-01", "1,5", "1 000",
]  # fmt: skip
"""Texts that readers are known to stumble over."""

WRONG = [
    None,
    True,
    -1,
    0,
    1,
    2**63,
    10**30,
    0.5,
    1e308,
    -1e-320,
    "",
    "none",
    "x" * 300,
    "\x00",
    "1",
    [],
    [[]],
    {},
    {"a": 1},
]
"""Plain values where others belong."""


def spoil(rng, data):
    """Bytes with one to three things done to them."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice([1, 1, 2, 8, 64]))
        how = rng.randrange(7)
        if how == 0:
            data[at:end] = bytes(byte ^ (1 << rng.randrange(8)) for byte in data[at:end])
        elif how == 1:
            data[at:at] = rng.choice(NASTY).encode()
        elif how == 2:
            data[at:end] = rng.randbytes(end - at)
        elif how == 3:
            del data[at:end]
        elif how == 4:
            data[at:at] = data[at:end] * rng.choice([1, 2, 50])
        elif how == 5:
            del data[at:]
        else:
            other = rng.randrange(len(data) + 1)
            data[at:end] = data[other : other + end - at]
    return bytes(data)


def spoil_value(rng, value):
    """Plain values, as of JSON or TOML, with a part of them replaced, dropped, added or swapped."""
    value = json.loads(json.dumps(value))
    holder, key = rng.choice(list(_places(value)))
    how = rng.randrange(5)
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, dict):
        holder[rng.choice(["sideways", "", "format", str(key).upper()])] = rng.choice(WRONG)
    elif how == 2:
        _, other = rng.choice([(h, h[k]) for h, k in _places(value)])
        holder[key] = json.loads(json.dumps(other))
    elif how == 3 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = rng.choice([-holder[key], holder[key] + 1, holder[key] * 2**40, str(holder[key])])
    else:
        holder[key] = rng.choice(WRONG)
    return value


def _places(value):
    """Everything inside of plain values, as holder and key; what is deep counts as much as what is not."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


class TooSlowError(Exception):
    pass


@contextmanager
def bounded(seconds, gigabytes=3):
    """Whatever happens inside may not take longer, nor more memory than is in use already and some."""

    def late(*_):
        raise TooSlowError(f"not done after {seconds} s")

    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    known = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (used + int(gigabytes * 2**30), known[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, known)


def outcome(call, *arguments, seconds=20, **options):
    """What a call gives, or the sentence that refuses; anything else it raises goes through."""
    try:
        with bounded(seconds):
            return call(*arguments, **options), None
    except FedrecError as error:
        sentence = str(error)
    assert "\n" not in sentence, sentence
    assert len(sentence) < 2000, f"a sentence of {len(sentence)} characters: {sentence[:300]}"
    return None, sentence


def toml(values):
    """Plain values as TOML; tables are written in line, except for the outermost."""
    return "".join(f"{json.dumps(key)} = {_toml(value)}\n" for key, value in values.items())


def _toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return '""' if value is None else json.dumps(value).replace("\\u0000", "\\u0001")


def kept(given, found):
    """Whether everything that was given is in what was made of it, as what it is."""
    if isinstance(given, dict):
        return isinstance(found, dict) and all(name in found and kept(given[name], found[name]) for name in given)
    if isinstance(given, list | tuple):
        return isinstance(found, list | tuple) and len(given) == len(found) and all(map(kept, given, found))
    if isinstance(found, bool):
        return str(found).lower() in (
            str(given).lower(),
            {"1": "true", "0": "false"}.get(str(given).removesuffix(".0")),
        )
    if isinstance(given, str) and not isinstance(found, str):
        return found is None if given == "none" else given.strip() == str(found) or float(given) == found
    return not isinstance(given, bool) and (given == found or (isinstance(found, float) and float(given) == found))
