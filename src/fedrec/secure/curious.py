"""An attack: which items did a user have, by what an honest-but-curious server gets to see in one round?

The server follows the protocol and looks. Of a client's upload it takes what is about items: rows of a table, or counts of pairs.
Rows that changed are the client's positives and the negatives it drew; training pushes the two in opposite directions, so
the main direction of the changes parts them, and there are fewer positives. It guesses as many items as the user has
training items, a number that it knows. What it sees of sums is the same for everybody, and so is its guess.

Beside the precision stands that of the same guesses held against other users: what a guess owes to items that everybody has.
Only what is above it was learned about the user.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedrec.errors import ConfigError
from fedrec.federation.accounting import gaussian_noise
from fedrec.federation.arrows import Arrows, Gathering
from fedrec.federation.central_privacy import CentralPrivacy, CentralStage
from fedrec.federation.clients import Clients
from fedrec.federation.method import SumMethod
from fedrec.federation.payload import Derived, Part, Payload, State, Table, Upload, change
from fedrec.federation.privacy import Privacy, PrivacyStage
from fedrec.federation.server import Server
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.federation.trainer import RoundReport, Setup
from fedrec.protocol.split import Split

VIEWS = ("plain uploads", "noise on each upload", "secure sum", "secure sum with noise")


@dataclass(frozen=True)
class Inference:
    """How well a server guesses users' items from what it sees."""

    view: str
    precision: float
    """Share of the guessed items that users have, mean over users."""
    of_others: float
    """The same of guesses that were made for somebody else."""
    chance: float
    """The same of guesses at random."""


def curious(
    method: Arrows,
    split: Split,
    *,
    epsilon: float = 8.0,
    clients: int = 500,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Inference]:
    """The attack on the first round of a method, for each way uploads can reach its server.

    Noise costs ``epsilon`` at delta 1e-5; it is clipped to the middle one of the clients' norms. At most ``clients`` users, drawn
    at random, are attacked.
    """
    view, device = split.training, torch.device("cpu")
    counts = torch.from_numpy(view.positives.counts)
    task = Task(view.n_clients, view.n_items, counts, seed, device)
    server, here = Server(method, task), Clients(method, view, task, Setup(seed))
    chosen = server.participants(0)
    some = np.random.default_rng(seed).permutation(len(chosen))[:clients]
    targets = chosen[torch.from_numpy(np.sort(some))]
    kept: list[Upload] = []
    for number, client in enumerate(targets):  # one by one, as each device sends its own
        one = _Kept()
        here.train(client[None], 0, server, one, RoundReport())
        kept += one.uploads
        if progress is not None:
            progress(number + 1, len(targets))
    if not kept or not any(_about_items(upload.parts, view.n_items) is not None for upload in kept):
        raise ConfigError(
            f"{method.name} sends no table of items and no counts in its first round that this attack could read."
        )
    truth = torch.from_numpy(view.own_items(targets.numpy()))
    found = [_judged(VIEWS[0], [upload.parts for upload in kept], truth)]
    clip = _middle_norm(kept)
    if clip is not None and method.privacy_problem() is None:
        scale = 2 * clip * gaussian_noise(epsilon, 1, 1e-5)
        stage = PrivacyStage(Privacy(mechanism="gaussian", clip=clip, scale=scale), seed)
        noisy = (stage.apply(upload.parts, upload.clients, 0) for upload in kept)
        found.append(_judged(VIEWS[1], noisy, truth))
    if isinstance(method, SumMethod):
        found.append(_judged(VIEWS[2], [_sums(method, split, task, chosen, None)], truth))
        if (clip is not None or method.sum_bounds()) and method.central_problem() is None:
            noise = CentralPrivacy(noise=gaussian_noise(epsilon, 1, 1e-5), clip=clip or 1.0)
            found.append(_judged(VIEWS[3], [_sums(method, split, task, chosen, noise)], truth))
    return found


def suspicion(seen: Tensor) -> Tensor:
    """How much each item [m] looks like one that the client has, by what changed in its rows [m, d]."""
    seen = seen.double()
    if seen.shape[1] == 1:  # counts
        return seen[:, 0]
    main: Tensor = seen @ torch.linalg.eigh(seen.T @ seen).eigenvectors[:, -1]
    large = main[main.abs() > 1e-3 * main.abs().max()]
    up, down = int((large > 0).sum()), int((large < 0).sum())
    if not up or not down:
        return main.abs()
    return main if up <= down else -main  # there are fewer positives than negatives


def _judged(view: str, seen: Iterable[Mapping[str, Part]], truth: Tensor) -> Inference:
    """Precision of guesses; what is seen is either one mapping per user, or one for all."""
    n_items = truth.shape[1]
    scores = [suspicion(table) for parts in seen if (table := _about_items(parts, n_items)) is not None]
    guesses = torch.zeros_like(truth)
    for user in range(len(truth)):
        count = int(truth[user].sum())
        guesses[user, scores[user if len(scores) > 1 else 0].topk(count).indices] = True
    sizes = truth.sum(1)
    right = ((guesses & truth).sum(1) / sizes).mean()
    shifted = truth.roll(1, 0)  # everybody is held against the next one
    wrong = ((guesses & shifted).sum(1) / sizes).mean()
    return Inference(view, float(right), float(wrong), float((sizes / n_items).mean()))


def _about_items(parts: Mapping[str, Part], n_items: int) -> Tensor | None:
    """What a message says of every item [m, d]: the changes of a table, or how often an item is paired with itself."""
    for name, part in parts.items():
        if isinstance(part, Derived) or name.endswith(".weight") or (isinstance(part, Table) and part.known is None):
            continue
        value = change(part)
        value = value[0] if value.dim() == 3 or (value.dim() == 2 and value.shape[0] == 1) else value
        if value.dim() == 2 and len(value) == n_items:
            return value
        if value.dim() == 1 and len(value) == n_items * (n_items + 1) // 2:
            places = torch.arange(n_items)
            return value[places * n_items - places * (places - 1) // 2][:, None].double()
    return None


def _middle_norm(uploads: list[Upload]) -> float | None:
    """The median L2 norm of uploads, where they are changes that can be clipped."""
    try:
        norms = [
            math.sqrt(sum(float(change(part).double().square().sum()) for part in upload.parts.values()))
            for upload in uploads
        ]
    except (ConfigError, AssertionError):
        return None
    return float(np.median(norms)) or None


def _sums(method: SumMethod, split: Split, task: Task, chosen: Tensor, noise: CentralPrivacy | None) -> Payload:
    """What a server sees behind secure aggregation: sums over all clients of the round, and nothing else."""
    stage = None if noise is None else CentralStage(noise, task.seed)
    clients, gathering = Clients(method, split.training, task, Setup(task.seed, privacy=stage)), method.gather(task)
    clients.train(chosen, 0, Server(method, task), gathering, RoundReport())
    return dict(gathering.total or Total())


class _Kept(Gathering):
    """Keeps uploads as they come."""

    def __init__(self) -> None:
        self.uploads: list[Upload] = []

    def add(self, upload: Upload) -> None:
        if upload.parts:
            self.uploads.append(upload)

    def step(self, server: State, round: int) -> State:
        return server
