"""Runs behind secure aggregation: the same numbers, and nothing of any one site on the wire."""

from __future__ import annotations

import re

import pytest
import torch
from safetensors.torch import load_file
from sites_at_hand import NAMES, plan_of, sites_of, train

from fedrec.deploy.masked import check_sites
from fedrec.deploy.message import Message
from fedrec.deploy.transport import Local, Missing
from fedrec.errors import ConfigError, FedrecError

FAST = {"dim": 4, "lr": 0.05, "epochs": 2}


class Watched(Local):
    """Keeps what sites send; one of them may fall silent at some steps."""

    def __init__(self, sites, site="north", silent=()):
        super().__init__(sites)
        self.site, self.silent, self.asked, self.seen = site, silent, 0, []

    def ask(self, requests, deadline):
        self.asked += 1
        gone = self.asked in self.silent
        heard = super().ask({k: v for k, v in requests.items() if not (gone and k == self.site)}, deadline)
        self.seen += [Message.decode(data) for data in heard.values() if isinstance(data, bytes)]
        return heard | ({self.site: Missing("it did not answer within 30 s")} if gone and self.site in requests else {})


def run(demo, folder, method="fedmf", options=FAST, **how):
    transport = Watched(sites_of(demo, folder / "sites", **how.pop("site", {})), silent=how.pop("silent", ()))
    told: list[str] = []
    plan = plan_of(demo, secure=how.pop("secure", True))
    result = train(demo, folder, method, options, transport=transport, plan=plan, tell=told.append, **how)
    return result, transport, told, load_file(folder / "run" / "model" / "server.safetensors")


@pytest.mark.parametrize(("method", "options"), [("fedmf", FAST), ("fedncf", {"dim": 4, "epochs": 1}), ("fedgram", {})])
def test_the_numbers_are_those_of_plain_sums(demo, tmp_path, method, options):
    plain = run(demo, tmp_path / "plain", method, options, secure=False, rounds=2)
    secure = run(demo, tmp_path / "secure", method, options, rounds=2)
    for name, value in plain[3].items():
        if value.is_floating_point():
            assert (secure[3][name] - value).abs().max() <= 1e-5 * value.abs().max(), name
    for metric, value in plain[0].test.full.items():
        assert secure[0].test.full[metric] == pytest.approx(value, abs=4e-3)
    assert secure[0].bytes == plain[0].bytes
    assert secure[0].catalogue["coverage@10"] == pytest.approx(plain[0].catalogue["coverage@10"], abs=0.02)
    assert [line for line in secure[2] if "joined" not in line] == []


def test_nothing_of_one_site_is_on_the_wire(demo, tmp_path):
    _, plain, _, _ = run(demo, tmp_path / "plain", secure=False, rounds=1)
    _, secure, _, _ = run(demo, tmp_path / "secure", rounds=1)
    named = [{name.split(".")[0] for name in message.tensors} for message in plain.seen]
    assert {"report", "total"} in named
    for message in secure.seen:
        assert set(message.tensors) <= {"data", "counts"}
    longest = max((m.tensors["data"] for m in secure.seen if m.kind == "masked"), key=len)
    assert len(longest) > 8 * demo.n_items * 4
    share = torch.bincount(longest[-8 * demo.n_items * 4 :].long(), minlength=256) / (8 * demo.n_items * 4)
    assert float(share.max()) < 3 / 256  # masked numbers look like any others


@pytest.mark.parametrize("step", range(3, 8))
def test_a_site_that_falls_silent_at_any_step_is_survived(demo, tmp_path, step):
    _, transport, told, state = run(demo, tmp_path, silent=(step,), rounds=2)
    assert bool(torch.isfinite(state["server.items"]).all())
    assert any(re.search("going on without site north: it did not answer", line) for line in told)
    assert transport.asked > 12


def test_too_few_sites_tell_nothing_and_end_the_run(demo, tmp_path):
    class Two(Watched):
        def ask(self, requests, deadline):
            heard = super().ask(requests, deadline)
            return heard | ({"east": Missing("it is gone")} if self.asked >= 5 and "east" in requests else {})

    transport = Two(sites_of(demo, tmp_path / "sites"), silent=range(5, 99))
    told: list[str] = []
    with pytest.raises(FedrecError, match="round 1 failed 3 times"):
        train(demo, tmp_path, "fedmf", FAST, transport=transport, plan=plan_of(demo, secure=True), tell=told.append)
    assert any("is given up" in line for line in told)


def test_only_sums_go_behind_it_and_one_site_is_too_few(demo, tmp_path):
    with pytest.raises(ConfigError, match="fedem cannot run behind secure aggregation"):
        run(demo, tmp_path / "each", "fedem", FAST | {"agg": "both"})
    with pytest.raises(FedrecError, match="a secure sum needs two sites"):
        check_sites(1)


def test_a_site_can_insist_on_it(demo, tmp_path):
    assert run(demo, tmp_path / "secure", site={"secure_only": True}, rounds=1)[0].rounds == 1
    with pytest.raises(FedrecError, match="too few sites answered"):
        run(demo, tmp_path / "plain", site={"secure_only": True}, secure=False, rounds=1)
    log = (tmp_path / "plain" / "run" / "federation.log").read_text()
    for name in NAMES:
        assert f"going on without site {name}: it refused: this site takes part in secure sums only" in log
