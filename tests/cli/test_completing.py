"""What a shell is offered when Tab is pressed, asked for as the scripts of shells do."""

import pytest
from typer.testing import CliRunner

from fedrec.cli.app import app


def offered(*words):
    """The last word is the one being typed."""
    line = " ".join(["fedrec", *words])
    env = {"_FEDREC_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    return CliRunner().invoke(app, [], env=env, prog_name="fedrec").stdout.split()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["trai"], ["train"]),
        (["train", "fedg"], ["fedgram"]),
        (["methods", "hete"], ["hetefedrec"]),
        (["compare", "fedmf", "pfed"], ["pfedrec"]),
        (["train", "fedmf", "--data", "ml-1"], ["ml-100k", "ml-1m"]),
        (["data", "get", "ml-100"], ["ml-100k"]),
        (["train", "fedmf", "--protocol", "pa"], ["paper"]),
        (["audit", "--protocol", "ho"], ["honest"]),
        (["train", "fedmf", "--device", "cp"], ["cpu"]),
        (["train", "fedmf", "--set", "init"], ["init_std="]),
        (["train", "fedmf", "--set", "merg"], ["merge=", "merge_variant="]),
        (["train", "nothing", "--set", "init"], []),
        (["compare", "a=fedmf", "ease", "--set", "ease:"], ["ease:delta_q=", "ease:lam="]),
        (["compare", "a=fedmf", "ease", "--set", "a:init"], ["a:init_std="]),
        (["train", "fedmf", "--protocol", "paper", "--protocol-set", "candi"], ["candidates="]),
        (["reproduce", "fedem-t"], ["fedem-table2"]),
        (["train", "fedmf", "--keep-m"], ["--keep-model"]),
    ],
)
def test_names_are_offered_where_they_are_wanted(words, wanted):
    found = offered(*words)
    assert set(wanted) <= set(found)
    assert all(name.startswith(words[-1]) for name in found)
    assert wanted or not found
