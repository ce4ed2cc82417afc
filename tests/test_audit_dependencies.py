"""The audit of dependencies fails for what it found, and for nothing else."""

import json
import sys

import pytest

import audit_dependencies
from audit_dependencies import audit

SOUND = {"name": "torch", "version": "2.7", "vulns": []}
UNKNOWN = {"name": "numpy", "skip_reason": "not found"}
HOLE = {"name": "rich", "version": "14.0", "vulns": [{"id": "PYSEC-2025-1", "fix_versions": ["14.1"], "aliases": []}]}


def saying(text, code=0, error=""):
    return [sys.executable, "-c", f"import sys; print({text!r}); print({error!r}, file=sys.stderr); sys.exit({code})"]


def answering(*packages, code=0):
    return saying(json.dumps({"dependencies": packages, "fixes": []}), code)


def test_a_known_vulnerability_fails_and_names_the_package_and_the_fixed_version():
    code, words = audit(answering(SOUND, UNKNOWN, HOLE, code=1))
    assert code == 1
    assert "rich 14.0: PYSEC-2025-1, fixed in 14.1" in words


def test_sound_packages_pass_and_unknown_ones_are_counted():
    assert audit(answering(SOUND, UNKNOWN)) == (
        0,
        "no known vulnerability in 1 of 2 packages (the index knows nothing about the others)",
    )


@pytest.mark.parametrize(
    ("command", "limit_s", "word"),
    [
        (answering(UNKNOWN, UNKNOWN), 60, "knows nothing about any of 2 packages"),
        (saying("", 1, "ConnectionError: no route to host"), 60, "cannot be asked (ConnectionError: no route to host)"),
        (saying("[]", 1), 60, "cannot be asked"),
        (["no-such-program-here"], 60, "cannot be run"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], 1, "did not answer within 1 s"),
    ],
)
def test_an_index_that_cannot_be_asked_is_said_and_does_not_fail(command, limit_s, word):
    code, words = audit(command, limit_s)
    assert code == 0
    assert words.startswith("not audited: ")
    assert word in words


def test_what_is_ignored_is_passed_on_with_a_reason(monkeypatch):
    monkeypatch.setattr(audit_dependencies, "IGNORED", {"PYSEC-2025-1": "we do not use it"})
    told = "import json, sys; print(json.dumps({'dependencies': [{'name': word} for word in sys.argv[1:]]}))"
    assert audit([sys.executable, "-c", told])[1].endswith("knows nothing about any of 2 packages")


def test_every_ignored_vulnerability_has_its_reason():
    assert all(len(reason) > 20 for reason in audit_dependencies.IGNORED.values())
