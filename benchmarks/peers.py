"""The same federated job by several engines: clients per second and memory, in one table. See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DIM, EPOCHS, BATCH, NEGATIVES, RATE = 16, 10, 256, 4, 0.01
SHAPE = (943, 1682, 100_000)
SAMPLES = {"loop": 32, "pfl": 32, "flower": 16, "fedrec": 943}
"""Clients of a round; peers that are slow get few."""
START, END = "<!-- peers -->", "<!-- end of peers -->"


def job() -> Any:
    """The training view of the shape."""
    import fedrec
    from fedrec.data.synthetic import synthetic

    return fedrec.HONEST.split(synthetic(*SHAPE)).training


def clients_of(view: Any, count: int) -> list[int]:
    """Clients of all sizes, evenly spread."""
    order = view.positives.counts.argsort(kind="stable")
    return [int(order[int((k + 0.5) * len(order) / count)]) for k in range(count)]


def samples_of(view: Any, client: int, rng: Any) -> tuple[Any, Any]:
    """Items and labels of a client's round: its positives, and negatives that it never touched."""
    import numpy as np

    own = view.positives[client]
    free = np.setdiff1d(np.arange(view.n_items), view.excluded[client])
    drawn = rng.choice(free, (len(own), NEGATIVES))
    items = np.concatenate([own[:, None], drawn], 1).ravel()
    labels = np.zeros((len(own), 1 + NEGATIVES), np.float32)
    labels[:, 0] = 1
    return items.astype(np.int64), labels.ravel()


def model(n_items: int) -> Any:
    """A user vector and the item table."""
    import torch

    class Factors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user = torch.nn.Parameter(torch.randn(DIM) * 0.1)
            self.items = torch.nn.Embedding(n_items, DIM)

        def forward(self, items: Any) -> Any:
            return self.items(items) @ self.user

        def loss(self, items: Any, labels: Any, eval: bool = False) -> Any:
            return torch.nn.functional.binary_cross_entropy_with_logits(self(items), labels)

    return Factors()


def train_client(network: Any, items: Any, labels: Any) -> None:
    """Local training with fresh Adam, as a device would."""
    import torch

    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        order = torch.randperm(len(items))
        for batch in torch.split(order, BATCH):
            optimizer.zero_grad()
            network.loss(items[batch], labels[batch]).backward()
            optimizer.step()


def loop(view: Any, count: int) -> Callable[[], None]:
    """One client after another: load the table, train, add up the change."""
    import numpy as np
    import torch

    network, rng = model(view.n_items), np.random.default_rng(0)
    table, users = (
        network.items.weight.detach().clone(),
        {client: torch.randn(DIM) * 0.1 for client in range(len(view.positives))},
    )

    def round_() -> None:
        total = torch.zeros_like(table)
        for client in clients_of(view, count):
            items, labels = (torch.from_numpy(values) for values in samples_of(view, client, rng))
            with torch.no_grad():
                network.items.weight.copy_(table)
                network.user.copy_(users[client])
            train_client(network, items, labels)
            users[client] = network.user.detach().clone()
            total += network.items.weight.detach() - table
        table.add_(total / count)

    return round_


def flower(view: Any, count: int) -> Callable[[], None]:
    """Flower's simulation: every client is a node that its backend wakes, hands the table as arrays, and asks to train."""
    import flwr
    import numpy as np
    import ray  # noqa: F401 (its simulation runs on it)
    import torch
    from flwr.client import ClientApp, NumPyClient
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    chosen = clients_of(view, count)

    class Device(NumPyClient):
        def __init__(self, client: int) -> None:
            self.client = client

        def fit(self, parameters: Any, config: Any) -> Any:
            torch.set_num_threads(1)
            network = model(view.n_items)
            with torch.no_grad():
                network.items.weight.copy_(torch.from_numpy(parameters[0]))
            items, labels = samples_of(view, self.client, np.random.default_rng(self.client))
            train_client(network, torch.from_numpy(items), torch.from_numpy(labels))
            return [network.items.weight.detach().numpy()], len(items), {}

    def client_fn(context: Any) -> Any:
        return Device(chosen[int(context.node_config["partition-id"])]).to_client()

    def server_fn(context: Any) -> Any:
        first = flwr.common.ndarrays_to_parameters([model(view.n_items).items.weight.detach().numpy()])
        strategy = FedAvg(
            fraction_evaluate=0.0, initial_parameters=first, min_available_clients=count, min_fit_clients=count
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=1))

    def round_() -> None:
        run_simulation(ServerApp(server_fn=server_fn), ClientApp(client_fn=client_fn), num_supernodes=count)

    return round_


