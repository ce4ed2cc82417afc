"""Every metric against an independent library, which knows no ties: these are checked in test_metrics by brute force."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from fedrec.evaluation.metrics import compute
from fedrec.evaluation.ranking import full_ranks

USERS, ITEMS = 30, 25
THEIRS = {"hr": "hit_rate", "ndcg": "ndcg", "recall": "recall", "precision": "precision", "mrr": "mrr"}
CUTS = [1, 3, 5, 10]


@pytest.fixture(scope="module")
def ranking():
    """Scores without ties, and between one and twelve targets per user."""
    rng = np.random.default_rng(0)
    scores = rng.permuted(np.tile(np.arange(ITEMS, dtype=np.float64), (USERS, 1)), axis=1)
    targets = [rng.choice(ITEMS, size, replace=False) for size in rng.integers(1, 13, USERS)]
    padded = torch.full((USERS, 12), -1)
    for user, items in enumerate(targets):
        padded[user, : len(items)] = torch.from_numpy(items)
    return scores, targets, full_ranks(torch.from_numpy(scores), padded)


ASK = """
import json, sys, ranx
judged, run, names = json.load(sys.stdin)
found = ranx.evaluate(ranx.Qrels(judged), ranx.Run(run), names, return_mean=False, threads=1)
json.dump({name: values.tolist() for name, values in found.items()}, sys.stdout)
"""


@pytest.fixture(scope="module")
def theirs(ranking):
    """Values per user by ranx, for every metric."""
    if find_spec("ranx") is None:
        pytest.skip("ranx, the library to compare with, is not installed")
    scores, targets, _ = ranking
    judged = {f"u{u:02}": {f"i{i}": 1 for i in items} for u, items in enumerate(targets)}
    run = {f"u{u:02}": {f"i{i}": float(row[i]) for i in range(ITEMS)} for u, row in enumerate(scores)}
    names = [f"{kind}@{k}" for kind in (*THEIRS.values(), "map") for k in CUTS]
    # Compiling ranx takes a minute, so it runs interpreted, which numba decides once for a process.
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        input=json.dumps([judged, run, names]),
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("k", CUTS)
@pytest.mark.parametrize("kind", THEIRS)
def test_a_metric_agrees_with_ranx(ranking, theirs, kind, k):
    ours = compute([f"{kind}@{k}"], *ranking[2])[f"{kind}@{k}"]
    np.testing.assert_allclose(ours.numpy(), theirs[f"{THEIRS[kind]}@{k}"], atol=1e-12)


@pytest.mark.parametrize("k", CUTS)
def test_average_precision_agrees_with_ranx_up_to_its_other_divisor(ranking, theirs, k):
    # ranx divides by all targets, we by the most that fit into the list, so that a perfect list is worth 1.
    _, targets, ranks = ranking
    sizes = np.array([len(items) for items in targets])
    ours = compute([f"map@{k}"], *ranks)[f"map@{k}"].numpy()
    np.testing.assert_allclose(ours * np.minimum(sizes, k) / sizes, theirs[f"map@{k}"], atol=1e-12)
