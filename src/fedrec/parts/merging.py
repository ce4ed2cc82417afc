"""Merging: how a client combines the item table it downloads with the one it has.

Chen, Zhang, Zhang, Luo, Li, "Breaking the Aggregation Bottleneck in Federated Recommendation: A Personalized
Model Merging Approach", AAAI 2026. ``merged = local + rho * (server - local)``, where rho is 1 (replace), one
constant (static), one number per client (dynamic), one number per row (elastic) or 0 (none).

Dynamic and elastic weights come from a client's adapter, a small perceptron that reads a row as
``concat(local, server - local)``; the paper puts the halves the other way round, which only permutes the
columns of the first layer's weights. Adapters are kept as one flat tensor ``theta`` [c, P]: for every layer
its weights (a row per output), then its biases. Float32 work goes to ``fedrec.local.cpu.adapter`` on a CPU and, for
the usual two hidden layers, to ``fedrec.local.gpu.adapter`` on a GPU, which compute the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor

from fedrec.compute import dispatch as gpu_dispatch
from fedrec.errors import ConfigError, unknown
from fedrec.local.cpu import adapter as kernels
from fedrec.local.fit import Batch, Loss, Params, Step, fit, lookup
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

Mode = Literal["replace", "static", "dynamic", "elastic", "none"]
Pool = Literal["items", "row"]

CHUNK_ROWS = 1 << 20  # rows whose units are held at once: some 400 MB for the usual widths


def adapter_widths(dim: int, hidden: Sequence[int] = (16, 8)) -> tuple[int, ...]:
    """Layer widths of the adapter for item tables of ``dim`` columns."""
    return (2 * dim, *hidden, 1)


def check_widths(widths: Sequence[int], dim: int) -> None:
    """Refuse layer widths that do not fit tables of ``dim`` columns."""
    if len(widths) < 2 or min(widths) < 1 or widths[0] != 2 * dim or widths[-1] != 1:
        raise ConfigError(
            f"adapter widths {list(widths)} do not fit tables of dimension {dim}; "
            f"start at {2 * dim}, end in 1 and use positive widths, like {list(adapter_widths(dim))}."
        )


def check_merge(mode: str, rho: float | None = None) -> None:
    """Refuse an unknown mode, and a static weight outside 0..1."""
    if mode not in get_args(Mode):
        raise ConfigError(unknown("merge mode", mode, get_args(Mode)))
    if mode == "static" and (rho is None or not 0 <= rho <= 1):
        raise ConfigError(f"static merging got the weight rho = {rho}; set it between 0 and 1.")


def adapter_size(widths: Sequence[int]) -> int:
    """Number of parameters of one adapter."""
    return sum(n_out * (n_in + 1) for n_in, n_out in pairwise(widths))


def init_adapters(widths: Sequence[int], keys: Tensor) -> Tensor:
    """Draw one adapter per key of ``streams.keys``, uniform in +-1/sqrt(fan in): [len(keys), P].

    For one draw that all clients share pass one key and repeat the result.
    """
    index = torch.arange(adapter_size(widths), device=keys.device)
    fan_in = torch.cat([torch.full((n_out * (n_in + 1),), n_in) for n_in, n_out in pairwise(widths)])
    bound = fan_in.to(keys.device).double().rsqrt()
    return ((2 * streams.uniform(keys[:, None], index) - 1) * bound).float()


def layers(theta: Tensor, widths: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Views of theta, layer by layer: weights [c, out, in] and biases [c, out]."""
    at = 0
    for n_in, n_out in pairwise(widths):
        middle, end = at + n_in * n_out, at + n_out * (n_in + 1)
        yield theta[:, at:middle].reshape(len(theta), n_out, n_in), theta[:, middle:end]
        at = end


