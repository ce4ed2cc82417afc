from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as bce

import fedrec
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.privacy import Privacy, PrivacyStage
from fedrec.federation.simulation import Simulation
from fedrec.federation.trainer import Setup
from fedrec.local.mlp import FlatMLP
from fedrec.methods import create
from fedrec.methods.hetefedrec import ROWS, HeteFedRec, decorrelation, models
from fedrec.parts.merger import ADAPTER, OWN
from fedrec.running.training import train
from fedrec.testing import MethodSuite
from pretended_graphs import pretend

MODES = [settings["mode"] for settings in ROWS.values() if "mode" in settings]
RATES = {"lr": 1.0, "lr_theta": 0.01, "lr_user": 10.0}


class TestHeteFedRec(MethodSuite):
    method = HeteFedRec
    options = RATES
    rounds = 20
    floor = 0.25


@pytest.fixture(scope="module")
def tiny() -> fedrec.Split:
    """Thirty clients with 6 to 35 training items."""
    rng = np.random.default_rng(0)
    rows = [(f"u{u:02}", f"i{i}", t) for u in range(30) for t, i in enumerate(rng.choice(60, 8 + u, replace=False))]
    frame = dict(zip(("user", "item", "timestamp"), zip(*rows, strict=True), strict=True))
    protocol = fedrec.HONEST.with_options(min_interactions=5, candidates=10)
    return protocol.split(fedrec.from_frame({key: list(column) for key, column in frame.items()}), seed=0)


def simulate(split: fedrec.Split, rounds: int = 1, **options: Any) -> Simulation:
    simulation = Simulation(HeteFedRec(**(RATES | options)), split.training)
    for number in range(rounds):
        simulation.round(number)
    return simulation


def reference(split: fedrec.Split, method: HeteFedRec) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """One round by the definition: client by client, dense gradients of the whole loss, padding, sums."""
    simulation = Simulation(method, split.training)
    c, server = method.config, simulation.server
    names = [name for name in server if name.startswith(("items", "theta"))]
    total = {name: torch.zeros_like(server[name]) for name in names}
    padded = torch.zeros(split.data.n_items, c.sizes[-1])
    users = torch.zeros(split.data.n_users, c.sizes[-1])
    for client in range(split.data.n_users):
        group = int(server["group"][client])
        leaves = {name: server[name].clone().requires_grad_() for name in names}
        u = simulation.store.at(torch.tensor([client]))["user"][0].clone().requires_grad_()
        samples = simulation.sampler.draw(torch.tensor([client]), negatives=4, seed=0, round=0)
        table = leaves[f"items{group}"]
        loss = c.alpha * decorrelation.penalty(table) if group else torch.zeros(())
        for task in range(group + 1):
            n = c.sizes[task]
            rows = table[samples.items[0].long(), :n]
            logits = models.predict(u[None, :n], rows[None], leaves[f"theta{task}"][None], FlatMLP((2 * n, 8, 8, 1)))
            loss = loss + bce(logits[0], samples.labels[0])
        found = torch.autograd.grad(loss, [u, *leaves.values()], allow_unused=True)
        users[client] = u.detach() - c.lr_user * found[0]
        for name, gradient in zip(leaves, found[1:], strict=True):
            if gradient is not None and name.startswith("theta"):
                total[name] += gradient
            elif gradient is not None:
                padded[:, : gradient.shape[1]] += gradient
    new = {f"items{b}": server[f"items{b}"] - c.lr * padded[:, :n] for b, n in enumerate(c.sizes)}
    return new | {n: server[n] - c.lr_theta * total[n] for n in names if n.startswith("theta")}, users


