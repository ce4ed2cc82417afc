"""Hostile and broken answers: one clear line that names the site, and a round that goes on as if the site were not there."""

from __future__ import annotations

import re

import pytest
import torch
from safetensors.torch import load_file
from sites_at_hand import NAMES, plan_of, sites_of, train

from fedrec.deploy.federation import Federation
from fedrec.deploy.message import Message
from fedrec.deploy.transport import Local, Missing
from fedrec.errors import FedrecError
from fedrec.federation.arrows import Arrows
from fedrec.methods import create, find, names

FAST = {"dim": 4, "lr": 0.05, "epochs": 2}
EACH = FAST | {"agg": "both"}


class Hostile(Local):
    """Sites of which one changes what it sends in the second round."""

    def __init__(self, sites, change, site="north", asks=(5,)):
        super().__init__(sites)
        self.change, self.site, self.asks, self.asked = change, site, asks, 0

    def ask(self, requests, deadline):
        self.asked += 1
        replies = super().ask(requests, deadline)
        if self.asked in self.asks and isinstance(data := replies.get(self.site), bytes):
            changed = self.change(Message.decode(data))
            replies[self.site] = changed.encode() if isinstance(changed, Message) else changed
        return replies


def spoilt(name, how):
    """A message of which one array is changed."""

    def change(message):
        message.tensors[name] = how(message.tensors[name])
        return message

    return change


def told_fields(**values):
    def change(message):
        message.fields.update(values)
        return message

    return change


def nan(value):
    value = value.clone()
    value.view(-1)[7] = float("nan")
    return value


def infinite(value):
    value = value.clone()
    value.view(-1)[7] = float("inf")
    return value


ITEMS, PART = "total.items", "up.0.part.items"
SUMS = {
    "nan": (spoilt(ITEMS, nan), "has numbers that are not finite"),
    "infinite": (spoilt(ITEMS, infinite), "has numbers that are not finite"),
    "shape": (spoilt(ITEMS, lambda x: x[:-1]), r"sum of items is float32 \[399, 4\], not float32 \[400, 4\]"),
    "dtype": (spoilt(ITEMS, lambda x: x.double()), r"is float64 \[400, 4\], not float32"),
    "hundredfold": (spoilt(ITEMS, lambda x: 100 * x), "has norm .*, and beside the others at most"),
    "round": (told_fields(number=7**7), r"its number is 823543, not \d+"),
    "run": (told_fields(run="other"), "its run is other, not run"),
    "name": (lambda m: Message(m.kind, m.fields, m.tensors | {"total.more": torch.ones(3)}), "which nobody asked for"),
    "clients": (spoilt("report.clients", lambda x: x + 1), r"it trained 16\d clients, not 16\d"),
    "loss": (spoilt("report.loss", lambda x: x * float("nan")), "its loss is not finite"),
    "kind": (lambda m: Message("evaluated", m.fields, m.tensors), "it sent 'evaluated', not 'trained'"),
    "cut": (lambda m: m.encode()[:-9], "it is cut short or no message"),
    "pickle": (lambda m: b"\x80\x04cos\nsystem\n(S'touch planted'\ntR.", "it is cut short or no message"),
    "nothing": (lambda m: b"", "it is cut short or no message"),
    "late": (lambda m: Missing("it did not answer within 30 s"), "it did not answer within 30 s"),
}
UPLOADS = {
    "nan": (spoilt(PART, nan), "its items has numbers that are not finite"),
    "shape": (spoilt(PART, lambda x: x[..., :-1]), r"its uploads are items table of float32 \[400, 3\] per client"),
    "dtype": (spoilt(PART, lambda x: x.double()), r"float64 \[400, 4\] per client, not items table of float32"),
    "hundredfold": (spoilt(PART, lambda x: 100 * x), "its items has norm"),
    "others": (spoilt("up.0.clients", lambda x: x - 160), "uploads of clients that were not asked, or twice"),
    "unknown": (spoilt("up.0.clients", lambda x: x + 10**6), "it names clients that do not exist"),
    "twice": (
        spoilt("up.0.clients", lambda x: x[0].repeat(len(x))),
        "uploads of clients that were not asked, or twice",
    ),
    "round": (told_fields(number=7**7), r"its number is 823543, not \d+"),
}


@pytest.fixture(scope="module")
def federations(demo, tmp_path_factory):
    """One federation per kind of method, which goes on from case to case: whatever is refused must not hurt the next."""
    found = {}
    for method, options in (("fedmf", FAST), ("fedem", EACH)):
        sites = sites_of(demo, tmp_path_factory.mktemp(method))
        told: list[str] = []
        federation = Federation(create(method, options), plan_of(demo), Hostile(sites, None, asks=()), told.append)
        federation.gather(list(NAMES))
        federation.round(0)
        found[method] = federation, told, [1]
    return found


