"""The server's half asks its method with its own state, and goes on from a saved one."""

from types import SimpleNamespace

import torch

from fedrec.federation.server import Server


class Told:
    """Answers with what it was asked."""

    def server_state(self, task):
        return {"items": torch.zeros(2), "own": torch.zeros(1, dtype=torch.int64)}

    def participants(self, task, state, number):
        return task, state["items"], number

    def kinds(self, task, state, clients):
        return task, state["items"], clients

    def broadcast(self, task, state, clients):
        return {"asked": (task, state["items"], clients)}


def test_the_method_is_asked_with_the_servers_state():
    server, task = Server(Told(), "task"), "task"
    clients = torch.arange(3)
    assert server.participants(4) == (task, server.state["items"], 4)
    assert server.kinds(clients) == (task, server.state["items"], clients)
    assert server.payload(clients) == {"asked": (task, server.state["items"], clients)}


def test_a_step_replaces_the_state():
    server = Server(Told(), "task")
    before = server.state
    server.step(SimpleNamespace(step=lambda state, number: state | {"items": state["items"] + number}), 5)
    assert server.state["items"].tolist() == [5, 5]
    assert before["items"].tolist() == [0, 0]


def test_a_saved_state_is_copied():
    server, saved = Server(Told(), "task"), {"items": torch.tensor([1.0, 2.0])}
    server.load_state(saved)
    saved["items"] += 9
    assert server.state["items"].tolist() == [1, 2]
    assert server.state["own"].tolist() == [0], "what was not saved stays"
