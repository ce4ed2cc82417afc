"""``fedrec audit --uploads``: what an honest-but-curious server infers from what it sees."""

from __future__ import annotations

from dataclasses import asdict

from rich.progress import Progress

from fedrec.cli.common import Form, err, print_json
from fedrec.cli.tables import plain_table, put
from fedrec.data import Interactions
from fedrec.errors import ConfigError
from fedrec.federation.arrows import Arrows
from fedrec.methods import create
from fedrec.protocol import HONEST
from fedrec.secure.curious import Inference, curious

HEADS = ["method", "the server sees", "precision", "of others", "chance"]


def what_uploads_tell(
    methods: list[str], data: Interactions, epsilon: float, users: int, seed: int, form: Form
) -> None:
    """Attack the first round of each method, and print how many of the guessed items users have."""
    split, found = HONEST.split(data, seed), dict[str, list[Inference]]()
    made = {name: _federated(name, data) for name in methods}
    with Progress(console=err, transient=True) as bar:
        for name, method in made.items():
            task = bar.add_task(f"attacking {name}", total=None)
            found[name] = curious(
                method, split, epsilon=epsilon, clients=users, seed=seed,
                progress=lambda done, total, task=task: bar.update(task, completed=done, total=total),  # type: ignore[misc]
            )  # fmt: skip
    if form == "json":
        about = {"data": data.name, "epsilon": epsilon, "delta": 1e-5, "users": users, "seed": seed}
        print_json(about | {"methods": {name: [asdict(one) for one in rows] for name, rows in found.items()}})
        return
    rows = [
        [name, one.view, f"{one.precision:.3f}", f"{one.of_others:.3f}", f"{one.chance:.3f}"]
        for name, many in found.items()
        for one in many
    ]
    title = f"Share of a user's items that the server guesses, {data.name}; noise: epsilon {epsilon:g}"
    put(plain_table(HEADS, rows, title=title), form)
    err.print("of others: the same guesses held against other users; only what is above it is known about a user")


def _federated(name: str, data: Interactions) -> Arrows:
    """The method, with a bound on what a client adds to sums where it needs one for noise."""
    method = create(name, data=data.name)
    if method.of_parts:
        raise ConfigError(f"{name} trains other methods, and uploads what they upload; name these.")
    if not isinstance(method, Arrows):
        raise ConfigError(f"{name} is centralised: it uploads nothing, because the server has everything.")
    if method.sum_bounds() and method.central_problem():
        method = create(name, {"n_max": 50}, data=data.name)
    assert isinstance(method, Arrows)
    return method
