"""The command line and Python have the same options and defaults, and only the command line speaks of flags."""

import ast
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import fedrec
from fedrec.cli.app import app
from fedrec.cli.root import data_only

SOURCE = Path(fedrec.__file__).parent
ELSEWHERE = {"progress": "quiet", "privacy": "ldp"}
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*+(?!>)")


def test_defaults_are_those_of_python():
    command = typer.main.get_command(app).commands["train"]
    flags = {parameter.name: parameter.default for parameter in command.params}
    for name, value in fedrec.RunOptions():
        found = flags[ELSEWHERE.get(name, name)]
        assert (not found if name == "progress" else found) == value, name


def commands(group=None, words=()):
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield pytest.param([*words, name], command, id=" ".join((*words, name)))


def letters(text):
    return re.sub(r"[^A-Za-z0-9\[\]]", "", text)


@pytest.mark.parametrize(("words", "command"), list(commands()))
def test_help_says_all_that_is_known_of_options_and_arguments(words, command):
    """Nothing is taken for mark-up, and nothing is lost between the versions of the libraries that print it."""
    shown = letters(CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"}).stdout)
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        assert text or parameter.param_type_name == "option", parameter.name
        assert letters((text or "").replace("\\", "")) in shown, parameter.name


@pytest.mark.parametrize(
    "words", [["data"], ["data", "--help"], ["data", "sats"], ["data", "stats"], ["data", "stats", "--help"]]
)
def test_data_without_the_other_commands_says_what_it_says_among_them(words):
    alone, among = (CliRunner().invoke(one, words) for one in (data_only(), app))
    assert among.output
    assert (alone.exit_code, alone.output) == (among.exit_code, among.output)


def flags_in(tree):
    """Flags in texts of several words: an argument of another program is one word."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [flag for text in texts if " " in text for flag in FLAG.findall(text)]


def test_library_words_are_no_flags():
    """Only `cli` knows flags; guides for operators are command lines to type, and a module with a parser is a command of its own."""
    guides = SOURCE / "deploy" / "guides.py"
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if "cli" not in path.relative_to(SOURCE).parts and path != guides and "import argparse" not in text:
            assert flags_in(ast.parse(text)) == [], path
