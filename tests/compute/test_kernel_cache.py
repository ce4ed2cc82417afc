"""A kernel is compiled anew when anything changed that it contains."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from numba.core.registry import CPUDispatcher

from fedrec.compute import kernel_cache


def run(package: Path, cache: Path, program: str) -> list[str]:
    paths = os.pathsep.join([str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "FEDREC_CACHE": str(cache)}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def modules() -> list[ModuleType]:
    names = []
    for path in kernel_cache.kernel_files():
        parts = path.relative_to(kernel_cache.PACKAGE).with_suffix("").parts
        names.append(".".join(["fedrec", *(part for part in parts if part != "__init__")]))
    return [importlib.import_module(name) for name in names]


def kernels(module: ModuleType) -> list[CPUDispatcher]:
    return [found for found in vars(module).values() if isinstance(found, CPUDispatcher)]


def test_all_kernels_lie_in_the_files_that_are_hashed() -> None:
    hashed = {str(path) for path in kernel_cache.kernel_files()}
    users = [path for path in kernel_cache.PACKAGE.rglob("*.py") if "import compiled" in path.read_text()]
    assert len(users) >= 7
    assert {str(path) for path in users} <= hashed


def test_kernels_contain_nothing_of_other_files() -> None:
    """Names that compiled code reads come from numpy and math, or from a file that is hashed."""
    hashed = {module.__name__ for module in modules()}
    for module in modules():
        tree = ast.parse(Path(str(module.__file__)).read_text())
        origin = {
            alias.asname or alias.name: node.module
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for kernel in kernels(module):
            used = {name for name in kernel.py_func.__code__.co_names if name in kernel.py_func.__globals__}
            assert {origin.get(name, module.__name__) for name in used} <= hashed, kernel


def test_the_hash_is_of_every_kernel_file(tmp_path: Path) -> None:
    for path in kernel_cache.kernel_files():
        target = tmp_path / path.relative_to(kernel_cache.PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    known = {kernel_cache.fingerprint()}
    assert kernel_cache.fingerprint(tmp_path) in known
    for path in kernel_cache.kernel_files(tmp_path):
        path.write_text(path.read_text() + "\n")
        assert kernel_cache.fingerprint(tmp_path) not in known, path
        known.add(kernel_cache.fingerprint(tmp_path))


def test_a_change_in_an_included_file_is_noticed(tmp_path: Path) -> None:
    package, cache = tmp_path / "src" / "fedrec", tmp_path / "cache"
    for part in ("compute", "sampling"):
        shutil.copytree(
            kernel_cache.PACKAGE / part, package / part, ignore=shutil.ignore_patterns("__pycache__", "gpu_*")
        )
    (package / "errors.py").write_text((kernel_cache.PACKAGE / "errors.py").read_text())
    (package / "__init__.py").write_text("")
    outer = package / "sampling" / "cpu_outer.py"
    outer.write_text(
        "from fedrec.compute.cpu import compiled\nfrom fedrec.sampling.cpu_inner import inner\n\n\n"
        "@compiled\ndef outer():\n    return inner() + 1\n"
    )
    inner = package / "sampling" / "cpu_inner.py"
    program = (
        "from fedrec.sampling.cpu_outer import outer\nfrom fedrec.compute.kernel_cache import _folder\n"
        "print(outer(), sum(outer.stats.cache_hits.values()), _folder())"
    )
    source = "from fedrec.compute.cpu import compiled\n\n\n@compiled\ndef inner():\n    return {}\n"
    inner.write_text(source.format(10))
    first, again = run(package, cache, program), run(package, cache, program)
    assert (first[:2], again[:2]) == (["11", "0"], ["11", "1"]), "the second process must find the first one's code"
    assert first[2].startswith(str(cache))
    inner.write_text(source.format(20))
    changed = run(package, cache, program)
    assert changed[:2] == ["21", "0"]
    assert changed[2] != first[2]


def test_folders_nobody_used_for_a_month_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDREC_CACHE", str(tmp_path))
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    for name, age in (("old", 31), ("young", 29)):
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True)
        then = time.time() - age * 24 * 3600
        os.utime(folder, (then, then))
    found = kernel_cache._folder.__wrapped__()
    assert found is not None
    assert {path.name for path in (tmp_path / "kernels").iterdir()} == {"young", found.name}
    assert found.stat().st_mode & 0o077 == 0, "numba reads pickles from here: nobody else may write"


def test_without_a_place_kernels_are_compiled_in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDREC_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    monkeypatch.setattr(kernel_cache, "_folder", kernel_cache._folder.__wrapped__)
    with kernel_cache.cached_beside_its_like() as place:
        assert place is False