def adapter(theta: Tensor, widths: Sequence[int], local: Tensor, server: Tensor) -> Tensor:
    """Weights rho [c, R] of rows ``local`` [c, R, d] against ``server`` (so, or [R, d]), differentiable."""
    units = torch.cat([local, server - local], dim=2)
    for depth, (weight, bias) in enumerate(layers(theta, widths)):
        units = torch.baddbmm(bias[:, None], units.relu() if depth else units, weight.mT)
    return units.squeeze(2).sigmoid()


def row_weights(theta: Tensor, widths: Sequence[int], local: Tensor, server: Tensor) -> Tensor:
    """``adapter`` for whole tables: no gradients, and bounded memory for what lies between its layers."""
    if _compiled(theta, local, server):
        return kernels.adapter_weights(theta, widths, local, server)
    if gpu_dispatch.usable(theta, local, server):
        from fedrec.local.gpu import adapter as gpu_adapter

        if gpu_adapter.fits(widths):
            return gpu_adapter.adapter_weights(theta, widths, local, server)
    clients, rows = max(1, CHUNK_ROWS // max(1, local.shape[1])), CHUNK_ROWS
    rho = local.new_empty(local.shape[:2])
    with torch.no_grad():
        for c in range(0, local.shape[0], clients):
            for r in range(0, local.shape[1], rows):
                here = (slice(c, c + clients), slice(r, r + rows))
                theirs = server[here] if server.dim() == 3 else server[here[1]]
                rho[here] = adapter(theta[here[0]], widths, local[here], theirs)
    return rho


def pool_rows(pool: Pool, local: Tensor, server: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [c, N, d] over which dynamic merging averages the adapter: all items, or the mean row alone."""
    if pool not in get_args(Pool):
        raise ConfigError(unknown("adapter pool", pool, get_args(Pool)))
    server = server.expand_as(local)
    return (local, server) if pool == "items" else (local.mean(1, keepdim=True), server.mean(1, keepdim=True))


def merge(
    mode: Mode,
    local: Tensor,
    server: Tensor,
    *,
    theta: Tensor | None = None,
    widths: Sequence[int] | None = None,
    rho: float | None = None,
    pool: Pool = "items",
    out: Tensor | None = None,
) -> Tensor:
    """Merge ``local`` [c, m, d] with ``server`` [c, m, d] or [m, d]; ``out`` may be ``local`` itself.

    ``static`` needs the weight ``rho``; ``dynamic`` and ``elastic`` need adapters ``theta`` of ``widths``.
    """
    check_merge(mode, rho)
    out = torch.empty_like(local) if out is None else out
    if mode == "none":
        return out.copy_(local)
    if mode == "replace":
        return out.copy_(server)
    if mode == "static":
        return torch.lerp(local, server.expand_as(local), rho or 0.0, out=out)
    if theta is None:
        raise ConfigError(f"{mode} merging needs the clients' adapters; pass theta.")
    widths = adapter_widths(local.shape[2]) if widths is None else widths
    check_widths(widths, local.shape[2])
    if mode == "dynamic":
        weights = row_weights(theta, widths, *pool_rows(pool, local, server)).mean(1, keepdim=True)
    else:
        weights = row_weights(theta, widths, local, server)
    return torch.lerp(local, server.expand_as(local), weights[:, :, None], out=out)


def adapter_loss(widths: Sequence[int]) -> Loss:
    """Loss for ``fit`` through merged rows, of the parameters adapter, user, local and server.

    With pool_local and pool_server too, a client's rows share one weight: the adapter's mean over the pool.
    """

    def loss(params: Params, batch: Batch) -> Tensor:
        local, server = lookup(params["local"], batch.slots), lookup(params["server"], batch.slots)
        rows = merged_rows(params, widths, local, server)
        return batch.bce((rows @ params["user"].unsqueeze(2)).squeeze(2))

    return loss


def merged_rows(params: Params, widths: Sequence[int], local: Tensor, server: Tensor) -> Tensor:
    """Rows [c, R, d] merged with the parameters adapter and, for dynamic merging, pool_local and pool_server."""
    if "pool_local" in params:
        rho = adapter(params["adapter"], widths, params["pool_local"], params["pool_server"]).mean(1, keepdim=True)
    else:
        rho = adapter(params["adapter"], widths, local, server)
    return local + rho[:, :, None] * (server - local)


def plain_loss(params: Params, batch: Batch) -> Tensor:
    """Loss for ``fit`` of the local rows as they are, of the parameters user and local."""
    rows = lookup(params["local"], batch.slots)
    return batch.bce((rows @ params["user"].unsqueeze(2)).squeeze(2))


def fit_adapter(
    theta: Tensor,
    user: Tensor,
    local: Tensor,
    server: Tensor,
    samples: Samples,
    *,
    widths: Sequence[int],
    epochs: int,
    batch_size: int,
    lr: float,
    early_stop_tol: float = 0.0,
    pool: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Train the adapters alone, in place, through merged touched rows [c, R, d]: Eq. 11 of the paper.

    ``pool`` (see ``pool_rows``) is for dynamic merging. Returns each client's mean loss of its last epoch.
    """
    check_widths(widths, user.shape[1])
    if _compiled(theta, user, local, server, *(pool or ())):
        return kernels.train_adapter(
            theta, user, local, server, samples,
            widths=widths, epochs=epochs, batch_size=batch_size,
            adapter_lr=lr, early_stop_tol=early_stop_tol, pool=pool,
        )  # fmt: skip
    if pool is None and gpu_dispatch.usable(theta, user, local, server):
        from fedrec.local.gpu import adapter as gpu_adapter

        if gpu_adapter.fits(widths):
            return gpu_adapter.train_adapter(
                theta, user, local, server, samples,
                widths=widths, epochs=epochs, batch_size=batch_size, adapter_lr=lr, early_stop_tol=early_stop_tol,
            )  # fmt: skip
    params = {"adapter": theta, "user": user, "local": local, "server": server}
    if pool is not None:
        params |= {"pool_local": pool[0], "pool_server": pool[1]}
    return fit(
        params, adapter_loss(widths), samples,
        epochs=epochs, batch_size=batch_size,
        steps=[Step(("adapter",), lr)], early_stop_tol=early_stop_tol,
    )  # fmt: skip


def fit_interleaved(
    theta: Tensor,
    user: Tensor,
    local: Tensor,
    server: Tensor,
    samples: Samples,
    *,
    widths: Sequence[int],
    epochs: int,
    batch_size: int,
    lr: float,
    adapter_lr: float,
    early_stop_tol: float = 0.0,
) -> Tensor:
    """Train in place as the authors' code does: each batch a step on the adapter, then on user and rows.

    Both steps look through the merged rows, so local rows also feel what the adapter makes of them.
    """
    check_widths(widths, user.shape[1])
    if _compiled(theta, user, local, server):
        return kernels.train_adapter(
            theta, user, local, server, samples,
            widths=widths, epochs=epochs, batch_size=batch_size,
            adapter_lr=adapter_lr, lr=lr, early_stop_tol=early_stop_tol,
        )  # fmt: skip
    if gpu_dispatch.usable(theta, user, local, server):
        from fedrec.local.gpu import adapter as gpu_adapter

        if gpu_adapter.fits(widths):
            return gpu_adapter.train_adapter(
                theta, user, local, server, samples,
                widths=widths, epochs=epochs, batch_size=batch_size,
                adapter_lr=adapter_lr, lr=lr, early_stop_tol=early_stop_tol,
            )  # fmt: skip
    return fit(
        {"adapter": theta, "user": user, "local": local, "server": server}, adapter_loss(widths), samples,
        epochs=epochs, batch_size=batch_size,
        steps=[Step(("adapter",), adapter_lr), Step(("user", "local"), lr)], early_stop_tol=early_stop_tol,
    )  # fmt: skip


def _compiled(*tensors: Tensor) -> bool:
    return all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)
