"""The version of this package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version(package: str = "fedrec") -> str:
    """The installed version of a package; a source tree that is not installed has none to tell."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
