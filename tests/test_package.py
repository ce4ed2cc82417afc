"""The package as others get it: built from its sdist, installed where nothing else of this tree is, and tried."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import fedrec
from fedrec.version import installed_version

ROOT = Path(__file__).parents[1]
SOURCE = Path(fedrec.__file__).parent


def test_one_version():
    """pyproject.toml says it; what is installed and CITATION.cff say the same."""
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert (ROOT / "CHANGELOG.md").read_text().split("## ")[1].startswith(version)
    assert installed_version() in (version, "not installed")


def test_all_is_every_extra_that_users_want():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(everything.removeprefix("fedrec[").removesuffix("]").split(","))
    assert named == extras.keys() - {"all", "dev", "docs", "peers"}


def test_every_kind_of_file_is_packed():
    """Quick, where the slow tests look into the wheel itself."""
    import tomllib

    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["fedrec"]
    files = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    left = {path.name for path in files if path.suffix != ".py" and not any(path.match(pattern) for pattern in packed)}
    assert left == set()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from it, of a copy of the tree: what a build leaves there would be packed again."""
    out, tree = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=clean())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def python(built, tmp_path_factory):
    """A fresh environment with the wheel; its dependencies are those of this one, and nothing is downloaded."""
    place = tmp_path_factory.mktemp("fresh")
    venv.create(place, with_pip=False)
    (library,) = place.glob("lib/python*/site-packages")
    words = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(place / "bin" / "python"),
        "install",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*words, "--quiet", str(built[0])], check=True, env=clean())
    # A plain path: what is installed here for editing is found through files that only the folder itself would read.
    (library / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin" / "python"


def clean():
    """The environment without what leads to this tree."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FEDREC_DATA")}


def call(python, folder, *words):
    done = subprocess.run(
        [str(python.parent / words[0]), *words[1:]],
        cwd=folder,
        env=clean(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_every_file_of_the_source_is_in_both(built):
    wanted = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wheel, sdist = built
    inside = {name.removeprefix("fedrec/") for name in zipfile.ZipFile(wheel).namelist() if name.startswith("fedrec/")}
    assert inside == wanted
    with tarfile.open(sdist) as archive:
        names = {name.partition("/src/fedrec/")[2] for name in archive.getnames()}
    assert wanted <= names


@pytest.mark.slow
def test_what_is_installed_works(python, tmp_path):
    where = call(python, tmp_path, "python", "-c", "import fedrec; print(fedrec.__file__)").strip()
    assert Path(where).is_relative_to(python.parents[1])
    assert call(python, tmp_path, "fedrec", "--version").strip() == installed_version()
    words = ("--data", "demo", "--rounds", "2", "--out", "run", "--json", "--quiet", "--device", "cpu")
    result = json.loads(call(python, tmp_path, "fedrec", "train", "fedmf", *words))
    assert result["config"]["lr"] == 0.03  # tuned for this data set, in a file of the package
    assert "u444" in call(python, tmp_path, "fedrec", "recommend", "run", "--user", "u444")
    call(python, tmp_path, "fedrec", "report", "run", "-o", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<style>" in page
    assert len(page) > 10_000
    assert "fedem-table2" in call(python, tmp_path, "fedrec", "reproduce")
    assert "@article{fedmf" in call(python, tmp_path, "fedrec", "methods", "fedmf", "--bibtex")
