"""What FedEM loses when its server's products read factors cut to 10 bits, as a GPU's tensor cores may: emulated on a CPU.

Errors against float64 in the last round, and validation results of three runs that differ in these products alone. See
docs/methods/fedem.md.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor

import fedrec
from fedrec.data import load
from fedrec.evaluation import Evaluator
from fedrec.federation.trainer import Setup
from fedrec.methods import create
from fedrec.methods.fedem import method, similarity
from fedrec.parts import centred
from fedrec.parts.tables import mix


def cut(x: Tensor) -> Tensor:
    """Without the last 13 of 23 bits."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def add_cut(out: Tensor, left: Tensor, right: Tensor) -> None:
    """Add the product of cut factors."""
    out.addmm_(cut(left), cut(right))


def errors(weights: Tensor, tables: list[Tensor]) -> str:
    """How far distances and means are off."""
    every = torch.cat(tables).double()
    about = (every - every.mean(0)).flatten(1)
    true = torch.cdist(about, about, compute_mode="donot_use_mm_for_euclid_dist")
    inner = centred.centred_products([table.flatten(1) for table in tables]).double()
    norms = inner.diagonal()
    found = (norms[:, None] + norms - 2 * inner).clamp(min=0).sqrt()
    others = ~torch.eye(len(every), dtype=torch.bool)
    off = ((found - true).abs() / true)[others]
    apart = (centred.centred_mix(weights, tables).double() - torch.einsum("uv,vmd->umd", weights.double(), every)).abs()
    return (
        f"distances off by {off.mean():.1e} of themselves, at most {off.max():.1e}; means by {apart.norm() / about.norm():.1e} of "
        f"what tables deviate from their mean, at most {apart.max():.1e} (entries: standard deviation {every.std():.2g})"
    )


def run(data: Any, rounds: int, every: int, products: str) -> None:
    """Train with these products and say how it goes."""
    split, last = fedrec.HONEST.split(data, seed=0), []
    trainer = create("fedem", variant="paper").trainer(split.training, Setup())
    evaluator = Evaluator(split, "cpu", logits=trainer.logits)

    def watched(weights: Tensor, tables: list[Tensor]) -> Tensor:
        last[:] = [weights, tables]
        return (mix if products == "float32" else centred.centred_mix)(weights, tables)

    centred.add_product = add_cut if products == "cut" else lambda out, left, right: out.addmm_(left, right)
    similarity.on_tensor_cores = lambda *_: products != "float32"
    method.mix, method.on_tensor_cores = watched, lambda *_: False
    for number in range(rounds):
        trainer.round(number)
        if (number + 1) % every == 0 or number == rounds - 1:
            means = evaluator.evaluate(trainer.scores, "validation", order=trainer.client_order)["validation"].means()
            values = [
                f"{kind} {name} {value:.4f}" for kind in means for name, value in means[kind].items() if "@10" in name
            ]
            print(f"{products:8} round {number + 1:3}: {', '.join(values)}", flush=True)
    centred.add_product = add_cut
    print(f"{products:8} round {rounds:3}: cut products would have {errors(*last)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="demo")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--every", type=int, default=4, help="rounds between evaluations")
    given = parser.parse_args()
    for kind in ("float32", "centred", "cut"):
        run(load(given.data), given.rounds, given.every, kind)
