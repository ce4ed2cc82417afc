"""Folders, keys and certificates, and what is refused before anything is started."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import errno
import os
import re
import socket

import pytest
import typer
from sites_at_hand import plan_of, sites_of, train

from fedrec.cli import main
from fedrec.deploy.certificates import authority, expiry, server_certificate
from fedrec.deploy.folders import catalogue, save, server_settings, site_settings
from fedrec.deploy.items import item_ids
from fedrec.deploy.provision import provision
from fedrec.deploy.service import _check_certificate, _check_port
from fedrec.errors import ConfigError, DataError, FedrecError


def test_folders_hold_what_belongs_there_and_no_more(tmp_path):
    provision(tmp_path / "it", ["north", "south"], items=("a", "b"), name="shops", host="fed.example.org", port=9000)
    found = {str(path.relative_to(tmp_path / "it")) for path in (tmp_path / "it").rglob("*") if path.is_file()}
    site = {"README.md", "ca.crt", "items.key", "site.json", "site.key", "start.sh"}
    server = {"README.md", "ca.crt", "catalogue.json", "federation.json", "fedrec-server.service", "secret"}
    server |= {"server.crt", "server.key", "start.sh", "keys/north.pub", "keys/south.pub"}
    expected = {"README.md", "authority/ca.key", "authority/ca.crt", *(f"server/{name}" for name in server)}
    for name in ("north", "south"):
        expected |= {f"sites/{name}/{file}" for file in site | {f"fedrec-{name}.service"}}
    assert found == expected
    for path in (tmp_path / "it").rglob("*"):
        if path.name in ("ca.key", "items.key", "server.key", "site.key", "secret"):
            assert path.stat().st_mode & 0o777 == 0o600
    assert site_settings(tmp_path / "it" / "sites" / "north").server == "fed.example.org:9000"
    assert server_settings(tmp_path / "it" / "server").listen == "0.0.0.0"
    assert catalogue(tmp_path / "it" / "server") == ("a", "b")
    unit = (tmp_path / "it" / "sites" / "north" / "fedrec-north.service").read_text()
    assert "Restart=always" in unit
    one, two = ((tmp_path / "it" / "sites" / name / "site.key").read_bytes() for name in ("north", "south"))
    assert one != two
    one, two = ((tmp_path / "it" / "sites" / name / "items.key").read_bytes() for name in ("north", "south"))
    assert one == two
    assert not any(one in path.read_bytes() for path in (tmp_path / "it" / "server").rglob("*") if path.is_file())


def test_commands_in_the_guides_can_be_given_as_they_stand(tmp_path):
    from fedrec.cli.federation import app

    commands, seen = typer.main.get_command(app).commands, set()
    provision(tmp_path / "it", ["north"], port=8000)
    for guide in (tmp_path / "it").rglob("README.md"):
        for line in re.findall(r"`fedrec federation ([^`]*)`", guide.read_text()):
            name, *rest = line.split()
            commands[name].make_context(name, rest)  # refuses words that mean nothing
            seen.add(name)
    assert seen == {"catalogue", "recommend", "run", "status"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["new", "it"], "how many sites"),
        (["new", "it", "--sites", "2", "--names", "a,b,c"], "contradict each other"),
        (["new", "it", "--names", "a,a"], "one name each"),
        (["new", "it", "--names", "../a"], "cannot be the name of a site"),
        (["new", "full", "--sites", "1"], "is not empty"),
        (["new", "it", "--sites", "1", "--items", "nothing.csv"], "cannot be read as a list of items"),
        (["server", "empty"], "is no folder of a server"),
        (["site", "empty"], "is no folder of a site"),
        (["run", "fedmf", "--server", "empty"], "is no folder of a server"),
        (["status", "empty"], "is no folder of a server"),
        (["recommend", "empty", "--user", "3"], "is no folder of a site"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as stop:
        main(["federation", *words])
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert message in " ".join(said.split())
    assert "Traceback" not in said


def test_a_run_needs_a_server_and_a_site_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main_ok(["federation", "new", "it", "--sites", "1", "--items", "demo", "--port", str(free_port())])
    for words, message in (
        (["run", "fedmf", "--server", "it/server"], "no server answers"),
        (["run", "ease", "--server", "it/server"], "no server answers"),
        (["status", "it/server"], "no server answers"),
        (["site", "it/sites/site-1"], "this site has no data yet"),
        (["site", "it/sites/site-1", "--data", "no.csv"], "no.csv"),
        (["run", "fedmf", "--server", "it/server", "--min-sites", "2"], "min-sites is 2; give 1 to 1"),
        (["recommend", "it/sites/site-1", "--user", "3"], "no run has ended"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["federation", *words])
        assert stop.value.code == 2, words
        assert message in " ".join(capsys.readouterr().err.split()), words


def main_ok(words):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert not stop.value.code


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_port_in_use_is_said_before_anything_is_started(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        provision(tmp_path / "it", ["a"], port=other.getsockname()[1])
        with pytest.raises(ConfigError, match=r"cannot be listened on \(Address already in use\)"):
            _check_port(server_settings(tmp_path / "it" / "server"))


def test_an_expired_certificate_does_not_serve(tmp_path):
    issuer = authority("x", 30)
    (tmp_path / "server.crt").write_bytes(server_certificate(issuer, ["localhost"], 0).certificate)
    with pytest.raises(ConfigError, match="expired on"):
        _check_certificate(tmp_path / "server.crt")
    left = expiry(server_certificate(issuer, ["localhost"], 10).certificate) - datetime.datetime.now(datetime.UTC)
    assert 9 <= left.days <= 10


@pytest.mark.parametrize(
    ("text", "items"), [("item\n3\n1\n3\n", (3, 1)), ("name,item\nx,a\ny,7\n", ("a", "7")), ("sku\nb\na\n", ("b", "a"))]
)
def test_items_are_those_of_a_column(tmp_path, text, items):
    (tmp_path / "items.csv").write_text(text)
    assert item_ids(str(tmp_path / "items.csv")) == items


def test_a_list_without_items_is_refused(tmp_path):
    (tmp_path / "items.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="has no column 'item', but a, b"):
        item_ids(str(tmp_path / "items.csv"))


def test_items_the_catalogue_does_not_know_are_told_and_left_out(demo, tmp_path):
    told: list[str] = []
    plan = dataclasses.replace(plan_of(demo), catalogue=demo.item_ids[:-5])
    train(demo, tmp_path, "fedmf", {"dim": 4, "epochs": 1}, rounds=1, tell=told.append, plan=plan)
    assert any("of its items are not in the catalogue, so" in line for line in told)


def test_groups_that_are_too_small_are_not_told_of(demo, tmp_path):
    sites = sites_of(demo, tmp_path / "sites", smallest=34)
    found = train(demo, tmp_path, "fedmf", {"dim": 4, "epochs": 1}, rounds=1, sites=sites)
    told = sum(group.size for group in found.groups["hr@10"])
    assert 0 < told < 500  # fifths of a site have about 33 users
    assert found.test.full["hr@10"] >= 0


def test_a_full_disk_at_a_site_is_one_line_and_the_round_goes_on(demo, tmp_path, monkeypatch):
    from fedrec.running import files

    told: list[str] = []
    sites = sites_of(demo, tmp_path / "sites")
    real = files.save_file

    def full(tensors, path, *rest, **more):
        if "north" in str(path) and "000002" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(tensors, path, *rest, **more)

    monkeypatch.setattr(files, "save_file", full)
    result = train(demo, tmp_path, "fedmf", {"dim": 4, "epochs": 1}, sites=sites, tell=told.append)
    lines = [line for line in told if "going on without" in line]
    assert len(lines) == 1
    assert lines[0].startswith("round 2: going on without site north: it refused: ")
    assert "No space left on device" in lines[0]
    assert result.rounds == 3


def test_only_what_sites_ask_is_answered_elsewhere():
    pytest.importorskip("flwr")
    from fedrec.deploy.flower.link import LoopbackOnly

    async def asked(path, client):
        said = []

        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200})

        async def send(message):
            said.append(message.get("status"))

        await LoopbackOnly(app)({"type": "http", "path": path, "client": client}, None, send)
        return said[0]

    for path, client, status in (
        ("/v1/control/start-run", ("127.0.0.1", 5), 200),
        ("/v1/control/start-run", ("::1", 5), 200),
        ("/v1/control/start-run", ("10.0.0.7", 5), 403),
        ("/v1/runtime/acquire-task", ("10.0.0.7", 5), 403),
        ("/docs", ("10.0.0.7", 5), 403),
        ("/v1/control/start-run", None, 403),
        ("/v1/fleet/pull-messages", ("10.0.0.7", 5), 200),
    ):
        assert asyncio.run(asked(path, client)) == status, (path, client)


def test_settings_changed_by_hand_are_read_with_care(tmp_path):
    provision(tmp_path / "it", ["a"], port=8000)
    folder = tmp_path / "it" / "server"
    save(folder, server_settings(folder).model_copy(update={"port": 70000}))
    with pytest.raises(ConfigError, match=r"federation.json: port: .*65535"):
        server_settings(folder)


def test_a_site_that_sends_sums_only_refuses_the_rest(demo, tmp_path):
    told: list[str] = []
    for name, options in (("fedem", {"agg": "both"}), ("fedmf", {"participation": 0.05}), ("fedmf", {})):
        sites = sites_of(demo, tmp_path / str(len(told)) / "sites", sums_only=True, smallest=60)
        arguments = {"sites": sites, "rounds": 1, "tell": told.append}
        folder = tmp_path / str(len(told))
        if options:
            with pytest.raises(FedrecError, match="too few sites answered"):
                train(demo, folder, name, {"dim": 4, "epochs": 1} | options, **arguments)
        else:
            assert train(demo, folder, name, {"dim": 4, "epochs": 1}, **arguments).rounds == 1
    assert any("this site sends sums only, and the server of fedem needs every upload" in line for line in told)
    assert any("users would tell of each of them; 60 are needed" in line for line in told)
