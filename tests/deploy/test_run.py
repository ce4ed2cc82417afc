"""A run that is interrupted, with sites that come and go."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file
from sites_at_hand import NAMES, plan_of, sites_of, train

from fedrec.deploy.recommending import recommend
from fedrec.deploy.transport import Local, Missing
from fedrec.errors import FedrecError
from fedrec.running import checkpoint
from fedrec.running.saved import read_result

FAST = {"dim": 4, "lr": 0.05, "epochs": 2}


class Gone(Local):
    """Sites that do not answer some of what they are asked, or a server that stops."""

    def __init__(self, sites, site=None, asks=(), stops=None):
        super().__init__(sites)
        self.site, self.asks, self.stops, self.asked = site, asks, stops, 0

    def ask(self, requests, deadline):
        self.asked += 1
        if self.asked == self.stops:
            raise KeyboardInterrupt
        if self.asked not in self.asks:
            return super().ask(requests, deadline)
        heard = super().ask({name: data for name, data in requests.items() if name != self.site}, deadline)
        return heard | {self.site: Missing("it did not answer within 30 s")}


@pytest.mark.parametrize("stops", [3, 5, 6, 8])
def test_a_run_that_is_killed_goes_on_to_the_same_result(demo, tmp_path, stops):
    whole = train(demo, tmp_path / "whole", "fedmf", FAST)
    sites = sites_of(demo, tmp_path / "cut" / "sites")
    with pytest.raises(KeyboardInterrupt):
        train(demo, tmp_path / "cut", "fedmf", FAST, transport=Gone(sites, stops=stops))
    fresh = sites_of(demo, tmp_path / "cut" / "sites")  # the sites have been restarted, too
    again = train(demo, tmp_path / "cut", "fedmf", FAST, sites=fresh, resume=True)
    assert again.test == whole.test
    assert again.selected_round == whole.selected_round
    one, two = (load_file(tmp_path / name / "run" / "model" / "server.safetensors") for name in ("whole", "cut"))
    for name, value in one.items():
        assert (value == two[name]).all(), name


def test_a_run_goes_on_from_a_checkpoint_that_is_several_rounds_old(demo, tmp_path):
    """Sites go back to the private state of that round, and what they did later is void."""
    whole = train(demo, tmp_path / "whole", "fedmf", FAST, rounds=8)
    sites = sites_of(demo, tmp_path / "cut" / "sites")
    with pytest.raises(KeyboardInterrupt):  # before round 7 is evaluated
        train(demo, tmp_path / "cut", "fedmf", FAST, transport=Gone(sites, stops=16), rounds=8, checkpoint_every=4)
    assert train(demo, tmp_path / "cut", "fedmf", FAST, sites=sites, rounds=8, resume=True).test == whole.test


def test_the_seconds_of_a_resumed_run_are_those_of_all_its_processes(demo, tmp_path):
    """Here the ones before are said to have taken long."""
    sites = sites_of(demo, tmp_path / "sites")
    with pytest.raises(KeyboardInterrupt):
        train(demo, tmp_path, "fedmf", FAST, transport=Gone(sites, stops=8))
    saved = checkpoint.load(checkpoint.newest(tmp_path / "run" / "checkpoints"))
    assert 0 < saved.record["history"]["seconds"]["total"] < 500
    saved.record["history"]["seconds"]["total"] = 1000.0
    checkpoint.save(tmp_path / "run" / "checkpoints", saved.record["history"]["rounds"], saved)
    assert 1000 < train(demo, tmp_path, "fedmf", FAST, sites=sites, resume=True).seconds.total < 1500


def test_a_finished_run_is_only_read_again(demo, tmp_path):
    sites = sites_of(demo, tmp_path / "sites")
    first = train(demo, tmp_path, "fedmf", FAST, sites=sites, rounds=1)
    assert train(demo, tmp_path, "fedmf", FAST, transport=Gone(sites, stops=1), rounds=1, resume=True) == first
    assert read_result(tmp_path / "run") == first


def test_a_round_goes_on_without_a_site_and_says_so(demo, tmp_path):
    told: list[str] = []
    sites = sites_of(demo, tmp_path / "sites")
    transport = Gone(sites, site="north", asks=(5, 6))  # join, start, then train and evaluate of every round
    result = train(demo, tmp_path, "fedmf", FAST, transport=transport, tell=told.append)
    assert "round 2: going on without site north: it did not answer within 30 s" in told
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[1]["bytes_up"] < 0.8 * lines[0]["bytes_up"]
    assert lines[2]["bytes_up"] > 0.9 * lines[0]["bytes_up"]
    assert result.rounds == 3
    assert "going on without site north" in (tmp_path / "run" / "federation.log").read_text()


def test_too_few_sites_end_the_run_with_its_checkpoint_whole(demo, tmp_path):
    sites = sites_of(demo, tmp_path / "sites")
    transport = Gone(sites, site="north", asks=range(5, 30))
    with pytest.raises(FedrecError, match="round 2 failed 3 times: too few sites answered"):
        train(demo, tmp_path, "fedmf", FAST, transport=transport, plan=plan_of(demo, min_sites=3))
    assert train(demo, tmp_path, "fedmf", FAST, sites=sites, resume=True).rounds == 3


def test_a_run_whose_first_round_failed_goes_on_with_the_sites_it_began_with(demo, tmp_path):
    sites = sites_of(demo, tmp_path / "sites")
    two = {name: site for name, site in sites.items() if name != "west"}
    with pytest.raises(FedrecError, match="round 1 failed 3 times"):
        train(
            demo, tmp_path, "fedmf", FAST,
            transport=Gone(two, site="north", asks=range(3, 30)), plan=plan_of(demo, min_sites=2),
        )  # fmt: skip
    found = train(demo, tmp_path, "fedmf", FAST, sites=sites, resume=True, rounds=3)
    assert found.rounds == 3
    assert found.users == sum(sites[name]._open.split.data.n_users for name in two)


def test_a_site_that_never_comes_is_left_out_from_the_start(demo, tmp_path):
    told: list[str] = []
    sites = sites_of(demo, tmp_path / "sites")
    sites.pop("west")
    result = train(demo, tmp_path, "fedmf", FAST, sites=sites, rounds=1, tell=told.append)
    assert result.users == sum(site._open.split.data.n_users for site in sites.values())
    assert any(line.startswith("site west does not take part") for line in told)


def test_a_site_whose_data_changed_does_not_go_on(demo, tmp_path):
    sites = sites_of(demo, tmp_path / "sites")
    with pytest.raises(KeyboardInterrupt):
        train(demo, tmp_path, "fedmf", FAST, transport=Gone(sites, stops=6))
    told: list[str] = []
    sites["east"].read = sites["west"].read
    train(demo, tmp_path, "fedmf", FAST, sites=sites, resume=True, tell=told.append)
    assert "site east does not take part: its data have changed since the run began" in told


def test_users_are_recommended_to_at_their_site_from_its_disk(demo, tmp_path):
    sites = sites_of(demo, tmp_path / "sites")
    train(demo, tmp_path, "fedmf", FAST, sites=sites)
    folder = sites["north"].folder
    (folder / "site.json").write_text('{"format": 1, "federation": "f", "name": "north", "server": "localhost:1"}')
    user = sites["north"].read().user_ids[3]
    found = recommend(folder, str(user), 5)
    scores = [score for _, score in found]
    assert len(found) == 5
    assert scores == sorted(scores, reverse=True)
    theirs = {demo.item_ids[i] for u, i in zip(demo.users, demo.items, strict=True) if demo.user_ids[u] == user}
    assert not theirs & {item for item, _ in found}
    with pytest.raises(FedrecError, match="does not take part"):
        recommend(folder, str(sites["east"].read().user_ids[0]), 5)


def test_who_came_after_a_run_is_served_from_their_history_where_nothing_else_is_needed(demo, tmp_path):
    about = {
        "format": 1,
        "federation": "f",
        "name": "north",
        "server": "localhost:1",
        "data": str(tmp_path / "new.csv"),
    }
    for method, options in (("fedgram", {}), ("fedmf", FAST)):
        sites = sites_of(demo, tmp_path / method / "sites")
        train(demo, tmp_path / method, method, options, sites=sites, rounds=1)
        (sites["north"].folder / "site.json").write_text(json.dumps(about))
    there = sites["north"].read()
    user, rows = str(there.user_ids[3]), there.items[there.users == 3]
    lines = [f"{name},{there.item_ids[item]}" for name in (user, "newcomer") for item in rows]
    (tmp_path / "new.csv").write_text("\n".join(["user,item", *lines, "nobody,unheard-of"]))
    found = recommend(tmp_path / "fedgram" / "sites" / "north", "newcomer", 5)
    assert len(found) == 5
    assert not {there.item_ids[item] for item in rows} & {item for item, _ in found}
    same = recommend(tmp_path / "fedgram" / "sites" / "north", user, 5)
    assert len({item for item, _ in found} & {item for item, _ in same}) >= 2  # but for what was held out
    with pytest.raises(FedrecError, match=r"came after run .* they take part in the next run"):
        recommend(tmp_path / "fedmf" / "sites" / "north", "newcomer", 5)
    with pytest.raises(FedrecError, match=r"does not take part in run .* none of the run's items"):
        recommend(tmp_path / "fedgram" / "sites" / "north", "nobody", 5)


def test_the_server_keeps_no_private_state_and_sites_keep_little(demo, tmp_path):
    sites = sites_of(demo, tmp_path / "sites")
    train(demo, tmp_path, "fedmf", FAST, sites=sites, rounds=6)
    assert not list((tmp_path / "run").rglob("*clients*"))
    names = load_file(tmp_path / "run" / "model" / "server.safetensors")
    assert set(names) == {"server.items"}
    for name in NAMES:
        assert len(list((sites[name].folder / "runs" / "run" / "state").iterdir())) <= 4


def test_a_blend_is_trained_part_by_part(demo, tmp_path):
    with pytest.raises(FedrecError, match="blend trains other methods"):
        train(demo, tmp_path, "blend", {})
