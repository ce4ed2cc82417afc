"""What a mode of HeteFedRec means: who trains which size, who shares with whom, and which parts are on."""

from __future__ import annotations

from dataclasses import dataclass

from fedrec.methods.hetefedrec.config import HeteFedRecConfig, Rule


@dataclass(frozen=True)
class Roles:
    """Read off the settings once."""

    trains: tuple[int, ...]
    """The index in ``sizes`` of what each group of clients really trains."""
    udl: bool
    ddr: bool
    reskd: bool
    alone: bool
    """Standalone: nothing is sent."""
    exclusive: bool
    """Only the last group uploads; the others train their user vectors."""
    padded: bool
    """Groups share one padded sum, or each has a federation of its own."""
    rule: Rule
    whole_table: tuple[bool, ...]
    """By size: clients train every row, because decorrelation moves all of them in local epochs."""
    lr_items: float
    lr_theta: float
    own_items: float
    own_theta: float
    """Steps of what only its own client moves: a standalone model, a merged table."""

    @property
    def trained(self) -> list[int]:
        """The sizes in use."""
        return sorted(set(self.trains))

    def frozen(self, group: int) -> bool:
        """Whether clients of this group only follow."""
        return self.exclusive and group < len(self.trains) - 1

    def rate(self, name: str) -> float:
        """Step on combined gradients (or in Adam) of tables or predictors."""
        return self.lr_theta if name.startswith("theta") else self.lr_items


def roles(config: HeteFedRecConfig) -> Roles:
    """The roles of a configuration."""
    c, full, last = config, config.mode == "hetefedrec", len(config.sizes) - 1
    one = {"all_small": 0, "all_medium": len(c.sizes) // 2, "all_large": last, "all_large_exclusive": last}
    ddr = full and c.ddr and c.alpha > 0
    trained = c.local == "epochs"  # changes, which the client takes as they are, and so does a server without Adam
    as_sent = trained and c.server_optimizer == "sgd"
    return Roles(
        trains=tuple(one.get(c.mode, group) for group in range(last + 1)),
        udl=full and c.udl,
        ddr=ddr,
        reskd=full and c.reskd,
        alone=c.mode == "standalone",
        exclusive=c.mode == "all_large_exclusive",
        padded=c.mode in ("hetefedrec", "direct"),
        rule=c.agg or ("sum" if c.local == "gradient" else "mean"),
        whole_table=tuple(ddr and size > 0 and c.local == "epochs" for size in range(last + 1)),
        lr_items=1.0 if as_sent else c.lr,
        lr_theta=1.0 if as_sent else c.lr_theta or c.lr,
        own_items=1.0 if trained else c.lr_own or c.lr,
        own_theta=1.0 if trained else c.lr_theta or c.lr,
    )