def test_a_round_is_its_definition(tiny: fedrec.Split) -> None:
    options = RATES | {"sizes": (2, 4, 8), "alpha": 5.0, "reskd": False}
    expected, users = reference(tiny, HeteFedRec(**options))
    simulation = simulate(tiny, **options)
    start = Simulation(HeteFedRec(**options), tiny.training)
    for name, value in expected.items():
        move = (value - start.server[name]).abs().max()
        assert (simulation.server[name] - value).abs().max() < 1e-4 * move, name
    everybody = simulation.store.at(torch.arange(tiny.data.n_users))["user"]
    assert torch.allclose(everybody, users, atol=1e-5)
    small = simulation.server["group"] == 0
    assert torch.equal(everybody[small, 2:], start.store.at(torch.arange(tiny.data.n_users))["user"][small, 2:])


@pytest.mark.parametrize(
    "options",
    [
        {"base": "ncf"},
        {"base": "lightgcn"},
        {"base": "mf"},
        {"agg": "mean"},
        {"agg": "touched"},
        {"merge": "static", "ddr": False},
        {"merge": "elastic", "ddr": False},
        {"mode": "all_medium", "alpha": 0.0},
        {"mode": "clustered"},
    ],
    ids=str,
)
def test_one_sgd_epoch_is_one_gradient(tiny: fedrec.Split, options: dict[str, Any]) -> None:
    # With lr 0.5 three rounds turn rounding into 1e-5, on some processors into more; with 0.1 it stays below 1e-6.
    common = {"sizes": (2, 4, 8), "alpha": 1.0, "lr_theta": 0.02, "lr_user": 0.3, "lr": 0.1, "agg": "sum"} | options
    gradient = simulate(tiny, 3, **common)
    epochs = simulate(tiny, 3, **common, local="epochs", epochs=1, optimizer="sgd", batch_size=10**6)
    everybody = torch.arange(tiny.data.n_users)
    assert torch.allclose(gradient.scores(everybody), epochs.scores(everybody), atol=1e-5)
    for name in (name for name in gradient.server if name.startswith(("items", "theta"))):
        assert torch.allclose(gradient.server[name], epochs.server[name], atol=1e-5)


def test_nesting_holds_until_distillation(tiny: fedrec.Split) -> None:
    def nested(**options: Any) -> bool:
        server = simulate(tiny, 3, **options).server
        return torch.allclose(server["items2"][:, :16], server["items1"], atol=1e-6) and torch.allclose(
            server["items1"][:, :8], server["items0"], atol=1e-6
        )

    assert nested(mode="direct")
    assert nested(reskd=False)
    assert not nested(reskd_lr=1.0)
    assert not nested(mode="direct", nested_init=False)


def test_without_its_parts_it_is_direct_aggregation(tiny: fedrec.Split) -> None:
    everybody = torch.arange(tiny.data.n_users)
    bare = simulate(tiny, 2, udl=False, ddr=False, reskd=False).scores(everybody)
    assert torch.equal(bare, simulate(tiny, 2, mode="direct").scores(everybody))
    for part in ("udl", "ddr", "reskd"):
        settings = {"udl": False, "ddr": False, "reskd": False, part: True, "alpha": 5.0, "reskd_lr": 1.0}
        assert not torch.equal(bare, simulate(tiny, 2, **settings).scores(everybody)), part


def test_one_size_for_all_is_one_group(tiny: fedrec.Split) -> None:
    everybody = torch.arange(tiny.data.n_users)
    for mode, size in (("all_small", 8), ("all_medium", 16), ("all_large", 32)):
        simulation = simulate(tiny, mode=mode)
        assert [k for k in simulation.server if k.startswith("items")] == [f"items{(8, 16, 32).index(size)}"]
        assert simulation.method.broadcast(simulation.task, simulation.server, everybody[:2])["items"].shape[2] == size


def test_clusters_do_not_hear_each_other(tiny: fedrec.Split) -> None:
    clustered = simulate(tiny, mode="clustered")
    start = Simulation(HeteFedRec(mode="clustered"), tiny.training)
    moved = clustered.server["items0"] - start.server["items0"]
    outer = clustered.server["items2"][:, :8] - start.server["items2"][:, :8]
    direct = simulate(tiny, mode="direct").server["items0"] - start.server["items0"]
    middle = clustered.server["items1"][:, :8] - start.server["items1"][:, :8]
    assert torch.allclose(moved + middle + outer, direct, atol=1e-5)
    assert not torch.allclose(moved, outer, atol=1e-3)


