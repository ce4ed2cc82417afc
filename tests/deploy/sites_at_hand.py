"""Sites in this process with a third of the embedded data each, and the simulation of all their users."""

from __future__ import annotations

import numpy as np

import fedrec
from fedrec.data.filters import take
from fedrec.deploy.plan import Plan
from fedrec.deploy.pooled import pooled
from fedrec.deploy.run import run
from fedrec.deploy.site import Site
from fedrec.deploy.site_data import site_data
from fedrec.deploy.transport import Local
from fedrec.methods import create
from fedrec.running.options import RunOptions

PROTOCOL = fedrec.HONEST.with_options(candidates=20)
NAMES = ("east", "north", "west")


def thirds(data):
    """The rows of every third user, three times."""
    return [take(data, np.flatnonzero(data.users % 3 == k)) for k in range(3)]


def sites_of(data, folder, **options):
    """A site per third of the users."""
    found = {}
    for name, part in zip(NAMES, thirds(data), strict=True):
        (folder / name).mkdir(parents=True, exist_ok=True)
        found[name] = Site(folder / name, lambda part=part: part, **options)
    return found


def plan_of(data, name="run", **changes):
    return Plan(name, data.item_ids, PROTOCOL, **({"wait": 0, "deadline": 30} | changes))


def train(data, folder, method, options, *, sites=None, transport=None, rounds=3, tell=None, plan=None, **more):
    """Run a federation of three sites in this process."""
    transport = transport or Local(sites or sites_of(data, folder / "sites"))
    chosen = RunOptions(rounds=rounds, out=folder / "run", **({"checkpoint_every": 1} | more))
    return run(
        create(method, options), plan or plan_of(data), transport, list(NAMES), chosen, name="demo", tell=tell or print
    )


def simulated(data, method, options, rounds=3, **more):
    """The simulation of the same users."""
    splits = [site_data(part, data.item_ids, PROTOCOL, 0).split for part in thirds(data)]
    return fedrec.train(create(method, options), pooled(splits), rounds=rounds, progress=False, **more)
