"""Nothing held out: all rows of all users are for training, because what is trained is to be used and was judged before."""

from __future__ import annotations

from fedrec.protocol.protocol import Protocol

WHOLE = Protocol(name="whole", min_interactions=1, holdout="nothing", candidates=0, metrics=())
"""Every user counts, whoever has one item."""
