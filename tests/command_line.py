"""Runs commands in this process, as a user would."""

import json

import pytest

from fedrec.cli import main


def run(capsys, *words):
    """Exit code, stdout and stderr of one command."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, words)])
    captured = capsys.readouterr()
    return end.value.code or 0, captured.out, captured.err


def refused(capsys, *words):
    """The one sentence a mistake gets."""
    code, out, err = run(capsys, *words)
    assert code == 2, (code, out, err)
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def strict(text):
    """JSON as every reader understands it: no NaN, no Infinity."""

    def never(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=never)