@pytest.mark.parametrize(
    ("method", "change", "line"),
    [
        *(pytest.param("fedmf", *case, id=f"sum-{name}") for name, case in SUMS.items()),
        *(pytest.param("fedem", *case, id=f"each-{name}") for name, case in UPLOADS.items()),
    ],
)
def test_what_cannot_be_is_refused_and_poisons_nothing(federations, method, change, line):
    federation, told, rounds = federations[method]
    told.clear()
    federation.transport.change, federation.transport.asks = change, (federation.transport.asked + 1,)
    reports = [federation.round(rounds[0] + k) for k in range(2)]
    rounds[0] += 2
    assert len(told) == 1
    assert told[0].startswith(f"round {rounds[0] - 1}: going on without site north: ")
    assert re.search(line, told[0]), told[0]
    assert reports[0].clients < 350
    assert reports[1].clients == 500
    for name, value in federation.server.state.items():
        assert bool(torch.isfinite(value.double()).all()), name
        assert float(value.double().abs().max()) < 1000, name


def test_rows_of_items_that_nobody_knows_are_refused(demo, tmp_path):
    told: list[str] = []
    change = spoilt("up.0.part.items.rows", lambda x: x + 395)
    sites = sites_of(demo, tmp_path / "sites")
    train(demo, tmp_path, "fedfast", {"dim": 4, "epochs": 1}, transport=Hostile(sites, change), tell=told.append)
    assert "round 2: going on without site north: it names items that are not in the catalogue" in told


def test_a_refused_answer_leaves_what_a_missing_one_leaves(demo, tmp_path):
    states = []
    for kind in ("hundredfold", "late"):
        sites = sites_of(demo, tmp_path / kind / "sites")
        train(demo, tmp_path / kind, "fedmf", FAST, transport=Hostile(sites, SUMS[kind][0]))
        states.append(load_file(tmp_path / kind / "run" / "model" / "server.safetensors"))
    assert torch.equal(states[0]["server.items"], states[1]["server.items"])


def test_metrics_that_cannot_be_means_are_refused(demo, tmp_path):
    told: list[str] = []
    change = spoilt("sums.values", lambda x: x + 1000)
    sites = sites_of(demo, tmp_path / "sites")
    train(demo, tmp_path, "fedmf", FAST, transport=Hostile(sites, change, asks=(6,)), tell=told.append)
    assert "evaluation after round 2: without site north: its metrics are no means over users" in told


@pytest.mark.parametrize("names", [["x"], ["validation|other|ndcg@10"], [1], "x", None])
def test_metrics_with_names_that_are_none_are_refused(demo, tmp_path, names):
    told: list[str] = []
    sites = sites_of(demo, tmp_path / "sites")
    # the first site, beside which those of others would be judged
    transport = Hostile(sites, told_fields(names=names), site="east", asks=(4,))
    train(demo, tmp_path, "fedmf", FAST, transport=transport, tell=told.append, rounds=1)
    assert [line for line in told if "without" in line] == [
        "evaluation after round 1: without site east: its metrics are other ones"
    ]


def test_a_site_that_joins_without_saying_what_it_has_is_left_out(demo, tmp_path):
    told: list[str] = []
    sites = sites_of(demo, tmp_path / "sites")
    transport = Hostile(sites, told_fields(split_hash=None), asks=(1,))
    train(demo, tmp_path, "fedmf", FAST, transport=transport, tell=told.append, rounds=1)
    assert "site north does not take part: its split_hash is no text" in told


def test_sites_refuse_a_client_that_is_named_twice(demo, tmp_path):
    federation = Federation(create("fedmf", FAST), plan_of(demo), Local(sites_of(demo, tmp_path)), print)
    federation.gather(list(NAMES))
    chosen = federation.server.participants(0)
    request = federation._training(chosen, 0)["north"]
    first = request.tensors["chosen"][:1].repeat(20)
    reply = Message.decode(
        federation.transport.sites["north"].answer(
            Message("train", request.fields, request.tensors | {"chosen": first}).encode()
        )
    )
    assert reply.fields == {"reason": "it names a client twice"}


def test_a_site_with_few_users_tells_of_nothing_they_are_shown(demo, tmp_path):
    found = {}
    for smallest in (10, 200):
        sites = sites_of(demo, tmp_path / str(smallest), smallest=smallest)
        federation = Federation(create("fedmf", FAST), plan_of(demo), Local(sites), print)
        federation.gather(list(NAMES))
        found[smallest] = float(federation.evaluate(0, top=True)[1].sum())
    assert found[10] > 0
    assert found[200] == 0


def test_training_that_diverges_everywhere_says_so(demo, tmp_path):
    with pytest.raises(FedrecError, match=r"diverged in round \d+ at every site; lower lr"):
        train(demo, tmp_path, "fedmf", {"dim": 4, "lr": 1e20, "optimizer": "sgd", "agg": "sum"}, rounds=6)


SETTINGS = {"gpfedrec": {"reg": 0.1}, "hetefedrec": {"sizes": [4, 8, 12], "clients_per_round": 200}}
FEDERATED = [name for name in names() if issubclass(find(name), Arrows)]


@pytest.mark.parametrize("name", FEDERATED)
def test_honest_answers_of_every_method_pass(demo, tmp_path, name):
    fields = find(name).Config.model_fields
    options = {key: value for key, value in {"dim": 4, "epochs": 1}.items() if key in fields} | SETTINGS.get(name, {})
    told: list[str] = []
    train(demo, tmp_path, name, options, rounds=2, tell=told.append)
    assert [line for line in told if "joined" not in line] == []
