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
from contextlib import suppress
from pathlib import Path
from typing import Any

DIM, EPOCHS, BATCH, NEGATIVES, RATE = 16, 10, 256, 4, 0.01
SHAPE = (943, 1682, 100_000)
SAMPLES = {"loop": 32, "pfl": 32, "flower": 32, "fedrec": 943}
"""Clients of a round; peers that are slow get few."""
ROUNDS = 3
"""The first warms up and is not counted."""
START, END = "<!-- peers -->", "<!-- end of peers -->"

Mark = Callable[[], None]
"""Told at the end of every round."""


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


def loop(view: Any, count: int, mark: Mark) -> None:
    """One client after another: load the table, train, add up the change."""
    import numpy as np
    import torch

    network, rng = model(view.n_items), np.random.default_rng(0)
    table = network.items.weight.detach().clone()
    users = {client: torch.randn(DIM) * 0.1 for client in clients_of(view, count)}
    for _ in range(ROUNDS):
        total = torch.zeros_like(table)
        for client in users:
            items, labels = (torch.from_numpy(values) for values in samples_of(view, client, rng))
            with torch.no_grad():
                network.items.weight.copy_(table)
                network.user.copy_(users[client])
            train_client(network, items, labels)
            users[client] = network.user.detach().clone()
            total += network.items.weight.detach() - table
        table.add_(total / count)
        mark()


def flower(view: Any, count: int, mark: Mark) -> None:
    """Flower's simulation: every client is a node that is woken, handed the table as arrays, and asked to train."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    import numpy as np
    import ray  # noqa: F401 (its simulation runs on it)
    import torch
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    chosen, threads = clients_of(view, count), torch.get_num_threads()
    client_app, server_app = ClientApp(), ServerApp()

    @client_app.train()
    def train(message: Any, context: Any) -> Any:
        torch.set_num_threads(1)
        network, client = model(view.n_items), chosen[int(context.node_config["partition-id"])]
        with torch.no_grad():
            network.items.weight.copy_(torch.from_numpy(message.content["arrays"].to_numpy_ndarrays()[0]))
            if "user" in context.state:
                network.user.copy_(torch.from_numpy(context.state["user"].to_numpy_ndarrays()[0]))
        items, labels = samples_of(view, client, np.random.default_rng())
        train_client(network, torch.from_numpy(items), torch.from_numpy(labels))
        context.state["user"] = ArrayRecord([network.user.detach().numpy()])
        arrays, metrics = ArrayRecord([network.items.weight.detach().numpy()]), MetricRecord({"num-examples": 1})
        return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    class Averaging(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            if failed := [reply for reply in replies if reply.has_error()]:
                raise RuntimeError(failed[0].error.reason)
            found = super().aggregate_train(server_round, replies)
            mark()
            return found

    @server_app.main()
    def serve(grid: Any, context: Any) -> None:
        strategy = Averaging(fraction_evaluate=0.0, min_train_nodes=count, min_available_nodes=count)
        strategy.start(grid, ArrayRecord([model(view.n_items).items.weight.detach().numpy()]), num_rounds=ROUNDS)

    # So many client processes as threads, one thread each.
    backend = {"init_args": {"num_cpus": threads, "num_gpus": 0}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, num_supernodes=count, backend_config=backend)


def pfl(view: Any, count: int, mark: Mark) -> None:
    """Apple's simulation: federated averaging with its own local training; user vectors stay with their users."""
    import numpy as np
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data import FederatedDataset
    from pfl.data.dataset import Dataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    rng, chosen = np.random.default_rng(0), clients_of(view, count)
    users = {client: torch.randn(DIM) * 0.1 for client in chosen}

    def user_data(client: int) -> Any:
        items, labels = samples_of(view, client, rng)
        order = rng.permutation(len(items))  # its batches follow the order of the data
        return Dataset([torch.from_numpy(items[order]), torch.from_numpy(labels[order])], user_id=client)

    class Averaging(FederatedAveraging):
        def train_one_user(self, initial: Any, wrapped: Any, data: Any, context: Any) -> Any:
            with torch.no_grad():
                network.user.copy_(users[data.user_id])
            found, metrics = super().train_one_user(initial, wrapped, data, context)
            users[data.user_id] = network.user.detach().clone()
            found["user"].zero_()
            return found, metrics

    class Marks(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics: Any, wrapped: Any, *, central_iteration: int) -> Any:
            mark()
            return False, Metrics()

    network = model(view.n_items)
    network.metrics = lambda items, labels, eval=False: {"loss": Weighted(float(network.loss(items, labels)), 1)}
    data = FederatedDataset(user_data, get_user_sampler("minimize_reuse", chosen))
    wrapped = PyTorchModel(
        model=network,
        local_optimizer_create=torch.optim.Adam,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    # It evaluates in rounds that this number divides: of these, only in the first, which is not counted.
    plan = NNAlgorithmParams(
        central_num_iterations=ROUNDS, evaluation_frequency=ROUNDS, train_cohort_size=count, val_cohort_size=None
    )
    Averaging().run(
        algorithm_params=plan,
        backend=SimulatedBackend(training_data=data, val_data=None),
        model=wrapped,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=EPOCHS, local_learning_rate=RATE, local_batch_size=BATCH
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=BATCH),
        callbacks=[Marks()],
    )