def test_standalone_clients_are_alone(tiny: fedrec.Split) -> None:
    simulation = Simulation(HeteFedRec(**RATES, mode="standalone"), tiny.training)
    before = simulation.scores(torch.arange(30)).clone()
    report = simulation.round(0)
    assert report.bytes_up == report.bytes_down == 0
    after = simulation.scores(torch.arange(30))
    assert bool((before != after).any(1).all())
    for client in (0, 17):  # alone in its federation, a client gets the same model
        only = Simulation(HeteFedRec(**RATES, mode="standalone"), tiny.training)
        only.method.participants = lambda *a, client=client: torch.tensor([client])  # type: ignore[method-assign]
        only.round(0)
        assert torch.allclose(only.scores(torch.tensor([client]))[0], after[client], atol=1e-5)


def test_excluded_clients_train_themselves_only(tiny: fedrec.Split) -> None:
    simulation = simulate(tiny, mode="all_large_exclusive")
    shown = simulation.diagnostics()["sizes"]
    assert [shown[size]["bytes_up_per_visit"] > 0 for size in ("8", "16", "32")] == [False, False, True]
    assert all(shown[size]["bytes_down_per_visit"] > 0 for size in shown)
    group = simulation.server["group"]
    plain, untrained = simulation.scores(torch.arange(30)), simulation.scores(torch.arange(30), "untrained")
    assert bool((plain != untrained).any(1)[group < 2].all())
    assert torch.equal(plain[group == 2], untrained[group == 2])


def test_download_sizes_of_the_card(tiny: fedrec.Split) -> None:
    m = tiny.data.n_items
    expected = [m * 8 + 217, m * 16 + 217 + 345, m * 32 + 217 + 345 + 601]
    simulation = simulate(tiny)
    shown = simulation.diagnostics()["sizes"].values()
    assert [group["bytes_down_per_visit"] for group in shown] == [4 * floats for floats in expected]
    small = simulate(tiny, mode="all_small")
    sent = small.diagnostics()["sizes"]["32"]
    assert sent["bytes_down_per_visit"] == 4 * (m * 8 + 217)
    assert 4 * 217 < sent["bytes_up_per_visit"] <= 4 * (m * 9 + 217)


def test_a_global_epoch_visits_everybody_once(tiny: fedrec.Split) -> None:
    method = HeteFedRec(clients_per_round=7)
    task = Simulation(method, tiny.training).task
    orders = []
    for epoch in range(2):
        parts = [method.participants(task, {}, 5 * epoch + block) for block in range(5)]
        assert [len(part) for part in parts] == [7, 7, 7, 7, 2]
        orders.append(torch.cat(parts))
        assert orders[-1].sort().values.tolist() == list(range(30))
    assert not torch.equal(orders[0], orders[1])


