"""A site's sums that leave it masked only: its part in the steps of a secure sum."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedrec.deploy.message import BadMessageError, Message, bytes_tensor
from fedrec.secure.participant import Participant
from fedrec.secure.terms import Terms

FEWEST = 2
"""Sites that a site lets itself be summed with at least, itself included."""


class Hidden:
    """A site's sum that leaves it masked only."""

    def __init__(self, number: int, total: Mapping[str, Tensor], among: int) -> None:
        """Of a round; ``among`` is the fewest sites it lets itself be summed with."""
        self.number, self.total, self.among = number, dict(total), among
        self._party: Participant | None = None

    def answer(self, message: Message) -> bytes:
        """The next step."""
        data = bytes(message.tensor("data", torch.uint8, None).numpy())
        if "terms" not in message.tensors:
            if self._party is None:
                raise BadMessageError("no terms of a secure sum have come")
            return self._party.answer(data)
        terms = Terms.decode(bytes(message.tensor("terms", torch.uint8, None).numpy()))
        if terms.round != self.number:
            raise BadMessageError(f"the terms are of round {terms.round}, not {self.number}")
        self._party = Participant(terms, message.integer("party"), self.total, among=self.among)
        return self._party.keys()


def as_message(run: str, number: int, data: bytes) -> Message:
    """A site's step."""
    return Message("masked", {"run": run, "number": number}, {"data": bytes_tensor(data)})
