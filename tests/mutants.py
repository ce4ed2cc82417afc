"""Mutation testing: changes one expression of a package at a time and counts how many changes its tests notice.

``python tests/mutants.py PACKAGE ...`` works on a copy under ``build/mutants/PACKAGE``, prints the score and leaves what
survived, as diffs, in ``survivors.txt`` there. With ``--again`` only those survivors are tried, against the tests as they
are now; with ``--share 0.3`` three in ten of all changes, always the same. mutmut does the work; this file says what is
changed and which tests must notice.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "mutants"
CHILDREN = 2
TRIES = 3
NOTICED = (1, 3)
"""How pytest ends where a test fails."""
SKIPPED = 34
"""What mutmut notes of a mutant that is not to be tried."""

# Package: (files that are changed, tests that must notice).
PACKAGES = {
    "evaluation": ("src/fedrec/evaluation/*.py", ["tests/evaluation"]),
    "sampling": ("src/fedrec/sampling/*.py", ["tests/sampling"]),
    "protocol": ("src/fedrec/protocol/*.py", ["tests/protocol"]),
    "privacy": (
        "src/fedrec/federation/privacy.py",
        ["tests/federation/test_privacy.py", "tests/federation/test_privacy_edges.py"],
    ),
    "federation": ("src/fedrec/federation/*.py", ["tests/federation"]),
    "parts": ("src/fedrec/parts/*.py", ["tests/parts", "tests/federation/test_mixture.py"]),
}
# Compiled code: mutmut changes no decorated function, and Triton needs a GPU.
NEVER = ["*/cpu_*.py", "*/gpu_*.py"]

# What a message says: lines that raise, and lines of nothing but text. The conditions that lead there are changed.
MESSAGES = [r"^\s*raise \w+\(", r'^\s*f?"[^"]*"[,)]*$']

# Without these pytest collects all garbage at the end of every run (of one short test, mostly).
QUICK = ["-p", "mutants_worker", "-p", "no:cacheprovider", "-p", "no:unraisableexception", "-p", "no:threadexception"]

# Tests that take seconds where others take milliseconds.
TOO_SLOW = ["any_split", "canary", "an_own_protocol", "uniform_rate", "ranx"]


def settings(package: str) -> str:
    """What mutmut is to do, as its ``setup.cfg``."""
    files, tests = PACKAGES[package]
    never = [*NEVER, "*/privacy.py"] if package == "federation" else NEVER
    lists = {
        "source_paths": ["src"],
        "only_mutate": [files],
        "do_not_mutate": never,
        "do_not_mutate_patterns": MESSAGES,
        "pytest_add_cli_args_test_selection": tests,
        "pytest_add_cli_args": [*QUICK, "-k", " and ".join(f"not {name}" for name in TOO_SLOW)],
    }
    # Workers are forked from a process that has run no test: OpenMP does not survive a fork once it has worked.
    lines = [
        "[mutmut]",
        "process_isolation = forkserver",
        "use_git_change_detection = false",
        "timeout_multiplier = 40",
    ]
    lines += [f"{key} =\n  " + "\n  ".join(values) for key, values in lists.items()]
    return "\n".join(lines) + "\n"


def run(package: str, *, again: bool = False, share: float = 1.0) -> None:
    """Try the mutants of a package, or again those that survived, and print how many were noticed."""
    place = BUILD / package
    if again and place.exists():
        forget_survivors(place / "mutants")
    else:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name in ("src", "tests", "pyproject.toml"):
            (place / name).symlink_to(ROOT / name)
    (place / "setup.cfg").write_text(settings(package))
    for folder in ("src", "tests"):  # Python looks no second time for a folder that was not there at its start
        (place / "mutants" / folder).mkdir(parents=True, exist_ok=True)
    # One thread each, no real data (too slow), kernels compiled into a place of their own, and the changed copy in
    # processes that tests start, too.
    quiet = {"OMP_NUM_THREADS": "1", "FEDREC_DATA": str(place), "FEDREC_CACHE": str(BUILD / "cache")}
    quiet["PYTHONPATH"] = os.pathsep.join(str(place / "mutants" / folder) for folder in ("src", "tests"))

    def call(*command: str) -> int:
        return subprocess.run(command, cwd=place, env={**os.environ, **quiet}).returncode

    for tried in range(TRIES):  # where no process can be started for a while, mutmut ends; it goes on where it was
        if call(sys.executable, __file__, "--try", str(share)) == 0:
            break
        print(f"mutmut stopped early ({tried + 1} of {TRIES} tries)", file=sys.stderr)
        time.sleep(5)
    else:
        sys.exit(f"{package}: mutmut did not finish; what it says is above")
    if call(sys.executable, __file__, "--survivors", package) != 0:
        sys.exit(f"{package}: the survivors could not be listed")


def try_mutants(share: float) -> None:
    """Have mutmut try its mutants, or a share of them that depends on their names alone. Runs in the place of a package."""
    from mutmut import __main__ as mutmut
    from mutmut.workers.isolation import ForkServerRunner

    everything = mutmut.collect_source_file_mutation_data

    def chosen(**options: Any) -> tuple[list[Any], Any]:
        mutants, files = everything(**options)
        for data, name, code in mutants:
            if code is None and not is_chosen(name, share):
                data.exit_code_by_key[name] = SKIPPED
        for data in files.values():  # mutmut itself notes only where something is tried
            data.save()
        return [(data, name, data.exit_code_by_key[name]) for data, name, _ in mutants], files

    mutmut.collect_source_file_mutation_data = chosen
    # All tests have just passed, when mutmut noted what each reaches; it would run them all once more.
    ForkServerRunner.run_clean_tests = lambda self, tests: 0
    mutmut._run((), CHILDREN)


def is_chosen(name: str, share: float) -> bool:
    """Whether a mutant is in the share that is tried. By a hash that scatters: a checksum takes neighbours together."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big") < share * 2**32


