"""What a site keeps on its own disk about a run: whole and checked, or not there. It never leaves the site.

``runs/RUN/`` holds the site's split, what the run is (``setup``), the private state of its users after some rounds
(``state``), and in the end what they download (``download``).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedrec.deploy.message import BadMessageError
from fedrec.errors import FedrecError
from fedrec.protocol.packed import NoSplitError, pack_split, unpack_split
from fedrec.protocol.protocol import Protocol
from fedrec.protocol.split import Split
from fedrec.running import checkpoint
from fedrec.running.checkpoint import Checkpoint
from fedrec.running.files import FORMAT, read_object, read_tensors, write_json, write_tensors, writing

State = dict[str, Tensor]


class SiteStore:
    """The folder of one run at a site."""

    def __init__(self, site: Path, run: str) -> None:
        """``run`` is the server's name for it, which becomes the name of a folder."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", run):
            raise BadMessageError("its run has a name that cannot be that of a folder")
        self.run, self.folder = run, site / "runs" / run
        self._states = self.folder / "state"

    @property
    def known(self) -> bool:
        """Whether the site takes part in this run."""
        return (self.folder / "split.json").exists()

    def save_split(self, split: Split) -> None:
        """Keep the split of the site's users."""
        write_tensors(self.folder / "split.safetensors", {k: torch.tensor(v) for k, v in pack_split(split).items()})
        about = {"protocol": split.protocol.model_dump(mode="json"), "seed": split.seed, "name": split.data.name}
        ids = {"users": split.data.user_ids, "items": split.data.item_ids, "hash": split.hash}
        write_json(self.folder / "split.json", {"format": FORMAT} | about | ids)

    def split(self) -> Split:
        """The split of the site's users."""
        about = read_object(self.folder / "split.json")
        arrays = {name: value.numpy() for name, value in read_tensors(self.folder / "split.safetensors").items()}
        ids = tuple(about["users"]), tuple(about["items"])
        protocol = Protocol(**about["protocol"])
        try:
            return unpack_split(arrays, *ids, protocol, seed=about["seed"], name=about["name"], digest=about["hash"])
        except NoSplitError as error:
            raise FedrecError(f"the site's split of run {self.run} is damaged ({error}); start a new run.") from None

    def save_setup(self, setup: dict[str, Any], counts: Tensor) -> None:
        """Keep what the run is, and how many training items every client of the federation has."""
        write_tensors(self.folder / "counts.safetensors", {"counts": counts})
        write_json(self.folder / "setup.json", {"format": FORMAT} | setup)

    def setup(self) -> tuple[dict[str, Any], Tensor]:
        """What the run is, and all counts."""
        if not (self.folder / "setup.json").exists():
            raise BadMessageError(f"run {self.run} has not been started at this site")
        return read_object(self.folder / "setup.json"), read_tensors(self.folder / "counts.safetensors")["counts"]

    def save_state(self, number: int, state: State, keep: Collection[int]) -> None:
        """Keep private state after ``number`` rounds, the one before it, and those to ``keep``; later ones are void."""
        for path in self._states.iterdir() if self._states.is_dir() else ():
            if path.name.isdecimal() and int(path.name) > number:
                shutil.rmtree(path)
        checkpoint.save(self._states, number, Checkpoint({"state": state}, {"run": self.run}), keep)

    def state(self, at_most: int) -> tuple[int, State] | None:
        """The newest whole state of no more than ``at_most`` rounds, and of how many."""
        found = checkpoint.newest(self._states, at_most)
        return None if found is None else (int(found.name), checkpoint.load(found).tensors["state"])

    def save_download(self, data: bytes) -> None:
        """Keep the last message of a run: what the site's users download, and after how many rounds."""
        with writing(self.folder / "download") as part:
            part.write_bytes(data)

    def download(self) -> bytes:
        """The last message of a finished run."""
        path = self.folder / "download"
        if not path.exists():
            raise FedrecError(f"run {self.run} has not ended, so there is no model to recommend with; wait for it.")
        return path.read_bytes()
