"""Image files: every figure, the same each time, names as they are."""

import builtins
import xml.etree.ElementTree as ET

import pytest

from fedrec.errors import ConfigError
from fedrec.report.figure import Axis, Figure, Panel, Series
from fedrec.report.figures import figures
from fedrec.report.images import save
from fedrec.report.sources import read_sections


def all_kinds(name="a"):
    numbers, names = Axis("x", log=True), Axis("", categories=("first", "second"))
    return Figure(
        "all", "All kinds", "Words.",
        (
            Panel("one", numbers, Axis("y"), (
                Series(name, "line", (1.0, 10.0), (0.1, None), 0, (0.0, None), (0.2, None)), Series("b", "step", (1.0, 10.0), (1.0, 0.5), 9),
                Series("c", "level", (), (0.3,), 2), Series("d", "point", (3.0,), (0.4,), 3),
            )),
            Panel("two", names, Axis("z", zero=True), (
                Series("ours", "bar", names.categories, (0.5, 0.6), 0, (0.4, None), (0.6, None), (True, False)),
                Series("published", "point", names.categories, (0.4, None)),
            ), sideways=True),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_figure_is_the_same_file_each_time(tmp_path, kind, start):
    pytest.importorskip("matplotlib")
    paths = [tmp_path / f"{n}.{kind}" for n in range(2)]
    for path in paths:
        save(all_kinds(), path)
    first, second = (path.read_bytes() for path in paths)
    assert first.startswith(start)
    assert first == second
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"0.{kind}", f"1.{kind}"]


def test_names_are_text_not_formulas_or_markup(tmp_path):
    pytest.importorskip("matplotlib")
    save(all_kinds("$x_1$ <b>&"), tmp_path / "a.svg")
    root = ET.parse(tmp_path / "a.svg").getroot()
    assert "$x_1$ <b>&" in ["".join(one.itertext()).strip() for one in root.iter("{http://www.w3.org/2000/svg}text")]


def test_every_figure_of_runs_and_studies_can_be_drawn(tmp_path, study, runs):
    pytest.importorskip("matplotlib")
    keys = set()
    for section in read_sections([study, runs["mf"], runs["noisy"]]):
        for figure in figures(section, models=False):
            save(figure, tmp_path / f"{section.key}-{figure.key}.png")
            keys.add(figure.key)
    assert keys >= {"table-1", "sweep-1", "sweep-groups", "convergence", "groups", "clients", "bytes", "epsilon"}
    assert all(path.stat().st_size > 5000 for path in tmp_path.iterdir())


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"pip install 'fedrec\[report\]'"):
        save(all_kinds(), tmp_path / "a.png")