OPTIONS: list[dict[str, Any]] = [
    {"base": "lightgcn"},
    {"base": "lightgcn", "propagate": "user_only"},
    {"base": "lightgcn", "layers": 3},
    {"base": "mf"},
    {"server_optimizer": "adam", "lr": 0.01},
    {"user_optimizer": "adam", "lr_user": 0.05},
    {"local": "epochs", "lr": 0.01, "lr_user": 0.01, "epochs": 2, "batch_size": 32},
    {"agg": "mean"},
    {"agg": "touched"},
    {"separate_users": True},
    {"udl_weights": "mean"},
    {"growing": True},
    {"ddr_columns": "outer"},
    {"ddr_rows": 0.3},
    {"relation": "euclidean"},
    {"reskd_optimizer": "adam"},
    {"reskd_steps": 3},
    {"reskd_every": 2},
    {"reskd_items": 0.5},
    {"merge": "elastic"},
    {"merge": "dynamic"},
    {"merge": "none"},
    # At ten times these rates an initial change of 1e-7 grows to 1e-2 in three rounds, so cohorts could not be compared.
    {"merge": "elastic", "local": "epochs", "lr": 0.001, "base": "lightgcn", "lr_user": 0.001},
    {"mode": "standalone", "base": "lightgcn", "local": "epochs", "lr": 0.01, "lr_user": 0.01},
    {"sizes": (1, 2, 3, 5, 8), "sizing": "interactions", "items_per_column": 4},
    {"redraw": True},
    {"sizing": "random", "sizes": (2, 4, 8), "ratio": (1, 1, 1)},
    {"merge": "static"},
    {"nested_init": False},
    *({"mode": mode} for mode in MODES),
]


def _defaults(options: dict[str, Any]) -> dict[str, Any]:
    fields = HeteFedRec.Config.model_fields
    return {name: RATES.get(name, fields[name].default) for name in options}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(f"{k}={v}" for k, v in options.items()))
def test_every_switch_trains_resumes_and_ignores_cohorts(tiny: fedrec.Split, options: dict[str, Any]) -> None:
    everybody = torch.arange(tiny.data.n_users)
    settings = RATES | {"clients_per_round": 20, "alpha": 1.0, "reskd_lr": 0.3} | options
    whole, half, alone = (
        Simulation(HeteFedRec(**settings), tiny.training, cohort_samples=size) for size in (None, None, 1)
    )
    start = whole.scores(everybody).clone()
    for number in range(3):
        whole.round(number)
        alone.round(number)
    half.round(0)
    again = Simulation(HeteFedRec(**settings), tiny.training)
    again.load_state({name: value.clone() for name, value in half.state().items()})
    for number in (1, 2):
        again.round(number)
    scores = whole.scores(everybody)
    assert bool(torch.isfinite(scores).all())
    assert not torch.allclose(scores, start)
    base = {name: value for name, value in options.items() if name == "base" and len(options) > 1}
    plain = simulate(tiny, 3, **(settings | _defaults(options) | base)).scores(everybody)
    assert not torch.equal(scores, plain), "the switch must do something"
    assert torch.equal(scores, again.scores(everybody))
    assert torch.allclose(scores, alone.scores(everybody), atol=1e-3)


def test_static_merging_with_full_weight_is_replacing(tiny: fedrec.Split) -> None:
    everybody = torch.arange(tiny.data.n_users)
    plain = simulate(tiny, 3).scores(everybody)
    assert torch.allclose(simulate(tiny, 3, merge="static", rho=1.0).scores(everybody), plain, atol=1e-6)
    assert not torch.allclose(simulate(tiny, 3, merge="static", rho=0.5).scores(everybody), plain, atol=1e-4)


