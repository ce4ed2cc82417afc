"""Walks references, to prove that one object cannot be reached from another."""

import gc

import numpy as np


def reachable(root):
    """Every object that can be reached from ``root`` through references, modules and classes left out."""
    seen, queue = {}, [root]
    while queue:
        thing = queue.pop()
        if id(thing) in seen or isinstance(thing, type) or type(thing).__name__ in ("module", "function"):
            continue
        seen[id(thing)] = thing
        queue.extend(gc.get_referents(thing))
        if isinstance(thing, np.ndarray) and thing.base is not None:
            queue.append(thing.base)
    return list(seen.values())
