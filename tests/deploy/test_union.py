"""A catalogue that sites agree on by keyed hashes: the server numbers items it cannot read."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sites_at_hand import NAMES, PROTOCOL, plan_of, sites_of, thirds, train

import fedrec
from fedrec.data.filters import take
from fedrec.deploy.items import write_interactions
from fedrec.deploy.message import BadMessageError, Message
from fedrec.deploy.pooled import pooled
from fedrec.deploy.recommending import recommend
from fedrec.deploy.site_data import site_data
from fedrec.deploy.transport import Local
from fedrec.deploy.union import KEY, ItemNames, as_tensor, union
from fedrec.errors import ConfigError
from fedrec.methods import create

FAST = {"dim": 4, "lr": 0.05, "epochs": 2}


class Heard(Local):
    """Keeps all that sites send."""

    heard = b""

    def ask(self, requests, deadline):
        replies = super().ask(requests, deadline)
        self.heard += b"".join(data for data in replies.values() if isinstance(data, bytes))
        return replies


def sites(demo, folder, key="11" * 32):
    found = sites_of(demo, folder)
    for name in NAMES:
        (folder / name / KEY).write_text(key)
    return found


def test_a_run_on_hashed_items_is_that_on_items_in_the_order_of_hashes(demo, tmp_path):
    transport, told = Heard(sites(demo, tmp_path / "sites")), []
    plan = dataclasses.replace(plan_of(demo), catalogue=(), hashed=True)
    result = train(demo, tmp_path, "fedmf", FAST, transport=transport, plan=plan, rounds=2, tell=told.append)
    names = ItemNames(tmp_path / "sites" / "east")
    catalogue = tuple(sorted(map(names, demo.item_ids)))
    splits = [site_data(part, catalogue, PROTOCOL, 0, names).split for part in thirds(demo)]
    alone = fedrec.train(create("fedmf", FAST), pooled(splits), rounds=2, progress=False)
    found = load_file(tmp_path / "run" / "model" / "server.safetensors")["server.items"]
    assert (found - alone.trainer.server["items"]).abs().max() < 1e-4
    assert result.test.full["ndcg@10"] == pytest.approx(alone.result.test.full["ndcg@10"], abs=4e-3)
    assert any("items in the union of 3 sites" in line for line in told)
    assert json.loads((tmp_path / "run" / "catalogue.json").read_text())["items"] == list(catalogue)
    assert bytes.fromhex(names(demo.item_ids[0])) in transport.heard


def test_hashes_need_the_key_and_tell_no_order(tmp_path):
    for name, key in (("a", "11" * 32), ("b", "22" * 32)):
        (tmp_path / name).mkdir()
        (tmp_path / name / KEY).write_text(key)
    one, other = ItemNames(tmp_path / "a"), ItemNames(tmp_path / "b")
    assert one(7) == one("7") != other(7)
    assert torch.equal(as_tensor(map(one, range(50))), as_tensor(map(one, reversed(range(50)))))
    assert one.back([7, 8])[one(8)] == 8
    assert union(
        [Message("items", {}, {"hashes": as_tensor([one(k) for k in ks])}) for ks in ((1, 2), (2, 3))]
    ) == tuple(sorted(map(one, (1, 2, 3))))
    for wrong in (torch.zeros(2, 4, dtype=torch.uint8), torch.zeros(2, 16), torch.zeros(0, 16, dtype=torch.uint8)):
        with pytest.raises(BadMessageError):
            union([Message("items", {}, {"hashes": wrong})])
    (tmp_path / "b" / KEY).write_text("no key")
    with pytest.raises(ConfigError, match="is no key for items"):
        ItemNames(tmp_path / "b")


def test_a_site_without_the_key_is_told_of_and_left_out(demo, tmp_path):
    found, told = sites(demo, tmp_path / "sites"), []
    (tmp_path / "sites" / "west" / KEY).unlink()
    plan = dataclasses.replace(plan_of(demo), catalogue=(), hashed=True)
    result = train(demo, tmp_path, "popularity", {}, sites=found, plan=plan, rounds=1, tell=told.append)
    assert any(line.startswith("site west does not tell its items: it refused:") for line in told)
    assert result.users == len(set(demo.users)) - thirds(demo)[2].n_users


def test_lists_bear_the_names_that_the_site_has(demo, tmp_path):
    found = sites(demo, tmp_path / "sites")
    plan = dataclasses.replace(plan_of(demo), catalogue=(), hashed=True)
    train(demo, tmp_path, "popularity", {}, sites=found, plan=plan, rounds=1)
    part, file = thirds(demo)[1], tmp_path / "north.csv"
    kept = take(part, np.flatnonzero(part.items % 2 == 0))  # what other sites have besides has no name here
    write_interactions(file, kept)
    about = {"format": 1, "federation": "f", "name": "north", "server": "localhost:1", "data": str(file)}
    (tmp_path / "sites" / "north" / "site.json").write_text(json.dumps(about))
    listed = [item for item, _ in recommend(tmp_path / "sites" / "north", str(part.user_ids[0]), 10)]
    assert len(listed) == 10
    assert set(listed) <= {part.item_ids[code] for code in kept.items}
