"""Products and means about the common mean: what they are, and how far TF32 takes them from float32."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedrec.data import load
from fedrec.federation.trainer import Setup
from fedrec.methods import create
from fedrec.methods.fedem import method as fedem
from fedrec.methods.fedem import similarity as alike
from fedrec.parts import centred
from fedrec.parts.tables import mix
from fedrec.protocol import HONEST

CUT = 2.0**-10  # the most that a factor loses when all but 10 of its bits are cut off
ROUNDING = 1e-5  # what sums of float32 may add, relative to their terms


def draw(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def cut(x: Tensor) -> Tensor:
    """Factors as tensor cores may read them, without the last 13 bits: rounding would lose half as much."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def squared_distances(inner: Tensor) -> Tensor:
    norms = inner.diagonal()
    return norms[:, None] + norms - 2 * inner


@pytest.fixture(scope="module")
def mixed() -> tuple[Tensor, list[Tensor]]:
    """Weights and tables that FedEM's server meets in its third round on the demo data."""
    met = []

    def watch(weights: Tensor, tables: list[Tensor]) -> Tensor:
        met.append((weights, [table.clone() for table in tables]))
        return mix(weights, tables)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fedem, "mix", watch)
        trainer = create("fedem", variant="paper", agg="both").trainer(
            HONEST.split(load("demo"), seed=0).training, Setup()
        )
        for number in range(3):
            trainer.round(number)
    return met[-1]


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 64), (3, 65), (7, 1000), (500, 10)])
def test_columns_are_cut_into_parts_that_fit(rows, columns, monkeypatch):
    monkeypatch.setattr(centred, "HELD", 1000)
    parts = centred.column_parts(rows, columns)
    assert [i for part in parts for i in range(columns)[part]] == list(range(columns))
    widths = [len(range(columns)[part]) for part in parts]
    assert all(width % 64 == 0 for width in widths[:-1])
    assert max(widths) * rows <= max(1000, 64 * rows)


@pytest.mark.parametrize("held", [1, 1 << 26])  # many parts of columns, or one
@pytest.mark.parametrize("cuts", [[7], [1, 6], [2, 4, 1]])
def test_products_and_means_are_those_of_whole_tables(cuts, held, monkeypatch):
    monkeypatch.setattr(centred, "HELD", held)
    rows, tables, weights = 1 + draw(7, 130), 1 + draw(7, 15, 10), draw(5, 7)
    about = rows - rows.mean(0)
    torch.testing.assert_close(centred.centred_products(rows.split(cuts)), about @ about.T, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(centred.centred_mix(weights, tables.split(cuts)), mix(weights, tables.split(cuts)))


def test_only_tables_on_a_gpu_are_multiplied_on_tensor_cores():
    assert not centred.on_tensor_cores("tf32", [draw(2, 3)])
    assert not centred.on_tensor_cores("float32", [draw(2, 3)])


@pytest.mark.parametrize("products", ["tf32", "float32"])
def test_fedem_does_what_its_setting_says(products, monkeypatch):
    asked: list[str] = []
    for module in (fedem, alike):
        monkeypatch.setattr(module, "on_tensor_cores", lambda wanted, _: wanted == "tf32")
    for name in ("centred_mix", "centred_products"):
        real, module = getattr(centred, name), fedem if name == "centred_mix" else alike
        monkeypatch.setattr(module, name, lambda *args, _name=name, _real=real: (asked.append(_name), _real(*args))[1])
    trainer = create("fedem", variant="paper", agg="both", products=products, dim=4, epochs=1).trainer(
        HONEST.split(load("demo"), seed=0).training, Setup()
    )
    trainer.round(0)
    assert asked == (["centred_products", "centred_mix"] if products == "tf32" else [])


def check_distances(found: Tensor, tables: list[Tensor]) -> None:
    """A distance is off by at most 2**-10 of both tables' distances from the mean table, and by 0.1 % of itself here."""
    flat = torch.cat(tables).flatten(1).double()
    about = flat - flat.mean(0)
    length, exact = about.norm(dim=1), torch.cdist(about, about, compute_mode="donot_use_mm_for_euclid_dist")
    apart = found.cpu().double().clamp(min=0).sqrt()
    others = ~torch.eye(len(flat), dtype=torch.bool)
    off = (apart - exact).abs()[others]
    assert bool((off <= (CUT + ROUNDING) * (length[:, None] + length)[others]).all())
    assert float((off / exact[others]).max()) < 1e-3


def check_means(found: Tensor, weights: Tensor, tables: list[Tensor]) -> None:
    """A mean is off by at most 2**-9 of the others' weighted distances from the mean table, and by 1e-4 of these here."""
    every, weights = torch.cat(tables).double(), weights.double()
    about, others = every - every.mean(0), weights.clone().fill_diagonal_(0)
    exact, spread = torch.einsum("uv,vmd->umd", weights, every), torch.einsum("uv,vmd->umd", others, about.abs())
    off = (found.cpu().double() - exact).abs()
    assert bool((off <= 2 * CUT * spread + ROUNDING * torch.einsum("uv,vmd->umd", weights, every.abs())).all())
    assert float(off.norm() / about.norm()) < 1e-4


def test_cut_factors_hardly_move_distances_and_means(mixed, monkeypatch):
    monkeypatch.setattr(centred, "add_product", lambda out, left, right: out.addmm_(cut(left), cut(right)))
    weights, tables = mixed
    check_distances(squared_distances(centred.centred_products([table.flatten(1) for table in tables])), tables)
    check_means(centred.centred_mix(weights, tables), weights, tables)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_tensor_cores_hardly_move_distances_and_means(mixed):
    weights, tables = mixed
    there = [table.cuda() for table in tables]
    check_distances(squared_distances(centred.centred_products([table.flatten(1) for table in there])), tables)
    check_means(centred.centred_mix(weights.cuda(), there), weights, tables)