def fedrec_rounds(view: Any, count: int, mark: Mark) -> None:
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
    for number in range(ROUNDS):
        trainer.round(number)
        mark()


PEERS: dict[str, Callable[[Any, int, Mark], None]] = {
    "loop": loop, "pfl": pfl, "flower": flower, "fedrec": fedrec_rounds
}  # fmt: skip


def processes() -> Iterator[tuple[Path, list[str]]]:
    """This process and those it started, directly or not: folders of /proc, and what ``stat`` says from the state on."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found[int(folder.name)] = (folder, (folder / "stat").read_text().rpartition(")")[2].split())
    ours, waiting = set[int](), [os.getpid()]
    while waiting:
        one = waiting.pop()
        ours.add(one)
        waiting += [child for child, (_, stat) in found.items() if int(stat[1]) == one and child not in ours]
    return (found[one] for one in sorted(ours))


def used() -> float:
    """CPU seconds of all these processes, and of those that ended."""
    ticks = sum(sum(map(int, stat[11:15])) for _, stat in processes())
    return ticks / os.sysconf("SC_CLK_TCK")


def memory() -> float:
    """MB of all these processes, what they share counted once; or what this one had at most, if that is more."""
    total = 0
    for folder, _ in processes():
        with suppress(OSError):
            lines = (folder / "smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return max(total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024 / 1e6


def measure(name: str, threads: int) -> dict[str, Any]:
    """One engine, in this process and in those it starts; the first round is not counted."""
    import torch

    import fedrec  # noqa: F401 (before torch)

    torch.set_num_threads(threads)
    view, marks, peak = job(), list[tuple[float, float]](), list[float]()

    def mark() -> None:
        marks.append((used(), time.perf_counter()))
        if len(marks) == ROUNDS:
            peak.append(memory())

    try:
        PEERS[name](view, SAMPLES[name], mark)
    except ImportError as error:
        return {"peer": name, "missing": str(error)}
    if len(marks) != ROUNDS:
        raise SystemExit(f"{name} ended after {len(marks)} of {ROUNDS} rounds.")
    (cpu, wall), trained = (
        (last - first for first, last in zip(marks[0], marks[-1], strict=True)),
        SAMPLES[name] * (ROUNDS - 1),
    )
    rates = {"per_cpu_second": trained / cpu, "per_second": trained / wall}
    return {"peer": name, "clients": SAMPLES[name], **rates, "peak_mb": max(peak)}


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
