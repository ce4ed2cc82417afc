"""Finds the blocks of the documentation that are marked as runnable, and runs them in one folder, page by page.

A block is marked by a line before its fence: ``<!-- run -->`` for what takes a moment on the embedded data,
``<!-- run: slow -->`` for what takes longer. Blocks of a page share a folder and, in Python, their names.
"""

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedrec.cli import main

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
BLOCK = re.compile(r"(?:^<!-- (run|run: slow) -->\n)?^```([\w-]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    mark: str
    language: str
    text: str
    line: int


def blocks(text):
    """All fenced blocks of a page."""
    return [Block(m[1] or "", m[2], m[3], text[: m.start()].count("\n") + 1) for m in BLOCK.finditer(text)]


def commands(text):
    """The command lines of a block, without comments, lines that go on joined."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if words := shlex.split(line.removeprefix("$ "), comments=True):
            yield words


def run_page(path, mark):
    """Run the blocks with that mark, and quick ones before slow ones they build on."""
    space = {"__name__": "docs"}
    found = [block for block in blocks(path.read_text()) if block.mark and (mark == "run: slow" or block.mark == mark)]
    for block in found:
        where = f"{path.relative_to(ROOT)}, line {block.line}"
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, where, "exec"), space)
        elif block.language in ("bash", "sh", ""):
            for words in commands(block.text):
                _call(words, where)
        else:
            raise AssertionError(f"{where}: a block of {block.language} cannot be run")


def _call(words, where):
    if words[0] != "fedrec":
        done = subprocess.run(words, check=False, capture_output=True, text=True, env=dict(os.environ))
        assert done.returncode == 0, (where, words, done.stderr)
        return
    with pytest.raises(SystemExit) as end:
        main(words[1:])
    assert not end.value.code, f"{where}: {shlex.join(words)} ended with exit code {end.value.code}"
