"""A protocol: every evaluation choice, and the split it makes. A result without its protocol means nothing."""

from __future__ import annotations

from pydantic import ValidationError

from fedrec.data.interactions import Interactions
from fedrec.errors import ConfigError, unknown
from fedrec.protocol.choices import Choices
from fedrec.protocol.split import Progress, Split, make_split


class Protocol(Choices):
    """How data is filtered, split, sampled, ranked and selected. The defaults are the honest protocol."""

    def with_options(self, **options: object) -> Protocol:
        """A copy with some choices changed; it is renamed because results are no longer those of the preset."""
        values = self.model_dump() | {"name": f"{self.name}*"} | options
        for key in options:
            if key not in type(self).model_fields or key == "name":
                raise ConfigError(unknown("protocol option", key, type(self).model_fields))
        try:
            return Protocol(**values)
        except ValidationError as error:
            first = error.errors()[0]
            option = f" option {'.'.join(map(str, first['loc']))}" if first["loc"] else ""
            hint = ', written as a list, such as ["hr@10"]' if first["type"] == "tuple_type" else ""
            raise ConfigError(f"protocol{option}: {first['msg'].removeprefix('Value error, ')}{hint}.") from None

    def split(self, interactions: Interactions, seed: int = 0, progress: Progress | None = None) -> Split:
        """Filter and split ``interactions``; the same input and seed give the same split everywhere.

        ``progress(what, done, total)`` is called now and then: ten million rows take a while.
        """
        return make_split(interactions, self, seed, progress)
