"""Three verbs for people who only want recommendations: fit, recommend, and similar items.

It trains on all rows and judges nothing: which method and settings are good is found out before, with ``fedrec.train``,
``fedrec.compare`` and ``fedrec.tune``. (What methods derive from is another class, ``fedrec.method``.)
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, overload

from fedrec.api import load_run, train
from fedrec.data import Interactions, from_frame
from fedrec.data.loading import load_any
from fedrec.errors import ConfigError
from fedrec.methods import create
from fedrec.protocol.whole import WHOLE
from fedrec.running.run import Run

Id = str | int
Items = list[tuple[Id, float]]
"""Original ids of items with their scores, best first."""
OPTIONS = ("rounds", "seed", "device", "threads")


class Recommender:
    """``fedrec.Recommender("fedslist").fit(df).recommend(["ann", "bob"], k=10)``."""

    def __init__(
        self,
        method: str = "fedslist",
        *,
        rounds: int | None = None,
        seed: int = 0,
        device: str = "auto",
        threads: int | None = None,
        **settings: Any,
    ) -> None:
        """A method by name (``fedrec methods`` lists them) or file, options of training, and settings of the method.

        Settings that are not given are those tuned for the default protocol; ``rounds`` are then those tuned, too.
        """
        self.method = method
        self.rounds, self.seed, self.device, self.threads = rounds, seed, device, threads
        self.settings = settings
        self._run: Run | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What it was made with, as scikit-learn wants it: ``Recommender(**r.get_params())`` makes another one."""
        return {"method": self.method} | {name: getattr(self, name) for name in OPTIONS} | self.settings

    def set_params(self, **changes: Any) -> Self:
        """Change some of it; whatever was trained stays until the next ``fit``."""
        for name, value in changes.items():
            if name in ("method", *OPTIONS):
                setattr(self, name, value)
            else:
                self.settings = self.settings | {name: value}
        return self

    def fit(self, data: Any, y: None = None, **columns: Any) -> Self:
        """Train on all rows of ``data``, a pandas or Polars frame, an Arrow table, a path, the name of a data set, or ``Interactions``.

        ``columns`` name those of a frame or file as ``fedrec.from_frame`` and ``fedrec.read_csv`` take them, such as
        ``user="customer"``. ``y`` is there for pipelines and is not looked at.
        """
        method = create(self.method, self.settings)
        rounds = method.rounds if self.rounds is None else self.rounds
        self._run = train(
            method,
            WHOLE.split(_interactions(data, columns), self.seed),
            rounds=rounds,
            seed=self.seed,
            device=self.device,
            threads=self.threads,
            evaluate_every=max(1, rounds),
            progress=False,
        )
        return self

    @property
    def run(self) -> Run:
        """What was trained, with all that a run can do."""
        if self._run is None:
            raise ConfigError("nothing has been trained yet; call fit first.")
        return self._run

    @overload
    def recommend(self, users: Id, k: int = 10) -> Items: ...  # type: ignore[overload-overlap]

    @overload
    def recommend(self, users: Iterable[Id], k: int = 10) -> list[Items]: ...

    def recommend(self, users: Id | Iterable[Id], k: int = 10) -> Items | list[Items]:
        """The ``k`` best new items of a user, or a list of them for several users, in their order."""
        if isinstance(users, str | int) or not isinstance(users, Iterable):
            return self.run.recommend(_plain(users), k)
        ids = self.run.split.data.item_ids
        found = self.run.lists([_plain(user) for user in users], k)
        return [
            [(ids[item], float(score)) for item, score in zip(items, scores, strict=True) if item >= 0]
            for part in found
            for items, scores in zip(part.items.tolist(), part.scores.tolist(), strict=True)
        ]

    def recommend_new(self, history: Iterable[Id], k: int = 10) -> Items:
        """The ``k`` best items for somebody who was not there in ``fit``, by what they have had, oldest first."""
        return self.run.recommend(k=k, history=[_plain(item) for item in history])

    def similar_items(self, item: Id, k: int = 10) -> Items:
        """The ``k`` items most like an item, where the method knows such a thing."""
        return self.run.similar(_plain(item), k)

    def save(self, folder: str | Path) -> None:
        """Write what was trained to a run folder; ``private/`` in it is what a federation would leave on devices."""
        self.run.save(folder)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto", method: str | None = None) -> Self:
        """Read it back; ``method`` names the file and class of a method that is not installed."""
        run = load_run(folder, device=device, method=method)
        found = cls(
            method or run.result.method.partition("+")[0], rounds=run.result.rounds, seed=run.result.seed, device=device
        )
        found.settings, found._run = dict(run.result.config), run
        return found

    def __repr__(self) -> str:
        said = [
            repr(self.method),
            *(f"{name}={value!r}" for name, value in list(self.get_params().items())[1:] if value is not None),
        ]
        return f"Recommender({', '.join(said)})"


def _interactions(data: Any, columns: dict[str, Any]) -> Interactions:
    if isinstance(data, Interactions):
        if columns:
            raise ConfigError(
                f"{next(iter(columns))} names a column, and these interactions have theirs; leave it out."
            )
        return data
    if isinstance(data, str | Path):
        return load_any(str(data), None, columns)[0]
    return from_frame(data, **columns)


def _plain(key: Any) -> Id:
    """A number of NumPy as one of Python's."""
    found: Id = key.item() if hasattr(key, "item") else key
    return found
