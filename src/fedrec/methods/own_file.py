"""A method in a file of one's own, named by its path and class: ``./mymethod.py:MyMethod``.

Naming such a file runs it, so only people do that, on the command line or in Python; run folders, servers and whatever
else comes from elsewhere name methods that are installed.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from fedrec.errors import ConfigError, unknown
from fedrec.federation.recommender import Recommender

_FORM = re.compile(r"(?P<path>.+\.py)(:(?P<kind>\w+))?", re.DOTALL)


def is_own_file(name: str) -> bool:
    """Whether a name is the path of a Python file, with or without a class."""
    return _FORM.fullmatch(name) is not None


def file_of(name: str) -> Path:
    """The file that such a name is of."""
    found = _FORM.fullmatch(name)
    assert found is not None, name
    return Path(found["path"])


def found_from_anywhere(name: str) -> str:
    """The name of a method as it is understood in every folder: with the whole path, where it is a file of one's own."""
    found = _FORM.fullmatch(name)
    return name if found is None else str(Path(found["path"]).resolve()) + name[found.end("path") :]


def checksum_of(name: str) -> str:
    """sha256 of the file: what is in it may change under the same name."""
    return hashlib.sha256(_content(file_of(name))).hexdigest()


def from_file(name: str) -> type[Recommender]:
    """The class; without its name the one method in the file."""
    found = _FORM.fullmatch(name)
    assert found is not None, name
    path = Path(found["path"])
    module = _module(path)
    kinds = {
        key: value for key, value in vars(module).items() if _is_method(value) and value.__module__ == module.__name__
    }
    wanted = found["kind"]
    if wanted is None:
        if len(kinds) != 1:
            there = f"{len(kinds)} methods ({', '.join(kinds)})" if kinds else "no method"
            raise ConfigError(f"{path} has {there}; name the class, as in {path}:MyMethod.")
        wanted = next(iter(kinds))
    kind: Any = getattr(module, wanted, None)
    if kind is None:
        raise ConfigError(unknown(f"class of {path}", wanted, kinds))
    if not _is_method(kind):
        raise ConfigError(f"{path}:{wanted} is no method; derive it from a class of fedrec.method.")
    for attribute in ("name", "title"):
        if not isinstance(getattr(kind, attribute, None), str):
            raise ConfigError(f"{path}:{wanted} has no {attribute}; give the class a text of that name.")
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise ConfigError(f"{path}:{wanted} lacks {missing}; see docs/add-a-method.md.")
    found_kind: type[Recommender] = kind
    return found_kind


def _is_method(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Recommender)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the method file {path} cannot be read ({error.strerror}); check its path.") from None


def _module(path: Path) -> ModuleType:
    """The file as a module, run once for each content it has; other modules beside it can be imported."""
    place = path.resolve()
    name = f"fedrec_own_{place.stem}_{hashlib.sha256(str(place).encode() + _content(path)).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    if str(place.parent) not in sys.path:
        sys.path.append(str(place.parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(
            f"the method file {path} cannot be run ({type(error).__name__}: {error}); mend it."
        ) from error
    return module
