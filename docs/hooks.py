"""What MkDocs is told beside mkdocs.yml: pages made from the code, from notebooks and from files of the project's root."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import nbformat
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from fedrec import methods
from fedrec.cli.app import app
from fedrec.cli.inspect import describe

ROOT = Path(__file__).parents[1]
FROM_ROOT = {"changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md", "contributing.md": "CONTRIBUTING.md"}
METHODS_MARK = "<!-- the table of methods -->"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The pages of methods are whatever is in their folder, and a page that nobody gave a place is a how-to."""
    named = str(config.nav)
    new = sorted(path.name for path in (ROOT / "docs").glob("*.md") if f"'{path.name}'" not in named)
    pages = sorted(path.name for path in (ROOT / "docs" / "methods").glob("*.md"))
    for entry in config.nav or []:
        if "Methods" in entry:
            entry["Methods"] = [f"methods/{name}" for name in pages]
        if "How to" in entry:
            entry["How to"] += new
        if "Tutorials" in entry:
            entry["Tutorials"] = [name.replace(".ipynb", ".md") for name in entry["Tutorials"]]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    made = {"cli.md": cli_page()}
    made |= {name: of_root((ROOT / source).read_text(encoding="utf-8")) for name, source in FROM_ROOT.items()}
    for path in sorted((ROOT / "docs" / "tutorials").glob("*.ipynb")):
        made[f"tutorials/{path.stem}.md"] = notebook_page(path)
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the table of methods where a page wants it, and link the page of a notebook where its file is linked."""
    markdown = re.sub(r"\]\((tutorials/[\w-]+)\.ipynb\)", r"](\1.md)", markdown)
    return markdown.replace(METHODS_MARK, methods_markdown()) if METHODS_MARK in markdown else markdown


def of_root(text: str) -> str:
    """A page of the root, as seen from docs/."""
    text = text.replace("](docs/", "](")
    for name, source in FROM_ROOT.items():
        text = text.replace(f"]({source})", f"]({name})")
    return text


def notebook_page(path: Path) -> str:
    """The cells of a notebook one after the other, with the texts they printed."""
    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        printed = "".join(_text(output) for output in cell.outputs).rstrip()
        if printed:
            parts.append(f"```text\n{printed}\n```")
    parts.append(f"[This page as a notebook]({path.name})")
    return "\n\n".join(parts) + "\n"


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text) if output.name == "stdout" else ""
    return str(output.get("data", {}).get("text/plain", "")) + "\n"


def methods_markdown() -> str:
    """All methods: what the server sees, what is where, what is sent."""
    heads = ["method", "the server sees", "private on the client", "uploaded", "kept by the server", "KB up", "KB down"]
    lines = [_row(heads), "| --- | --- | --- | --- | --- | ---: | ---: |"]
    for about in map(describe, methods.BUILT_IN):
        sent = about["bytes_ml_1m_d16"]
        kilobytes = ["-", "-"] if sent is None else [f"{sent[way] / 1e3:,.1f}" for way in ("up", "down")]
        lines.append(
            _row([about["name"], about["sees"], about["private"], about["uploaded"], about["server"], *kilobytes])
        )
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def cli_page() -> str:
    """Every command with its arguments and options."""
    lines = [
        "# Command line",
        "",
        "Generated from the program itself. `fedrec --install-completion` sets up the shell's Tab key.",
    ]
    lines += _commands(typer.main.get_command(app), "fedrec")
    return "\n".join(lines) + "\n"


def _commands(command: click.Command, path: str) -> list[str]:
    if isinstance(command, click.Group):
        found = []
        for name, child in command.commands.items():
            found += _commands(child, f"{path} {name}")
        return found
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines = ["", f"## {path}", "", f"```text\n{usage}\n```", "", _plain(command.help or "")]
    options = [
        option for option in command.params if getattr(option, "help", None) or option.param_type_name == "argument"
    ]
    lines += ["", "| | values | default | |", "| --- | --- | --- | --- |"]
    for option in options:
        record = option.to_info_dict()
        names = (
            option.human_readable_name
            if option.param_type_name == "argument"
            else ", ".join([*option.opts, *option.secondary_opts])
        )
        values = "" if getattr(option, "is_flag", False) else _values(option)
        default = record.get("default")
        shown = (
            ""
            if default in (None, (), [], False) or not isinstance(default, str | int | float | bool | Path)
            else str(default)
        )
        cells = [f"`{names}`", values, f"`{shown}`" if shown else "", _plain(getattr(option, "help", "") or "")]
        lines.append(_row(cells))
    return lines


def _values(option: click.Parameter) -> str:
    if isinstance(option.type, click.Choice):
        return ", ".join(map(str, option.type.choices))
    if isinstance(option.type, click.IntRange | click.FloatRange):
        low = "" if option.type.min is None else f" from {option.type.min}"
        high = "" if option.type.max is None else f" to {option.type.max}"
        return f"{option.metavar or 'N'}{low}{high}"
    return option.metavar or option.type.name


def _plain(text: str) -> str:
    return re.sub(r"(?<!`)<([\w-]+)>", r"`<\1>`", " ".join(text.replace("\\[", "[").split()))