def forget_survivors(place: Path) -> None:
    """Make mutmut try again what it noted as not noticed, after it has found out anew which tests reach what."""
    (place / "mutmut-stats.json").unlink(missing_ok=True)
    for path in place.rglob("*.meta"):
        noted = json.loads(path.read_text())
        codes = noted["exit_code_by_key"]
        noted["exit_code_by_key"] = {name: code if code in NOTICED else None for name, code in codes.items()}
        path.write_text(json.dumps(noted))


def report(package: str) -> None:
    """Count what was noticed, and write what was not as diffs. Runs where mutmut ran."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    counts: Counter[str] = Counter()
    shown = []
    for path in sorted(walk_mutatable_files()):
        data = SourceFileMutationData(path=path)
        data.load()
        for name, code in data.exit_code_by_key.items():
            status = status_by_exit_code[code]
            if status == "skipped":
                continue
            counts[status] += 1
            if status not in ("killed", "timeout"):
                shown.append(f"# {name}: {status}\n{get_diff_for_mutant(name, path=path)}\n")
    Path("survivors.txt").write_text("\n".join(shown))
    total, noticed = counts.total(), counts["killed"] + counts["timeout"]
    print(
        f"{package}: {noticed} of {total} mutants noticed ({noticed / total:.1%}; {counts['timeout']} by a time-out); "
        f"the rest: {(BUILD / package / 'survivors.txt').relative_to(ROOT)}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--survivors"]:
        sys.exit(report(sys.argv[2]))
    if sys.argv[1:2] == ["--try"]:
        sys.exit(try_mutants(float(sys.argv[2])))
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(PACKAGES)}; by default all")
    reader.add_argument("--again", action="store_true", help="try only what survived")
    reader.add_argument("--share", type=float, default=1.0, help="try this share of the changes")
    given = reader.parse_args()
    if unknown := set(given.packages) - set(PACKAGES):
        sys.exit(f"no such package: {', '.join(sorted(unknown))}; known: {', '.join(PACKAGES)}")
    for package in given.packages or PACKAGES:
        run(package, again=given.again, share=given.share)
