"""A server and three sites as processes on loopback, with TLS and node keys: runs, faults, and who is not let in."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import ssl
import threading
import time

import pytest
from safetensors.torch import load_file
from sites_at_hand import NAMES, PROTOCOL, sites_of, thirds

from fedrec.deploy.folders import server_settings
from fedrec.deploy.items import write_interactions
from fedrec.deploy.plan import Plan
from fedrec.deploy.processes import processes
from fedrec.deploy.provision import provision
from fedrec.deploy.recommending import recommend
from fedrec.deploy.run import run
from fedrec.deploy.service import connected_sites, run_at, runs_of
from fedrec.deploy.transport import Local
from fedrec.errors import FedrecError
from fedrec.methods import create
from fedrec.running.listeners import Listener
from fedrec.running.options import RunOptions

pytest.importorskip("flwr")
FAST = {"dim": 4, "lr": 0.05, "epochs": 2}
READY = 150.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def federation(demo, tmp_path_factory):
    """Provisioned, started, stopped in the end."""
    folder = tmp_path_factory.mktemp("federation") / "it"
    provision(folder, list(NAMES), items=demo.item_ids, name="demo", port=free_port())
    with processes(folder / "logs") as running:
        running.start("server", "federation", "server", str(folder / "server"))
        for name, part in zip(NAMES, thirds(demo), strict=True):
            write_interactions(folder / f"{name}.csv", part)
            start_site(running, folder, name, "--data", str(folder / f"{name}.csv"))
        running.wait_for("server", "serving", READY)
        for name in NAMES:
            running.wait_for(name, "connected to", READY)
        start_strangers(running, folder, folder.parent / "other")
        yield folder, running


STRANGERS = {
    "wrong-key": "does not let this site in",
    "wrong-authority": "is not this federation's, or its certificate is no longer valid",
    "no-key": "is no private key of a site",
    "second-server": "cannot be listened on (Address already in use)",
}
"""Who is not let in, and what they say: started beside the others, as it takes a while until they give up."""


def start_strangers(running, folder, other):
    provision(other, ["east"], port=server_settings(folder / "server").port)
    for name in ("wrong-key", "wrong-authority", "no-key"):
        shutil.copytree(folder / "sites" / "east", other / name, ignore=shutil.ignore_patterns("lock", "runs"))
        shutil.copy(other / "sites" / "east" / "site.key", other / name / "site.key")
    shutil.copy(other / "sites" / "east" / "ca.crt", other / "wrong-authority" / "ca.crt")
    (other / "no-key" / "site.key").unlink()
    for name in ("wrong-key", "wrong-authority", "no-key"):
        running.start(name, "federation", "site", str(other / name), "--data", str(folder / "east.csv"))
    running.start("second-server", "federation", "server", str(folder / "server"))


def start_site(running, folder, name, *words):
    running.start(name, "federation", "site", str(folder / "sites" / name), *words)


def train(folder, name, rounds=2, *, tell=print, listeners=(), deadline=120.0, min_sites=1, secure=False, **options):
    out = folder / "server" / "runs" / name
    chosen = RunOptions(rounds=rounds, out=out, checkpoint_every=1, **options)
    return run_at(
        folder / "server", create("fedmf", FAST), PROTOCOL, chosen, deadline=deadline, min_sites=min_sites, wait=60.0,
        secure=secure, tell=tell, listeners=listeners,
    )  # fmt: skip


class AfterRound(Listener):
    """Does something once a round has ended."""

    def __init__(self, number, what):
        self.number, self.what = number, what

    def round(self, line):
        if line["round"] == self.number:
            self.what()


def lines_of(folder, name):
    path = folder / "server" / "runs" / name / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_over_flower_is_the_run_in_one_process(federation, demo, tmp_path):
    folder, _ = federation
    found = train(folder, "plain")
    here = Local(sites_of(demo, tmp_path / "sites"))
    plan = Plan("run", demo.item_ids, PROTOCOL, wait=0)
    options = RunOptions(rounds=2, out=tmp_path / "run", checkpoint_every=1)
    alone = run(create("fedmf", FAST), plan, here, list(NAMES), options, name="demo")
    assert found.test.full["ndcg@10"] == pytest.approx(alone.test.full["ndcg@10"], abs=4e-3)
    one, two = (
        load_file(place / "model" / "server.safetensors")["server.items"]
        for place in (folder / "server" / "runs" / "plain", tmp_path / "run")
    )
    assert (one - two).abs().max() < 1e-4 * two.abs().max()
    wire = found.diagnostics["federation"]
    assert set(wire) == set(NAMES)
    for name in NAMES:
        sent = json.loads((folder / "sites" / name / "traffic.json").read_text())["sent"]
        assert wire[name]["message_bytes_sent"] < sent < wire[name]["message_bytes_sent"] + 400_000
    assert [state for _, state in connected_sites(folder / "server")] == ["online"] * 3
    assert {"run": "plain", "method": "fedmf", "rounds": 2, "done": 2, "ended": True} in runs_of(folder / "server")


def test_a_run_behind_secure_aggregation_tells_the_same(federation):
    folder, _ = federation
    told: list[str] = []
    found, plain = train(folder, "secure", 1, tell=told.append, secure=True), train(folder, "bare", 1)
    assert found.test.full["ndcg@10"] == pytest.approx(plain.test.full["ndcg@10"], abs=4e-3)
    assert found.bytes == plain.bytes
    assert [line for line in told if "joined" not in line] == []


def test_private_state_stays_at_sites_and_recommends_there(federation, demo):
    folder, _ = federation
    user = str(thirds(demo)[1].user_ids[0])
    assert len(recommend(folder / "sites" / "north", user, 5)) == 5
    with pytest.raises(FedrecError, match="does not take part"):
        recommend(folder / "sites" / "east", user, 5)
    names = {path.name for path in (folder / "server").rglob("*.safetensors")}
    assert names == {"server.safetensors"}
    held = b"".join(path.read_bytes() for path in (folder / "server").rglob("*") if path.is_file())
    assert not re.search(rb"\b%s\b" % user.encode(), held)


def test_a_site_killed_within_a_round_comes_back_with_its_state(federation):
    folder, running = federation
    told: list[str] = []

    def kill_and_restart():
        running.kill("west", signal.SIGKILL)
        start_site(running, folder, "west")

    result = train(folder, "killed", 4, tell=told.append, deadline=12.0, listeners=[AfterRound(1, kill_and_restart)])
    assert result.rounds == 4
    assert any(re.match(r"round 2: going on without site west: ", line) for line in told)
    running.wait_for("west", "connected to", READY, times=2)
    told.clear()
    again = train(folder, "killed-again", 2, tell=told.append, deadline=60.0)
    assert again.users == 500
    assert not [line for line in told if "without" in line]


def test_a_slow_site_is_not_waited_for_beyond_the_deadline(federation):
    folder, running = federation
    told: list[str] = []
    pause = lambda: running.running["north"].send_signal(signal.SIGSTOP)  # noqa: E731
    start = time.monotonic()
    try:
        result = train(folder, "slow", 2, tell=told.append, deadline=6.0, listeners=[AfterRound(1, pause)])
    finally:
        running.running["north"].send_signal(signal.SIGCONT)
    assert time.monotonic() - start < 90
    assert result.rounds == 2
    assert any(line.startswith("round 2: going on without site north: ") for line in told)
    assert lines_of(folder, "slow")[1]["bytes_up"] < 0.8 * lines_of(folder, "slow")[0]["bytes_up"]


def test_who_is_not_let_in(federation):
    _, running = federation
    for name in STRANGERS:
        assert running.running.pop(name).wait(READY) == 2
    for name, words in STRANGERS.items():
        assert words in running.log(name)
        assert "Traceback" not in running.log(name)
    assert "joined" not in running.log("wrong-key")


def test_an_expired_certificate_is_refused_by_sites(tmp_path):
    from fedrec.deploy.certificates import authority, server_certificate
    from fedrec.deploy.flower.greeting import greet

    issuer = authority("x", 30)
    old = server_certificate(issuer, ["127.0.0.1"], 0)
    for name, content in (("ca", issuer.certificate), ("crt", old.certificate), ("key", old.key)):
        (tmp_path / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    with socket.create_server(("127.0.0.1", 0)) as plain:
        plain.settimeout(30)

        def answer():
            with pytest.raises(ssl.SSLError), context.wrap_socket(plain.accept()[0], server_side=True):
                pass

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(FedrecError, match="certificate has expired"):
            greet(f"127.0.0.1:{plain.getsockname()[1]}", tmp_path / "ca")
        thread.join(30)


@pytest.mark.slow
def test_a_server_that_is_killed_comes_back_and_the_run_goes_on(federation):
    folder, running = federation
    whole = train(folder, "uncut", 4)

    def kill():
        running.kill("server", signal.SIGKILL)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(folder, "cut", 4, listeners=[AfterRound(2, kill)])
    running.start("server", "federation", "server", str(folder / "server"))
    running.wait_for("server", "serving", READY, times=2)
    again = train(folder, "cut", 4, resume=True, min_sites=3)
    assert len(lines_of(folder, "cut")) == 4
    assert again.test.full["ndcg@10"] == pytest.approx(whole.test.full["ndcg@10"], abs=4e-3)
    assert again.selected_round == whole.selected_round
