"""Mutation testing: changes one expression of a package at a time and counts how many changes its tests notice.

``python tests/mutants.py PACKAGE ...`` works under ``build/mutants/PACKAGE``, prints the score and leaves what survived,
as diffs, in ``survivors.txt`` there. mutmut does the work; this file says what is changed and which tests must notice.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "mutants"
MUTMUT = str(Path(sys.executable).with_name("mutmut"))
CHILDREN = "2"

# Package: (files that are changed, tests that must notice).
PACKAGES = {
    "evaluation": ("src/fedrec/evaluation/*.py", ["tests/evaluation"]),
    "sampling": ("src/fedrec/sampling/*.py", ["tests/sampling"]),
    "protocol": ("src/fedrec/protocol/*.py", ["tests/protocol"]),
    "privacy": ("src/fedrec/federation/privacy.py", ["tests/federation/test_privacy.py"]),
    "federation": ("src/fedrec/federation/*.py", ["tests/federation"]),
    "parts": ("src/fedrec/parts/*.py", ["tests/parts"]),
}
# Compiled code: mutmut changes no decorated function, and Triton needs a GPU.
NEVER = ["*/cpu_*.py", "*/gpu_*.py"]

# Tests that take seconds where others take milliseconds.
TOO_SLOW = ["canary", "an_own_protocol", "uniform_rate", "ranx"]


def settings(package: str) -> str:
    """What mutmut is to do, as its ``setup.cfg``."""
    files, tests = PACKAGES[package]
    never = [*NEVER, "*/privacy.py"] if package == "federation" else NEVER
    lists = {
        "source_paths": ["src"],
        "only_mutate": [files],
        "do_not_mutate": never,
        "pytest_add_cli_args_test_selection": tests,
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-k", " and ".join(f"not {name}" for name in TOO_SLOW)],
    }
    # Workers are forked from a process that has run no test: OpenMP does not survive a fork once it has worked.
    lines = ["[mutmut]", "process_isolation = forkserver", "use_git_change_detection = false"]
    lines += [f"{key} =\n  " + "\n  ".join(values) for key, values in lists.items()]
    return "\n".join(lines) + "\n"


def run(package: str) -> None:
    """Try every mutant of a package and print how many were noticed."""
    place = BUILD / package
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in ("src", "tests", "pyproject.toml"):
        (place / name).symlink_to(ROOT / name)
    (place / "setup.cfg").write_text(settings(package))
    # One thread each, no real data (too slow), and kernels compiled into a place of their own.
    quiet = {"OMP_NUM_THREADS": "1", "FEDREC_DATA": str(place), "FEDREC_CACHE": str(BUILD / "cache")}

    def mutmut(*arguments: str) -> str:
        shown = subprocess.PIPE if arguments[0] != "run" else None
        done = subprocess.run(
            [MUTMUT, *arguments], cwd=place, env={**os.environ, **quiet}, stdout=shown, text=True, check=True
        )
        return done.stdout or ""

    mutmut("run", "--max-children", CHILDREN)
    mutmut("export-cicd-stats")
    counts = json.loads((place / "mutants" / "mutmut-cicd-stats.json").read_text())
    names = [line.split(":")[0].strip() for line in mutmut("results").splitlines() if ": timeout" not in line]
    (place / "survivors.txt").write_text("\n".join(mutmut("show", name) for name in names))
    noticed = counts["killed"] + counts["timeout"]
    print(
        f"{package}: {noticed} of {counts['total']} mutants noticed ({noticed / counts['total']:.1%}; "
        f"{counts['timeout']} by a time-out); the rest: {(place / 'survivors.txt').relative_to(ROOT)}"
    )


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(PACKAGES)
    if unknown := set(chosen) - set(PACKAGES):
        sys.exit(f"no such package: {', '.join(sorted(unknown))}; known: {', '.join(PACKAGES)}")
    for package in chosen:
        run(package)
