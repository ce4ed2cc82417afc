"""A list for a user at the user's site, from what the site has on its disk: nothing is sent anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedrec.data.interactions import Interactions
from fedrec.deploy.folders import site_settings
from fedrec.deploy.message import Message
from fedrec.deploy.parts import Download
from fedrec.deploy.service import interactions_of
from fedrec.deploy.site_run import SiteRun
from fedrec.deploy.site_store import SiteStore
from fedrec.deploy.union import ItemNames
from fedrec.errors import DataError, FedrecError
from fedrec.evaluation.ranking import top_items
from fedrec.federation.payload import Payload

Key = str | int


def recommend(folder: Path, user: str, k: int, run: str | None = None) -> list[tuple[Key, float]]:
    """The ``k`` best new items for a user of this site, with the newest finished run, or the one named.

    Somebody who came after that run is served from their history, by methods that need nothing else of a user.
    """
    settings = site_settings(folder)
    store = SiteStore(folder, run or _newest(folder))
    message = Message.decode(store.download())
    found = SiteRun(store, settings.smallest_group)
    found.go_to(message.integer("number"))
    download, data = Download.unpack(message, found.task.n_clients), found.split.data
    by_text = {str(key): code for key, code in data.user_index.items()}
    hashed = bool(store.setup()[0].get("hashed"))
    own = ItemNames(folder).back(interactions_of(folder).item_ids) if hashed else {}
    names: list[Key | None] = [own.get(str(one)) for one in data.item_ids] if hashed else list(data.item_ids)
    if user in by_text:
        seen = torch.from_numpy(found.split.touched[by_text[user]].astype("int64"))
        scores = found.clients.scores(torch.tensor([by_text[user] + found.first]), download)
    else:
        absent = f"user '{user}' does not take part in run {store.run} at this site"
        if settings.data is None:
            raise DataError(f"{absent}; give the id of one who does.")
        seen = _history(interactions_of(folder), user, {str(name): at for at, name in enumerate(names)}, absent)
        if not found.method.folds_in:
            raise DataError(
                f"user '{user}' came after run {store.run}, and {found.method.name} learns something of every user; they take "
                "part in the next run."
            )
        scores = found.clients.scores_from(seen[None], _Common(download, found.own[:1]))
    nameless = torch.tensor([at for at, name in enumerate(names) if name is None], dtype=torch.int64)
    seen = torch.cat([seen, nameless])  # items that only other sites have
    items = top_items(scores, (torch.zeros_like(seen), seen), k)[0]
    return [(name, float(scores[0, i])) for i in items[items >= 0].tolist() if (name := names[i]) is not None]


class _Common:
    """What somebody downloads who was not there: what a client of the site does."""

    def __init__(self, download: Download, client: Tensor) -> None:
        self._download, self._client = download, client

    def kinds(self, clients: Tensor) -> Tensor | None:
        """All are alike."""
        return None

    def payload(self, clients: Tensor) -> Payload:
        """The same for everybody."""
        one = self._download.payload(self._client)
        return {
            name: part.expand(len(clients), *part.shape[1:]) if isinstance(part, Tensor) else part
            for name, part in one.items()
        }


def _history(data: Interactions, user: str, places: Mapping[str, int], absent: str) -> Tensor:
    """The catalogue's numbers of what a user has, oldest first."""
    codes = [code for key, code in data.user_index.items() if str(key) == user]
    rows = np.flatnonzero(np.isin(data.users, codes))
    if not len(rows):
        raise DataError(f"{absent}, nor is in its data; give the id of one who is.")
    if data.timestamps is not None:
        rows = rows[np.argsort(data.timestamps[rows], kind="stable")]
    found = [places.get(str(data.item_ids[code])) for code in data.items[rows]]
    known = list(dict.fromkeys(place for place in found if place is not None))
    if not known:
        raise DataError(f"{absent}, and has none of the run's items.")
    return torch.tensor(known)


def _newest(folder: Path) -> str:
    found = sorted((folder / "runs").glob("*/download"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise FedrecError(f"no run has ended at the site in {folder}, so there is nothing to recommend with.")
    return found[-1].parent.name
