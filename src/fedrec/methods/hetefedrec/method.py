"""HeteFedRec: one federation of clients with different model sizes.

Yuan, Qu, Cui, Tong, Zhou, Yin, "HeteFedRec: Federated Recommender Systems with Model Heterogeneity", ICDE 2024, pp.
1324-1337 (arXiv 2307.12810). Clients with more data get wider embeddings. Tables of different width are nested: updates
are padded with zero columns and summed; a client also trains every smaller model inside its own (unified dual-task
learning, UDL); the columns of larger tables are decorrelated (DDR); the server aligns the item relations of all tables
(RESKD). No code is public: the points that the paper leaves open are options here.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fedrec.data.training import TrainingView
from fedrec.federation.mixture import Mixture
from fedrec.federation.result import metric_title
from fedrec.local.mlp import kaiming
from fedrec.method import (
    ClientState,
    Ledger,
    MethodConfig,
    Params,
    Payload,
    Result,
    ResultTable,
    RowUpdate,
    Samples,
    State,
    SumMethod,
    Task,
    Total,
    Upload,
    broadcast,
    take_rows,
    tensor,
)
from fedrec.methods.hetefedrec import decorrelation, models, sizes
from fedrec.methods.hetefedrec.config import ROWS, HeteFedRecConfig
from fedrec.methods.hetefedrec.local_work import LocalWork, stack_padded
from fedrec.methods.hetefedrec.own_tables import OwnTables
from fedrec.methods.hetefedrec.roles import roles
from fedrec.methods.hetefedrec.server import NestedServer, moments
from fedrec.parts.aggregation import noise_notes
from fedrec.parts.merger import keep_table, widened

__all__ = ["ROWS", "HeteFedRec", "HeteFedRecConfig"]


class HeteFedRec(SumMethod):
    """Nested item tables and predictors of several sizes; private user vectors."""

    draws_participants = False  # a global epoch visits everybody once
    name = "hetefedrec"
    title = "clients of different model size: nested tables, dual-task learning, decorrelation, distillation"
    paper = "Yuan et al., ICDE 2024"
    private = "user vector (N of the client's size)"
    uploaded = "gradients of touched item rows (N columns) and of the predictors up to the client's size"
    server_keeps = "an item table (m x N) and a predictor (16 N + 89) per size"
    Config = HeteFedRecConfig
    config: HeteFedRecConfig
    defining = ("local", "server_optimizer", "user_optimizer")
    telling = ("mode", "base", "local", "udl", "ddr", "reskd", "merge")

    def __init__(self, config: MethodConfig | None = None, **options: Any) -> None:
        """Read off what the mode means: who shares with whom, and which of the three parts are on."""
        super().__init__(config, **options)
        self.roles = roles(self.config)
        self.model = models.NestedModel(self.config, dual=self.roles.udl)
        self.local_work = LocalWork(self.config, self.roles, self.model)
        self.own = OwnTables(self.config, self.model, self.roles.trains)
        self.server_work = NestedServer(self.config, self.roles, self.model)

    def groups(self, task: Task) -> Tensor:
        """The group (index of its size in ``sizes``) of every client; the same in all modes."""
        needs = [self.model_bytes(size, task.n_items) for size in range(len(self.config.sizes))]
        return sizes.pick(self.config, task, needs)

    def model_bytes(self, size: int, n_items: int) -> int:
        """What training this size takes: table, predictors and their update; Adam's moments, an own table to merge."""
        c, table = self.config, n_items * int(self.config.sizes[size])
        copies = 4 if c.local == "epochs" and c.optimizer == "adam" else 2
        predictors = sum(self.model.n_theta(smaller) for smaller in range(size + 1))
        return 4 * (copies * (table + predictors) + (table if self.own.used else 0))

    def client_groups(self, task: Task) -> dict[str, Tensor]:
        """Clients by size."""
        groups = self.groups(task)
        return {str(size): (groups == index).nonzero()[:, 0] for index, size in enumerate(self.config.sizes)}

    def _initial(self, task: Task) -> State:
        c, generator = self.config, task.generator()
        tables = [task.normal(task.n_items, c.sizes[-1], std=c.init_std, generator=generator) for _ in c.sizes]
        state = {}
        for index, size in enumerate(c.sizes):
            source = tables[0] if c.nested_init else tables[index]
            state[f"items{index}"] = source[:, :size].clone()
            state[f"theta{index}"] = self.model.predictor(index).draw(kaiming, generator).to(task.device)
        return state

    def server_state(self, task: Task) -> State:
        """A table and a predictor per size in use, and who has which."""
        names = [f"{kind}{index}" for index in self.roles.trained for kind in ("items", "theta")]
        initial = self._initial(task)
        state = {} if self.roles.alone else {name: initial[name] for name in names}
        if self.config.server_optimizer == "adam":
            state |= moments(state)
        return state | {"group": self.groups(task)}

    def client_state(self, task: Task, clients: Tensor) -> State:
        """The group and a random user vector, padded to the widest; an own table where the mode or merging needs one."""
        c, n = self.config, len(clients)
        width = max(columns.stop for index in self.roles.trained for columns in self.model.user_columns(index).values())
        group = self.groups(task)[clients.cpu()].to(task.device)
        user = task.client_normal(clients, width, std=c.init_std)
        state = {"group": group, "user": user}
        if c.user_optimizer == "adam" and c.local == "gradient":
            state |= {"first": torch.zeros_like(user), "second": torch.zeros_like(user)}
            state["steps"] = torch.zeros(n, 1, device=task.device)
        if self.roles.exclusive:
            state["first_user"] = user
        if self.roles.alone:
            initial = self._initial(task)
            state["theta"] = stack_padded([initial[f"theta{index}"] for index in range(len(c.sizes))])[group]
            state["items"] = initial[f"items{len(c.sizes) - 1}"].expand(n, -1, -1)
        return state | self.own.state(task, group)

    def own_data(self, view: TrainingView, clients: Tensor) -> State:
        """The links of a LightGCN client, [c, m]."""
        if self.config.base != "lightgcn":
            return {}
        return {"positives": torch.from_numpy(view.own_items(clients.numpy()))}

    def blocks(self, task: Task) -> int:
        """Blocks of clients in a global epoch, which is a round of the run."""
        return math.ceil(self._visited(task) / self.config.clients_per_round)

    def _visited(self, task: Task) -> int:
        """Clients a global epoch visits."""
        return max(1, int(self.config.participation * len(task.able)))

    def participants(self, task: Task, server: State, round: int) -> Tensor:
        """The next block of this global epoch's order of clients."""
        epoch, block = divmod(round, self.blocks(task))
        able, size = task.able, self.config.clients_per_round
        order = task.participation_rng(epoch).permutation(len(able))[: self._visited(task)]
        return able[torch.from_numpy(order[block * size : (block + 1) * size])]

    def sampling_round(self, round: int) -> int:
        """Negatives are drawn once and kept, or drawn anew."""
        return round if self.config.redraw else 0

    def kinds(self, task: Task, server: State, clients: Tensor) -> Tensor:
        """The group: payloads of different sizes do not mix."""
        return server["group"].cpu()[clients.cpu()]

    def broadcast(self, task: Task, server: State, clients: Tensor) -> Payload:
        """The table of the client's size and the predictors it trains."""
        if self.roles.alone or not len(clients):
            return {}
        size, n = self._size(server, clients), len(clients)
        thetas = {f"theta{trained}": broadcast(server[f"theta{trained}"], n) for trained in self.model.tasks(size)}
        return {"items": broadcast(server[f"items{size}"], n), **thetas}

    def _size(self, server: State, clients: Tensor) -> int:
        return self.roles.trains[int(server["group"][int(clients[0])])]

    def train(
        self, task: Task, private: ClientState, payload: Payload, samples: Samples, round: int
    ) -> tuple[Payload, Tensor]:
        """The dual-task gradient (or epochs), the user's own step, and the upload."""
        group = int(private["group"][0])
        size, frozen = self.roles.trains[group], self.roles.frozen(group)
        whole = self.roles.whole_table[size]
        thetas = [f"theta{trained}" for trained in self.model.tasks(size)]
        params: Params = {"user": private["user"]} | self._graph(private, None if whole else samples)
        if self.roles.alone:
            table = private["items"]
            params["block"] = private.take("items", samples)[..., : self.config.sizes[size]]
            params[thetas[0]] = private["theta"][:, : self.model.n_theta(size)]
        else:
            params |= {name: tensor(payload, name) for name in thetas}
            touched = params | self._graph(private, samples) if self.own.used else None
            table = self.own.merged(private, tensor(payload, "items"), size, touched, samples)
            params["block"] = table if whole else take_rows(table, samples)
        names = ["user"] if frozen else ["user", "block", *thetas]
        changes, loss = self.local_work.run(task, private, params, names, samples, size, round)
        if frozen:
            return {}, loss
        if self.roles.alone:
            self._keep(private, params, changes, samples)
            return {}, loss
        update: Tensor | RowUpdate = changes["block"]
        if not whole:
            update = RowUpdate(samples.rows, samples.row_counts, changes["block"], table.shape[1])
        if self.own.used:
            moved = update.dense() if isinstance(update, RowUpdate) else update
            keep_table(private, table + self.roles.own_items * moved)
        return {"items": update, **{name: changes[name] for name in thetas}}, loss

    def _graph(self, private: ClientState, samples: Samples | None) -> Params:
        """Which rows, of those that ``samples`` touch or of the whole table, a LightGCN client is linked to."""
        if self.config.base != "lightgcn":
            return {}
        positives = private["positives"]
        if samples is not None:
            positives = positives.gather(1, samples.rows.long()) & samples.valid_rows
        return {"positive": positives.float()}

    def _keep(self, private: ClientState, params: Params, changes: Params, samples: Samples) -> None:
        """Standalone: the client takes the step itself."""
        (theta,) = (name for name in changes if name != "block")
        block = params["block"] + self.roles.own_items * changes["block"]
        outer = private.take("items", samples)[..., block.shape[2] :]
        private.put("items", samples, torch.cat([block, outer], 2))
        own = params[theta] + self.roles.own_theta * changes[theta]
        private["theta"] = widened(own, private["theta"])

    def privacy_notes(self) -> tuple[str, ...]:
        """Noise lies on every row; a mean over those that touched it becomes one over all of the round."""
        return noise_notes("touched") if self.config.agg == "touched" else ()

    def public_sum(self, name: str) -> bool:
        """Counts of clients: with noise on all rows those that touched a row, too."""
        return name.endswith(".clients") or name.startswith(("clients", "touched"))

    def contribute(self, task: Task, upload: Upload, total: Total) -> None:
        """Sums per size."""
        self.server_work.contribute(upload, total)

    def step(self, task: Task, server: State, total: Total, round: int) -> State:
        """Pad, update every size from slices of one sum; then distil."""
        return self.server_work.updated(task, server, total, round)

    def scores(self, task: Task, private: ClientState, payload: Payload) -> Tensor:
        """The client's own full size."""
        return self._scores(private, payload, private["user"])

    def _scores(self, private: ClientState, payload: Payload, users: Tensor) -> Tensor:
        size = self.roles.trains[int(private["group"][0])]
        if self.roles.alone:
            table = private["items"][..., : self.config.sizes[size]]
            theta = private["theta"][:, : self.model.n_theta(size)]
        else:
            table = self.own.merged(private, tensor(payload, "items"), size)
            theta = tensor(payload, f"theta{size}")
        positive = private["positives"].float() if "positives" in private else None
        return self.model.score(size, users, table, theta, positive)

    @property
    def merges(self) -> bool:
        """Where merging is more than taking the download."""
        return self.own.used

    def mixture(self, task: Task, private: ClientState, payload: Payload) -> Mixture | None:
        """The own tables of the client's size and the download."""
        if not self.own.used:
            return None
        size = self.roles.trains[int(private["group"][0])]
        return self.own.merger(size).kept_mixture(private, tensor(payload, "items"))

    @property
    def views(self) -> tuple[str, ...]:
        """All Large-Exclusive is also reported with untrained user vectors of the excluded."""
        return ("untrained",) if self.roles.exclusive else ()

    def view_scores(self, task: Task, view: str, private: ClientState, payload: Payload) -> Tensor:
        """Excluded clients with their initial user vectors."""
        excluded = private["group"] < len(self.config.sizes) - 1
        return self._scores(private, payload, torch.where(excluded[:, None], private["first_user"], private["user"]))

    def diagnostics(self, task: Task, server: State, ledger: Ledger) -> dict[str, Any]:
        """Which sizes were picked, bytes per client and visit of each, and how far the tables collapsed."""
        c, found = self.config, {}
        for index, (name, clients) in enumerate(self.client_groups(task).items()):
            counts, visits = task.counts[clients], max(1, int(ledger.visits[clients].sum()))
            found[name] = {
                "clients": len(clients),
                "training_items": [int(counts.min()), int(counts.max())] if len(clients) else None,
                "trains_size": c.sizes[self.roles.trains[index]],
                "bytes_up_per_visit": int(ledger.sent[clients].sum()) / visits,
                "bytes_down_per_visit": int(ledger.received[clients].sum()) / visits,
            }
        tables = {} if self.roles.alone else {str(c.sizes[size]): server[f"items{size}"] for size in self.roles.trained}
        return {
            "sizing": c.sizing,
            "sizes": found,
            "tables": {name: decorrelation.spectrum(table) for name, table in tables.items()},
        }

    def tables(self, result: Result) -> list[ResultTable]:
        """Who got which size, how well each does and what it sends."""
        shown = result.diagnostics
        metrics = list(result.test.full)[:2]
        columns = ["size", "clients", "training items", "trains", *map(metric_title, metrics), "KB up", "KB down"]
        rows = []
        for name, group in shown["sizes"].items():
            items, test = group["training_items"], result.client_groups[name].test
            rows.append(
                [
                    name,
                    f"{group['clients']:,}",
                    f"{items[0]} to {items[1]}" if items else "-",
                    str(group["trains_size"]),
                    *["-" if test is None else f"{test.full[metric]:.4f}" for metric in metrics],
                    *[f"{group[f'bytes_{way}_per_visit'] / 1e3:.1f}" for way in ("up", "down")],
                ]
            )
        return [ResultTable(title=f"{result.label}: sizes by {shown['sizing']}", columns=columns, rows=rows)]