def pfl(view: Any, count: int) -> Callable[[], None]:
    """Apple's simulation: federated averaging over user data sets, its own local training."""
    import numpy as np
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data import ArtificialFederatedDataset
    from pfl.data.dataset import Dataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    rng, chosen = np.random.default_rng(0), clients_of(view, count)
    data = {client: samples_of(view, client, rng) for client in chosen}

    def user_data(client: int) -> Any:
        items, labels = data[client]
        return Dataset([torch.from_numpy(items), torch.from_numpy(labels)])

    del ArtificialFederatedDataset
    from pfl.data import FederatedDataset

    network = model(view.n_items)
    network.metrics = lambda items, labels, eval=False: {
        "loss": Weighted(float(network.loss(items, labels)) * len(items), len(items))
    }
    users = FederatedDataset(user_data, get_user_sampler("minimize_reuse", chosen))
    wrapped = PyTorchModel(
        model=network,
        local_optimizer_create=torch.optim.Adam,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    backend = SimulatedBackend(training_data=users, val_data=None)
    local = NNTrainHyperParams(local_num_epochs=EPOCHS, local_learning_rate=RATE, local_batch_size=BATCH)

    def round_() -> None:
        plan = NNAlgorithmParams(
            central_num_iterations=1, evaluation_frequency=0, train_cohort_size=count, val_cohort_size=0
        )
        FederatedAveraging().run(
            algorithm_params=plan,
            backend=backend,
            model=wrapped,
            model_train_params=local,
            model_eval_params=NNEvalHyperParams(local_batch_size=BATCH),
            callbacks=[],
        )

    return round_


def fedrec_round(view: Any, count: int) -> Callable[[], None]:
    """fedrec's simulation, all clients."""
    from fedrec.federation.trainer import Setup
    from fedrec.methods import create

    options = {
        "dim": DIM,
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "negatives": NEGATIVES,
        "lr": RATE,
        "optimizer": "adam",
    }
    trainer = create("fedmf", options, protocol="none").trainer(view, Setup())
    numbers = iter(range(1000))
    return lambda: (trainer.round(next(numbers)), None)[1]


PEERS: dict[str, Callable[[Any, int], Callable[[], None]]] = {
    "loop": loop, "pfl": pfl, "flower": flower, "fedrec": fedrec_round
}  # fmt: skip


def used() -> float:
    """CPU seconds of this process and of those it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def measure(name: str, threads: int) -> dict[str, Any]:
    """One engine, in this process: a round that warms up, and one that counts."""
    import torch

    import fedrec  # noqa: F401 (before torch)

    torch.set_num_threads(threads)
    view = job()
    try:
        round_ = PEERS[name](view, SAMPLES[name])
    except ImportError as error:
        return {"peer": name, "missing": str(error)}
    round_()
    cpu, wall = used(), time.perf_counter()
    round_()
    cpu, wall = used() - cpu, time.perf_counter() - wall
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1e3
    count = SAMPLES[name]
    return {"peer": name, "clients": count, "per_cpu_second": count / cpu, "per_second": count / wall, "peak_mb": peak}


def rows(found: list[dict[str, Any]]) -> Iterator[str]:
    """The table in Markdown."""
    yield "| engine | clients of the round | clients per CPU second | clients/s | peak MB |"
    yield "| --- | --- | --- | --- | --- |"
    for one in found:
        if "missing" in one:
            yield f"| {one['peer']} | not measured: {one['missing']} | | | |"
        else:
            rates = f"{one['per_cpu_second']:,.1f} | {one['per_second']:,.1f}"
            yield f"| {one['peer']} | {one['clients']} | {rates} | {one['peak_mb']:,.0f} |"


def main() -> None:
    """Measure all engines, each in a process of its own, print the table and write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", choices=PEERS, help="this one, in this process")
    parser.add_argument("--write", type=Path, help="a page with a place for the table")
    words = parser.parse_args()
    if words.peer:
        print(json.dumps(measure(words.peer, words.threads)))
        return
    found = []
    for name in PEERS:
        command = [sys.executable, __file__, "--peer", name, "--threads", str(words.threads)]
        environment = os.environ | {"OMP_NUM_THREADS": str(words.threads)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        last = done.stdout.strip().splitlines()[-1:] if done.returncode == 0 else []
        failed = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        found.append(json.loads(last[0]) if last else {"peer": name, "missing": failed})
    table = "\n".join(rows(found))
    print(table)
    if words.write:
        text = words.write.read_text()
        before, rest = text.split(START, 1)
        words.write.write_text(f"{before}{START}\n{table}\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