def test_result_reports_groups_and_what_was_picked(tiny: fedrec.Split) -> None:
    needs = 8 * (tiny.data.n_items * 4 + 16 * 4 + 89 + 16 * 2 + 89) / 1e6  # just enough for size 4
    method = HeteFedRec(**RATES, sizes=(2, 4, 8), sizing="memory", memory_mb=(needs,) * 10 + (99.0,) * 20)
    result = train(method, tiny, rounds=1, device="cpu", progress=False).result
    assert {name: group.clients for name, group in result.client_groups.items()} == {"2": 0, "4": 10, "8": 20}
    assert "recall@20" in result.client_groups["8"].test.full
    shown = result.diagnostics
    assert shown["sizing"] == "memory"
    assert shown["sizes"]["4"]["clients"] == 10
    assert len(shown["tables"]["8"]["singular_values"]) == 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sizes": (8, 8, 32)}, "increasing"),
        ({"sizes": ()}, "increasing"),
        ({"ratio": (1, 1)}, "2 shares for 3 sizes"),
        ({"ratio": (0, 0, 0)}, "positive share"),
        ({"ratio": (float("nan"), 1, 1)}, r"ratio\[0\]: .* finite"),
        ({"ratio": 5}, "written as a list"),
        ({"lr": float("inf")}, "finite"),
        ({"sizing": "memory", "memory_mb": -1}, "must be positive"),
        ({"sizing": "memory", "memory_mb": (1, "x")}, r"memory_mb\[1\]: "),
        ({"memory_mb": 1}, "no effect with sizing=ratio"),
        ({"assignment": (8, 8)}, "no effect with sizing=ratio"),
        ({"sizing": "interactions", "ratio": (1, 1, 1)}, "no effect with sizing=interactions"),
        ({"sizing": "memory"}, "needs memory_mb"),
        ({"sizing": "assignment"}, "needs assignment"),
        ({"sizing": "assignment", "assignment": (8, 9)}, "size 9"),
        ({"mode": "standalone", "merge": "elastic"}, "nothing to merge"),
        ({"base": "transformer"}, "ncf"),
    ],
)
def test_bad_settings_are_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        HeteFedRec(**options)


def test_settings_that_do_not_fit_the_data(tiny: fedrec.Split) -> None:
    for options, words in (
        ({"sizes": (8, 16, 100000)}, "above the"),
        ({"sizing": "assignment", "assignment": (8, 16)}, "2 sizes for 30 clients"),
        ({"sizing": "memory", "memory_mb": (1.0, 2.0)}, "one number"),
        ({"sizing": "memory", "memory_mb": 1e-6}, "smallest size needs"),
    ):
        with pytest.raises(ConfigError, match=words):
            simulate(tiny, **options)


def test_rates_follow_how_clients_and_server_step() -> None:
    def rates(**options: Any) -> tuple[float, float | None, float | None]:
        config = create("hetefedrec", protocol="hetefedrec", data="ml-1m", **options).config
        return config.lr, config.lr_theta, config.lr_user

    assert rates(local="epochs") == (0.001, None, None)
    assert rates(server_optimizer="adam") == (0.01, None, 10)
    assert rates(user_optimizer="adam")[2] == 0.1
    assert rates(local="epochs", lr=0.1)[0] == 0.1
    assert rates() == (1, 0.01, 10)  # tuned on this data


def test_own_changes_ignore_the_server_optimizer(tiny: fedrec.Split) -> None:
    """What local epochs changed is taken whole, by standalone and by merging clients."""
    everybody = torch.arange(tiny.data.n_users)
    for options, name in (({"mode": "standalone"}, "items"), ({"merge": "static", "rho": 0.5}, OWN)):
        found = []
        for optimizer in ("sgd", "adam"):
            simulation = Simulation(HeteFedRec(local="epochs", server_optimizer=optimizer, **options), tiny.training)
            simulation.round(0)
            found.append(simulation.store.at(everybody)[name].clone())
        assert torch.equal(found[0], found[1])


def test_groups_are_the_same_in_every_mode(tiny: fedrec.Split) -> None:
    memory = (0.003,) * 10 + (0.005,) * 10 + (1.0,) * 10
    budget = {"sizes": (2, 4, 8), "sizing": "memory", "memory_mb": memory}
    task = Simulation(HeteFedRec(), tiny.training).task
    found = {mode: HeteFedRec(**budget, mode=mode).groups(task).tolist() for mode in ("hetefedrec", *MODES)}
    assert all(groups == found["hetefedrec"] for groups in found.values())
    assert len(set(found["hetefedrec"])) == 3
    merging = HeteFedRec(**budget, merge="elastic").groups(task)
    assert int(merging.sum()) < sum(found["hetefedrec"])  # an own table takes memory, too


def test_unvisited_clients_know_their_graph(tiny: fedrec.Split) -> None:
    simulation = simulate(tiny, base="lightgcn", participation=0.2)
    kept = simulation.store.at(torch.arange(30))["positives"]
    for client in range(30):
        assert kept[client].nonzero()[:, 0].tolist() == sorted(set(tiny.training.positives[client].tolist()))


