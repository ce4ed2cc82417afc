"""An exported model: what the server of a federation has, and how to recommend with it to anybody."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from fedrec.compute.device import resolve_device
from fedrec.data.interactions import Interactions
from fedrec.data.item_table import ItemTable
from fedrec.errors import ConfigError, FedrecError
from fedrec.federation.recommender import Recommender
from fedrec.federation.result import Metrics
from fedrec.methods import find, rebuild
from fedrec.running.explanation import MOST, Explanation, explain, named_reasons
from fedrec.running.files import read_object, read_tensors
from fedrec.running.newcomers import Newcomers
from fedrec.running.recommending import Id, Shelf, best, check_length
from fedrec.running.saved import unpack_items
from fedrec.running.similar import similarities
from fedrec.serving.client_part import ClientPart, read_client
from fedrec.serving.linear import Linear, linear_form

INFO, SERVER, ITEMS, TITLES, COUNTS = (
    "model.json",
    "server.safetensors",
    "items.json",
    "titles.json",
    "items.safetensors",
)
ONNX, MANIFEST = "model.onnx", "manifest.json"
EXPORT_AGAIN = "export it again"


class Crossed(BaseModel):
    """What crosses between a client and the server while a model of this kind is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    private: str
    """What stays on the device."""
    uploaded: str
    server_keeps: str
    sees: str
    """What of the uploads the server sees."""
    up_per_round: float
    """Bytes a client sends in a round, as measured."""
    down_per_round: float


class ModelInfo(BaseModel):
    """All that is known of a model beside its numbers; ``model.json`` is its plain values."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: int = 1
    method: str
    title: str
    """The method in one line."""
    config: dict[str, Any]
    data: str
    protocol: dict[str, Any]
    seed: int
    rounds: int
    """Rounds of training behind the state."""
    users: int
    items: int
    ordered: bool
    """Whether histories have an order in time."""
    config_hash: str
    split_hash: str
    test: Metrics
    """What the run reached; empty where it was trained on all rows."""
    crossed: Crossed
    versions: dict[str, str]


@dataclass(eq=False)
class Model:
    """A model that recommends without the data it was trained on."""

    method: Recommender
    info: ModelInfo
    newcomers: Newcomers
    ids: tuple[Id, ...]
    about: ItemTable | None
    counts: Tensor | None
    """How many users had each item, where that was exported."""
    clients: Path | None = None
    """Folder of the client parts of known users, where there is one."""
    checksum: str = ""
    """sha256 of the server's state."""

    def __post_init__(self) -> None:
        self.shelf = Shelf(f"the model of {self.info.data}", self.ids, {key: k for k, key in enumerate(self.ids)})

        self.quick: Linear | None = None

    def prepare(self) -> None:
        """Unpack weights between items once, where the model is made of such, so that every answer is quick."""
        self.quick = linear_form(self.newcomers)

    def title(self, item: Id) -> str | None:
        """The title of an item by its original id, where it is known."""
        return None if self.about is None else self.about.title(item)

    def recommend(
        self,
        user: Id | None = None,
        k: int = 10,
        *,
        history: Iterable[Id] | None = None,
        only: Iterable[Id] | None = None,
        without: Iterable[Id] = (),
    ) -> list[tuple[Id, float]]:
        """The ``k`` best new items for a ``history`` of items, oldest first, or for a user whose client part is there."""
        check_length(k)
        closed = self.shelf.closed(only, without)
        if (user is None) == (history is None):
            raise ConfigError("recommendations are for a known user or for a history; give one of them.")
        if history is not None:
            seen = self.shelf.numbers(history)
            scores = (self.quick or self.newcomers).scores(seen)
        else:
            part = self.client_part(user)  # type: ignore[arg-type]
            scores, seen = self.newcomers.known(part.history, part.private), part.touched
        return self.shelf.named(scores, best(scores, seen, k, closed))

    def client_part(self, user: Id) -> ClientPart:
        """What a known user's device has."""
        if self.clients is None:
            raise ConfigError("this model holds nothing of any user; give a history, or load it with the client parts.")
        return read_client(self.clients, user, self.checksum, len(self.ids))

    def similar(self, item: Id, k: int = 10) -> list[tuple[Id, float]]:
        """The ``k`` items most like an item, for methods that know such a thing."""
        number = self.shelf.number(item)
        found = similarities(self.method, self.newcomers.trainer, number)
        order = found.topk(min(check_length(k), max(1, len(self.ids) - 1))).indices.tolist()
        return [(self.ids[i], float(found[i])) for i in order if i != number]

    def explain_history(self, history: Iterable[Id], *items: Id, most: int = MOST) -> list[Explanation]:
        """What a history has to do with the scores of ``items``, for methods that can say it."""
        own, asked = self.shelf.numbers(history), self.shelf.numbers(items)
        if self.quick is not None:
            return named_reasons(
                self.ids, own, asked, self.quick.scores(own), self.quick.contributions(own, asked), most
            )
        return explain(self.method, self.newcomers.trainer, self._named, own, asked, most)

    @cached_property
    def _named(self) -> Interactions:
        none = torch.zeros(0, dtype=torch.int32).numpy()
        return Interactions(none, none, None, None, (), self.ids, self.info.data)  # type: ignore[arg-type]

    def popularity(self, item: Id) -> float | None:
        """Which share of all items fewer users have had, from 0 to 1, where counts were exported."""
        if self.counts is None:
            return None
        own = self.counts[self.shelf.number(item)]
        return float((self.counts < own).double().mean())


