"""Which methods can run behind secure aggregation."""

from __future__ import annotations

from fedrec.errors import ConfigError
from fedrec.federation.arrows import Arrows
from fedrec.federation.method import SumMethod


def require_sums(method: Arrows) -> SumMethod:
    """The method, if its server reads sums only; one sentence otherwise."""
    if isinstance(method, SumMethod):
        return method
    raise ConfigError(
        f"{method.name} cannot run behind secure aggregation: its server reads every client's upload by itself, and a secure "
        "sum tells nothing but the sum. `fedrec methods` lists the methods whose server sees sums only."
    )