def test_adapters_are_trained(tiny: fedrec.Split) -> None:
    everybody = torch.arange(tiny.data.n_users)
    start = Simulation(HeteFedRec(**RATES, merge="elastic"), tiny.training).store.at(everybody)[ADAPTER].clone()
    found = simulate(tiny, 2, merge="elastic")
    assert bool((found.store.at(everybody)[ADAPTER] != start).any(1).all())
    stuck = simulate(tiny, 2, merge="elastic", adapter_lr=1e-12)
    assert not torch.allclose(found.scores(everybody), stuck.scores(everybody), atol=1e-4)


def test_server_adam_is_torchs(tiny: fedrec.Split) -> None:
    options = {"mode": "all_small", "lr": 0.01, "lr_theta": 0.02, "lr_user": 1e-12}
    start = Simulation(HeteFedRec(**options), tiny.training).server
    plain = simulate(tiny, **options).server
    gradient = {
        "items0": (start["items0"] - plain["items0"]) / 0.01,
        "theta0": (start["theta0"] - plain["theta0"]) / 0.02,
    }
    adam = simulate(tiny, **options, server_optimizer="adam").server
    for (name, slope), lr in zip(gradient.items(), (0.01, 0.02), strict=True):
        leaf = start[name].clone().requires_grad_()
        leaf.grad = slope
        torch.optim.Adam([leaf], lr=lr, betas=(0.9, 0.98)).step()
        far = slope.abs() > 1e-4  # where the rounding of the difference cannot turn a step around
        assert torch.allclose(adam[name][far], leaf.detach()[far], atol=1e-4)
        assert int(far.sum()) > 20


def test_divergence_names_the_epoch(tiny: fedrec.Split) -> None:
    with pytest.raises(FedrecError, match=r"diverged in round [12]:"):
        train(HeteFedRec(lr=1e30, clients_per_round=5), tiny, rounds=2, device="cpu", progress=False)


@pytest.mark.parametrize("mode", ["hetefedrec", "all_large_exclusive", "standalone"])
def test_privacy_stage_on_uploads(tiny: fedrec.Split, mode: str) -> None:
    stage = PrivacyStage(Privacy(clip=0.1, scale=0.001), 0)
    simulation = Simulation(HeteFedRec(**RATES, mode=mode), tiny.training, Setup(privacy=stage))
    report = simulation.round(0)
    dense = tiny.data.n_items * 32 * 4
    assert (report.bytes_up >= dense) == (mode != "standalone")
    assert bool(torch.isfinite(simulation.scores(torch.arange(30))).all())


RECORDED = [
    {},
    {"base": "lightgcn", "layers": 2},
    {"base": "mf", "agg": "touched"},
    {"mode": "standalone"},
    {"mode": "clustered", "server_optimizer": "adam", "reskd_every": 2},
    {"agg": "mean", "reskd_steps": 2, "merge": "elastic"},
    {"local": "epochs", "epochs": 1},
]


@pytest.mark.parametrize("settings", RECORDED, ids=str)
def test_what_is_recorded_is_what_is_computed(settings, small, monkeypatch):
    """On a GPU the server's step is recorded, and gradients of cohorts that are padded to a few shapes."""
    runs = []
    for recording in (False, True):
        pretended = pretend(monkeypatch) if recording else None
        trainer = HeteFedRec(clients_per_round=25, **settings).trainer(small.training, Setup(0))
        losses = [trainer.round(number).loss for number in range(4)]
        runs.append((losses, trainer.scores(torch.arange(small.data.n_users))))
    assert runs[0][0] == pytest.approx(runs[1][0], rel=1e-5)
    assert torch.allclose(runs[0][1], runs[1][1], atol=1e-4)
    assert pretended is not None
    assert pretended.replays > pretended.recordings
