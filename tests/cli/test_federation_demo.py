"""``fedrec federation demo``: a server and three sites as processes, their runs beside the simulation of the same users."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="needs the extra 'deploy'")
pytest.importorskip("cryptography")


@pytest.mark.slow
def test_three_sites_reach_what_one_process_does_and_are_stopped(tmp_path):
    words = ("federation", "demo", "--rounds", "1", "--data", "demo", "--keep", str(tmp_path / "kept"))
    wide = os.environ | {"COLUMNS": "160"}
    done = subprocess.run(
        [sys.executable, "-m", "fedrec", *words], capture_output=True, text=True, timeout=900, check=False, env=wide
    )
    assert done.returncode == 0, done.stderr
    out, err = done.stdout, done.stderr
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    compared = [line for line in lines if len(line) == 6]
    assert [line[0] for line in compared] == ["fedmf", "", "fedmf secure", "", "fedem", ""]
    assert [line[1] for line in compared] == ["three sites", "one process"] * 3
    for sites, alone in zip(compared[::2], compared[1::2], strict=True):
        assert [float(cell) for cell in sites[2:5]] == pytest.approx([float(cell) for cell in alone[2:5]], abs=2e-3)
    wire = [line for line in lines if len(line) == 7]
    assert [(line[0], line[2]) for line in wire] == [
        (name, site) for name in ("fedmf", "fedmf secure", "fedem") for site in ("east", "north", "west")
    ]
    assert {line[1] for line in wire[3:6]} == {"sums over all sites"}
    assert sum(line[0].isdigit() for line in lines if len(line) == 3) == 10, "ten items for a user of the first site"
    assert "stopped 4 processes" in err
    assert (tmp_path / "kept" / "server" / "runs").is_dir()
