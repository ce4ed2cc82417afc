"""A small HTTP service for one exported model, with a page on it. It keeps nothing of what it is asked."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, TypeVar

import torch
from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from fedrec.errors import DataError, FedrecError
from fedrec.running.explanation import MOST, Explanation
from fedrec.serving.guard import App, Guard, Meter, Rates
from fedrec.serving.model import Crossed, Model
from fedrec.version import installed_version

Id = int | Annotated[str, Field(max_length=200)]
LONGEST, MOST_LISTED = 1000, 100
"""Items of a history, and of a list that comes back, at most."""
MOST_BYTES = 1 << 18
Answer = TypeVar("Answer")


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Ask(_Body):
    """What somebody has had, and what is wanted."""

    history: list[Id] = Field(max_length=LONGEST)
    """Ids of items, oldest first."""
    k: int = Field(10, ge=1, le=MOST_LISTED)
    without: list[Id] = Field([], max_length=LONGEST)
    """Items that are not to be recommended."""
    explain: bool = False
    """Say which items of the history each recommendation is due to, where the model can."""
    most_popular: float = Field(1.0, ge=0, le=1)
    """Leave out items that are more popular than this share of all items."""


class AskWhy(_Body):
    """Items whose scores are to be explained."""

    history: list[Id] = Field(max_length=LONGEST)
    items: list[Id] = Field(min_length=1, max_length=MOST_LISTED)
    most: int = Field(MOST, ge=0, le=20)
    """Reasons of an item."""


class Part(_Body):
    """An item of the history and what it adds to a score."""

    item: Id
    title: str | None = None
    part: float


class Item(_Body):
    """An item of a list."""

    item: Id
    title: str | None = None
    score: float | None = None
    popularity: float | None = None
    """Share of all items that fewer people have had; null where the model does not say."""
    because: list[Part] | None = None


class Items(_Body):
    """A list, the best first."""

    items: list[Item]


class About(_Body):
    """What the model is and can."""

    method: str
    title: str
    data: str
    items: int
    rounds: int
    ordered: bool
    """Whether the order of a history can matter."""
    explains: bool
    at_once: bool
    """Scores follow from a history; else private state is trained for every request."""
    known_users: bool
    popularity: bool
    crossed: Crossed
    version: str


class Health(_Body):
    """The service is there."""

    status: str = "ok"
    token: bool
    """Whether requests need a token."""


def service(
    model: Model,
    *,
    token: str | None = None,
    rate: float = 50.0,
    most_bytes: int = MOST_BYTES,
    at_once: int = 2,
) -> App:
    """The service as an ASGI application; ``rate`` requests a second of every address (0: any number).

    Models that train private state do so for ``at_once`` requests at a time.
    """
    torch.set_num_threads(1)  # requests are small; threads for one of them would only wait for each other
    model.prepare()
    meter, shown = Meter(), Shown(model)
    app = FastAPI(title="fedrec", version=installed_version("fedrec"), docs_url=None, redoc_url=None)
    limiter: list[CapacityLimiter] = []

    async def compute(work: Callable[[], Answer]) -> Answer:
        if model.newcomers.at_once:
            return work()
        if not limiter:
            limiter.append(CapacityLimiter(at_once))
        return await to_thread.run_sync(work, limiter=limiter[0])

    @app.exception_handler(FedrecError)
    async def mistake(_: Request, error: FedrecError) -> Response:
        return _refusal(str(error), 404 if isinstance(error, DataError) else 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        told = ("type", "loc", "msg")  # not what was sent, which may be long, or a NaN
        return _refusal([{name: one[name] for name in told} for one in error.errors()], 422)

    @app.get("/api/health")
    async def health() -> Health:
        """Whether the service is there."""
        return Health(token=token is not None)

    @app.get("/api/model")
    async def about() -> About:
        """What the model is and can."""
        return shown.about()

    @app.get("/api/items")
    async def search(
        q: Annotated[str, Query(max_length=200)] = "", limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 20
    ) -> Items:
        """Items whose title or id has this in it; without a text, those that most people have had."""
        return Items(items=shown.found(q, limit))

    @app.post("/api/recommend")
    async def recommend(ask: Ask) -> Items:
        """New items for somebody with this history, of which nothing is kept."""
        return await compute(partial(shown.recommended, ask))

    @app.post("/api/explain")
    async def why(ask: AskWhy) -> Items:
        """What a history has to do with the scores of items."""
        found = await compute(partial(model.explain_history, ask.history, *ask.items, most=ask.most))
        return Items(items=[shown.reasons(one) for one in found])

    @app.get("/api/items/{item}/similar")
    async def similar(
        item: Annotated[str, Path(max_length=200)], k: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 10
    ) -> Items:
        """Items that are like an item."""
        found = await compute(partial(model.similar, item, k))
        return Items(items=[shown.item(one, score) for one, score in found])

    @app.get("/api/users/{user}/recommendations")
    async def known(
        user: Annotated[str, Path(max_length=500)], k: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 10
    ) -> Items:
        """New items for a user whose client part the service was given."""
        found = await compute(partial(model.recommend, user, k))
        return Items(items=[shown.item(one, score) for one, score in found])

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counts and times of requests, for Prometheus."""
        return PlainTextResponse(meter.text())

    _pages(app)
    return Guard(app, token=token, rates=Rates(rate), most_bytes=most_bytes, meter=meter)


