"""The documentation does what it says: marked blocks run, commands parse, notebooks run, the site is whole."""

import re
import shlex
from pathlib import Path

import click
import pytest
import typer

import docs_run
from docs_run import PAGES, ROOT, Block, blocks, commands, run_page
from fedrec.cli.app import app

MARKS = {path: {block.mark for block in blocks(path.read_text())} for path in PAGES}
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
name_of = lambda path: path.relative_to(ROOT).as_posix()  # noqa: E731


@pytest.mark.parametrize("page", [path for path in PAGES if "run" in MARKS[path]], ids=name_of)
def test_quick_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page(page, "run")


@pytest.mark.slow
@pytest.mark.parametrize("page", [path for path in PAGES if "run: slow" in MARKS[path]], ids=name_of)
def test_slow_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page(page, "run: slow")


def test_a_block_that_fails_fails_the_test(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(docs_run, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    for text in ("<!-- run -->\n```bash\nfedrec show nowhere\n```\n", "<!-- run -->\n```python\nassert 1 == 2\n```\n"):
        page.write_text(text)
        with pytest.raises(AssertionError):
            run_page(page, "run")
    page.write_text("```python\nassert 1 == 2\n```\n")  # not marked
    run_page(page, "run")


def parse(words):
    """Whether the command line has this command with these options; what values mean is not looked at."""
    command = typer.main.get_command(app)
    context, words = click.Context(command, info_name="fedrec", **command.context_settings), list(words[1:])
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        command = command.get_command(context, name)
        if command is None:
            raise click.UsageError(f"no command {name}")
        context = click.Context(command, parent=context, info_name=name)
    left = command.make_parser(context).parse_args([word for word in words if word != "--debug"])[1]
    if left and not isinstance(command, click.Group):
        raise click.UsageError(f"unexpected {left}")


def lines_of(page):
    """Commands in the blocks of a page, and whether they are whole; those in its text may end where the reader goes on."""
    text = page.read_text()
    for block in blocks(text):
        if block.language in ("", "bash", "sh", "console", "text"):
            plain = re.sub(r"\s#.*", "", re.sub(r"\\\n\s*", " ", block.text))
            for line in re.split(r"\n|;|&&|\|", plain):
                if line.strip().removeprefix("$ ").startswith("fedrec "):
                    yield line.strip().removeprefix("$ "), True
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from ((found, True) for found in re.findall(r"^ {4,}(fedrec [^|;\n]*)", plain, re.MULTILINE))
    yield from ((found, False) for found in re.findall(r"`(fedrec [^`]*)`", plain))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_of_the_documentation_exist(page):
    for line, whole in lines_of(page):
        try:
            words = shlex.split(" ".join(line.split()), comments=True)
        except ValueError:
            words = line.split()
        if not whole and any(word.endswith(",") for word in words):
            continue  # `fedrec federation new, server, site`: a list of commands
        try:
            parse([word.strip("[]") for word in words])
        except click.UsageError as error:
            if whole or "requires an argument" not in error.format_message():
                pytest.fail(f"{page.relative_to(ROOT)}: {line}: {error.format_message()}")


def test_the_parser_notices_what_does_not_exist():
    parse(["fedrec", "train", "fedmf", "--set", "lr=1", "-h"])
    for words in (["trian"], ["train", "fedmf", "--rouns", "3"], ["data", "lst"], ["show", "runs", "--rounds", "1"]):
        with pytest.raises(click.UsageError):
            parse(["fedrec", *words])


def test_blocks_are_found_as_they_are_marked():
    text = "a\n<!-- run -->\n```bash\nfedrec a  # why\n```\n```python\nx\n```\n<!-- run: slow -->\n```sh\nfedrec b \\\n  c\n```\n"
    found = blocks(text)
    assert [(block.mark, block.language) for block in found] == [("run", "bash"), ("", "python"), ("run: slow", "sh")]
    assert [list(commands(block.text)) for block in found if block.mark] == [[["fedrec", "a"]], [["fedrec", "b", "c"]]]
    assert isinstance(found[0], Block)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path):
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()


def test_notebooks_are_small_and_whole():
    import nbformat

    assert {path.stem for path in NOTEBOOKS} == {"quickstart", "own-data", "add-a-method", "privacy"}
    for path in NOTEBOOKS:
        assert path.stat().st_size < 30_000
        book = nbformat.read(path, as_version=4)
        nbformat.validate(book)
        for cell in book.cells:
            if cell.cell_type == "code" and not cell.source.startswith("%%"):
                compile(cell.source, str(path), "exec")


@pytest.mark.slow
def test_the_site_is_built_strictly_and_asks_nobody(tmp_path):
    """Links and anchors are checked; no page loads anything from elsewhere."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True))
    pages = list((tmp_path / "site").rglob("*.html"))
    assert {"index.html", "cli.html", "api.html", "changelog.html"} <= {path.name for path in pages}
    for path in pages:
        loads = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?(https?:[^\s\">]+)", path.read_text())
        loads += re.findall(
            r"<link(?![^>]*rel=\"?(?:canonical|edit|prev|next))[^>]*href=\"?(https?:[^\s\">]+)", path.read_text()
        )
        assert loads == [], path
    text = (tmp_path / "site" / "cli.html").read_text()
    assert "--keep-checkpoints" in text
    assert ".ipynb" not in (tmp_path / "site" / "index.html").read_text(), "the page of a notebook, not its file"
    assert "fedgram" in (Path(tmp_path) / "site" / "choose-a-method.html").read_text()
