"""A site: many users' data and private state on its own disk, and answers to a server that sees neither."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from pydantic import ValidationError

from fedrec.data.interactions import Interactions
from fedrec.deploy.message import BadMessageError, Message, plain
from fedrec.deploy.site_data import digest, site_data
from fedrec.deploy.site_run import SiteRun
from fedrec.deploy.site_store import SiteStore
from fedrec.deploy.union import ItemNames, as_tensor
from fedrec.errors import FedrecError
from fedrec.protocol.protocol import Protocol
from fedrec.version import installed_version

log = logging.getLogger("fedrec.site")

SMALLEST_GROUP = 10
"""Groups of fewer users are not told of, unless a site says otherwise."""


class Site:
    """Answers the server's messages; whatever goes wrong is told in one sentence, and details stay here."""

    def __init__(
        self,
        folder: Path,
        read: Callable[[], Interactions],
        *,
        smallest: int = SMALLEST_GROUP,
        sums_only: bool = False,
        secure_only: bool = False,
    ) -> None:
        """``read`` gives the site's interactions, once per run; for the rest see ``SiteRun``."""
        self.folder, self.read = folder, read
        self._opened = partial(SiteRun, smallest=smallest, sums_only=sums_only, secure_only=secure_only)
        self._open: SiteRun | None = None

    def answer(self, data: bytes) -> bytes:
        """The reply to a message."""
        try:
            reply = self._answer(Message.decode(data))
        except FedrecError as error:
            log.error("refused: %s", error)
            reply = Message("refused", {"reason": str(error)})
        except Exception:
            log.exception("a message could not be answered")
            reply = Message("refused", {"reason": "it met an error of its own; its log says which"})
        return reply.encode()

    def _answer(self, message: Message) -> Message:
        store = SiteStore(self.folder, message.text("run"))
        if message.kind == "items":
            hashes = as_tensor(map(ItemNames(self.folder), self.read().item_ids))
            return Message("items", {"run": store.run}, {"hashes": hashes})
        if message.kind == "join":
            return self._join(message, store)
        if message.kind == "start":
            return self._start(message, store)
        run = self._run(store)
        if message.kind == "train":
            return run.train(message)
        if message.kind == "evaluate":
            return run.evaluate(message)
        if message.kind == "masked":
            return run.masked(message)
        if message.kind == "finish":
            return run.finish(message)
        raise BadMessageError(f"there is no answer to a message of kind '{message.kind}'")

    def _run(self, store: SiteStore) -> SiteRun:
        if self._open is None or self._open.store.folder != store.folder:
            self._open = self._opened(store)
        return self._open

    def _join(self, message: Message, store: SiteStore) -> Message:
        """Split the site's data as the run wants it, and say how many training items each user has."""
        catalogue = tuple(plain(message.tensor("catalogue", torch.uint8, None)))
        try:
            protocol = Protocol(**message.fields["protocol"])
        except (ValidationError, KeyError, TypeError):
            raise BadMessageError("its protocol cannot be read; run the same version of fedrec everywhere") from None
        name_of = ItemNames(self.folder) if message.fields.get("hashed") is True else str
        found = site_data(self.read(), catalogue, protocol, message.integer("seed"), name_of)
        split = found.split
        store.save_split(split)
        self._open = None
        if found.items_left_out:
            log.warning(
                "run %s: %d items of the data are not in the server's catalogue; their %d rows are left out",
                store.run, found.items_left_out, found.rows_left_out,
            )  # fmt: skip
        if found.users_left_out:
            log.warning("run %s: %d users have too few rows to take part", store.run, found.users_left_out)
        about = {"rows_left_out": found.rows_left_out, "items_left_out": found.items_left_out}
        fields = {"run": store.run, "split_hash": split.hash, "catalogue": digest(catalogue), **about}
        counts = torch.from_numpy(split.training.positives.counts)
        return Message("joined", fields | {"version": installed_version("fedrec")}, {"counts": counts})

    def _start(self, message: Message, store: SiteStore) -> Message:
        """Learn what the run is, and which numbers the site's users have in it."""
        if not store.known:
            raise BadMessageError(f"this site has not joined run {store.run}")
        counts = message.tensor("counts", torch.int64, None)
        setup = {"method": message.text("method"), "config": message.fields.get("config", {})}
        setup |= {"seed": message.integer("seed"), "first": message.integer("first")}
        setup["privacy"] = message.fields.get("privacy")
        setup["hashed"] = message.fields.get("hashed") is True
        setup["noise_among"] = max(1, message.integer("noise_among"))
        store.save_setup(setup, counts)
        self._open = None
        run = self._run(store)
        if setup["privacy"] is not None:
            run.begin()
        log.info("run %s: %s with %d users", store.run, setup["method"], run.split.data.n_users)
        return Message("started", {"run": store.run, "private_bytes": run.clients.private_bytes})