def _refusal(detail: Any, status: int) -> Response:
    """As JSON of ASCII, for what is refused may be text that no UTF-8 can hold."""
    return Response(json.dumps({"detail": detail}), status, media_type="application/json")


def _pages(app: FastAPI) -> None:
    """The page and the description of the interface; everything they need is here."""
    kinds = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
    names = {
        "/": "page.html",
        "/page.js": "page.js",
        "/page.css": "page.css",
        "/docs": "docs.html",
        "/docs.js": "docs.js",
    }
    for path, name in names.items():
        text = files("fedrec.serving").joinpath("page", name).read_text(encoding="utf-8")
        kind = f"{kinds[name.rsplit('.', 1)[-1]]}; charset=utf-8"

        app.get(path, include_in_schema=False)(_always(text, kind))


def _always(text: str, kind: str) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        return Response(text, media_type=kind)

    return page


class Shown:
    """Items of a model as the service tells of them."""

    def __init__(self, model: Model) -> None:
        """Work out once what every request needs."""
        self.model = model
        self.titles = [model.title(key) for key in model.ids]
        self.words = [f"{title or ''}\n{key}".casefold() for title, key in zip(self.titles, model.ids, strict=True)]
        self.shares: list[float] | None = None
        order = torch.arange(len(model.ids))
        if model.counts is not None:
            _, number, times = torch.unique(model.counts, return_inverse=True, return_counts=True)
            fewer = (times.cumsum(0) - times).double() / len(model.ids)
            self.shares = fewer[number].tolist()
            order = model.counts.argsort(descending=True, stable=True)
        self.order = order.tolist()

    def about(self) -> About:
        """What the model is."""
        info, method = self.model.info, self.model.method
        return About(
            method=info.method,
            title=info.title,
            data=info.data,
            items=info.items,
            rounds=info.rounds,
            ordered=info.ordered and method.config.uses_order,
            explains=method.explains,
            at_once=self.model.newcomers.at_once,
            known_users=self.model.clients is not None,
            popularity=self.shares is not None,
            crossed=info.crossed,
            version=installed_version("fedrec"),
        )

    def item(self, key: int | str, score: float | None = None) -> Item:
        """One item."""
        number = self.model.shelf.number(key)
        share = None if self.shares is None else self.shares[number]
        return Item.model_construct(item=key, title=self.titles[number], score=score, popularity=share, because=None)

    def found(self, text: str, limit: int) -> list[Item]:
        """Items with a text in their title or id, those that begin with it first, then by popularity."""
        wanted = text.strip().casefold()
        inside = [number for number in self.order if wanted in self.words[number]]
        inside.sort(key=lambda number: not self.words[number].startswith(wanted))
        return [self.item(self.model.ids[number]) for number in inside[:limit]]

    def recommended(self, ask: Ask) -> Items:
        """The answer to a history."""
        without: list[int | str] = list(ask.without)
        if self.shares is not None and ask.most_popular < 1:
            without += [key for key, share in zip(self.model.ids, self.shares, strict=True) if share > ask.most_popular]
        found = self.model.recommend(history=ask.history, k=ask.k, without=without)
        if ask.explain and ask.history and found and self.model.method.explains:
            reasons = self.model.explain_history(ask.history, *(key for key, _ in found))
            return Items.model_construct(items=[self.reasons(one) for one in reasons])
        return Items.model_construct(items=[self.item(key, score) for key, score in found])

    def reasons(self, found: Explanation) -> Item:
        """An item with what it is due to."""
        parts = [Part(item=r.item, title=self.model.title(r.item), part=r.part) for r in found.reasons]
        return self.item(found.item, found.score).model_copy(update={"because": parts})