def load_model(
    folder: str | Path,
    *,
    device: str = "cpu",
    clients: str | Path | None = None,
    method: type[Recommender] | str | None = None,
) -> Model:
    """An exported model; neither the data nor the run it is from is needed.

    ``clients`` is the folder of known users' client parts; ``method`` the class of a method that is not installed,
    or its file and class.
    """
    place = Path(folder)
    if not (place / MANIFEST).is_file():
        raise FedrecError(f"{place} holds no exported model; give the folder that export wrote.")
    known = _checked(place)
    try:
        info = ModelInfo.model_validate(read_object(place / INFO, EXPORT_AGAIN))
    except ValidationError as error:
        raise FedrecError(
            f"{place / INFO} is not what export writes ({error.errors()[0]['loc']}); {EXPORT_AGAIN}."
        ) from None
    own = find(method) if isinstance(method, str) else method
    made = rebuild(info.method, info.config, own)
    ids = read_object(place / ITEMS, EXPORT_AGAIN).get("ids")
    if not isinstance(ids, list) or not len({key for key in ids if type(key) in (str, int)}) == len(ids) == info.items:
        raise FedrecError(f"{place / ITEMS} does not list the {info.items} items of the model; {EXPORT_AGAIN}.")
    newcomers = Newcomers(
        made,
        read_tensors(place / SERVER),
        info.items,
        ordered=info.ordered,
        seed=info.seed,
        rounds=info.rounds,
        device=resolve_device(device),
    )
    about = unpack_items(read_object(place / TITLES), str(place / TITLES)) if TITLES in known else None
    counts = read_tensors(place / COUNTS).get("counts") if COUNTS in known else None
    if COUNTS in known and (counts is None or counts.shape != (info.items,)):
        raise FedrecError(f"{place / COUNTS} does not count the {info.items} items of the model; {EXPORT_AGAIN}.")
    parts = None if clients is None else Path(clients)
    if parts is not None and not parts.is_dir():
        raise FedrecError(f"{parts} is no folder of client parts; export them with the model.")
    return Model(made, info, newcomers, tuple(ids), about, counts, parts, known[SERVER])


def sha256(path: Path) -> str:
    """Of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checked(folder: Path) -> dict[str, str]:
    """The checksums of a model's files, all of which are as they were written."""
    known = read_object(folder / MANIFEST, EXPORT_AGAIN).get("sha256")
    if not isinstance(known, dict) or not {INFO, SERVER, ITEMS} <= known.keys():
        raise FedrecError(f"{folder / MANIFEST} is no list of a model's files; {EXPORT_AGAIN}.")
    for name, digest in known.items():
        if Path(name).name != name or not (folder / name).is_file():
            raise FedrecError(f"{folder / name} is missing; {EXPORT_AGAIN}.")
        if sha256(folder / name) != digest:
            raise FedrecError(f"{folder / name} is not as it was written (damaged or changed by hand); {EXPORT_AGAIN}.")
    return known
