import io

import pytest
from rich.console import Console

import fedrec
from fedrec.cli import splitting


@pytest.fixture
def screen(monkeypatch):
    """What is printed on stderr; all data count as large."""
    monkeypatch.setattr(splitting, "LONG", 1)

    def put(terminal):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
        monkeypatch.setattr(splitting, "err", console)
        return console.file

    return put


def test_long_splits_show_what_they_do(screen, demo, honest):
    shown = screen(terminal=True)
    assert splitting.split_data(fedrec.HONEST, demo, 0).hash == honest.hash
    assert "drawing candidates" in shown.getvalue()
    shown = screen(terminal=False)
    assert splitting.split_data(fedrec.HONEST, demo, 0).hash == honest.hash
    assert "splitting 19,654 rows\n" in shown.getvalue()


def test_short_and_quiet_splits_do_not(screen, monkeypatch, demo):
    shown = screen(terminal=True)
    splitting.split_data(fedrec.HONEST, demo, 0, quiet=True)
    monkeypatch.setattr(splitting, "LONG", 20_000)
    splitting.split_data(fedrec.HONEST, demo, 0)
    assert "candidates" not in shown.getvalue()
