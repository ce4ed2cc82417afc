"""What goes wrong in a round of secure aggregation, in one sentence."""

from __future__ import annotations

from fedrec.errors import FedrecError


class MessageError(FedrecError):
    """A message that is refused; the state of who refuses it is as before."""


class RoundError(FedrecError):
    """A round that is given up."""
