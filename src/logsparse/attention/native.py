"""q, k, v, distances -> attention over the pattern's cells by the C++ kernel, an operator with gradients.

The operator takes tensors of any strides and never copies one; it is registered with `torch.library`, with
fake tensors and a gradient, so that `torch.compile` sees one opaque node. Nothing of size L x M is kept
between the passes: only q, k, v and one log-sum-exp a row.
"""

# B batch, H heads, L length, R rows asked for (L - first_row), D channels of q and k, E channels of v,
# N series, P paths

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Sequence
from typing import Any

import torch  # before _native: torch's OpenMP runtime must be the one both use
from torch import Tensor

from logsparse.attention.inputs import check_attention, check_cells, check_starts
from logsparse.errors import DataError

_native: Any = None
with contextlib.suppress(ImportError):  # installed without a compiler
    _native = importlib.import_module("logsparse._native")

TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
_log = logging.getLogger(__name__)
_told: list[str] = []


def available() -> bool:
    """Whether the extension was built; the first time it was not, one log line says what serves instead."""
    if _native is None and not _told:
        _told.append("missing")
        _log.warning("The C++ attention kernel was not built; plain torch serves instead (slower, same results).")
    return _native is not None


def native(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> Tensor:
    """q, k (B, H, L, D), v (B, H, L, E) -> rows from `first_row` on, (B, H, R, E)."""
    out_BHRE: Tensor = _attend(q, k, v, list(distances), first_row, dropout, seed, starts_B)[0]
    return out_BHRE


@torch.library.custom_op("logsparse::attend", mutates_args=(), device_types="cpu")
def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> tuple[Tensor, Tensor]:
    _check(q, k, v, distances, first_row, dropout, starts_B)
    _check_seed(seed)
    out_BHRE, lse_BHR = _results(q, v, first_row)
    tensors = [_plain(x) for x in (q, k, v, out_BHRE)]
    where = lse_BHR.data_ptr(), _address(starts_B)
    _native.forward(tensors, _sizes(q, v, first_row), distances, *where, _number(seed), dropout)
    return out_BHRE, lse_BHR


@_attend.register_fake
def _attend_fake(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> tuple[Tensor, Tensor]:
    del k, distances, dropout, seed, starts_B
    return _results(q, v, first_row)


@torch.library.custom_op("logsparse::attend_backward", mutates_args=(), device_types="cpu")
def _attend_backward(
    grad_BHRE: Tensor,
    saved: Sequence[Tensor],
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, lse_BHR = saved
    _check(q, k, v, distances, first_row, dropout, starts_B)
    _check_seed(seed)
    out_BHRE, like_BHR = _results(q, v, first_row)
    for name, given, wanted in (("grad", grad_BHRE, out_BHRE), ("lse", lse_BHR, like_BHR)):
        if given.shape != wanted.shape or given.dtype != wanted.dtype or not (name == "grad" or given.is_contiguous()):
            raise DataError(
                f"{name} must be {tuple(wanted.shape)} {wanted.dtype}, as the forward pass gave it.",
                got=f"{tuple(given.shape)} {given.dtype}",
                hint="let autograd call this operator.",
            )
    grads = (_like(q), _like(k), _like(v))
    tensors = [_plain(x) for x in (q, k, v, grad_BHRE, *grads)]
    where = lse_BHR.data_ptr(), _address(starts_B)
    _native.backward(tensors, _sizes(q, v, first_row), distances, *where, _number(seed), dropout)
    return grads


@_attend_backward.register_fake
def _attend_backward_fake(
    grad_BHRE: Tensor,
    saved: Sequence[Tensor],
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    del grad_BHRE, distances, first_row, dropout, seed, starts_B
    q, k, v, _ = saved
    return _like(q), _like(k), _like(v)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.distances, ctx.first_row, ctx.dropout, seed, starts_B = inputs
    ctx.save_for_backward(q, k, v, output[1], seed, starts_B)


def _gradients(ctx: Any, grad_BHRE: Tensor, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    *saved, seed, starts_B = ctx.saved_tensors
    grads = _attend_backward(grad_BHRE, saved, ctx.distances, ctx.first_row, ctx.dropout, seed, starts_B)
    return (*grads, None, None, None, None, None)


_attend.register_autograd(_gradients, setup_context=_remember)


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    starts_B: Tensor | None,
) -> None:
    """The operator is public (`torch.ops.logsparse.attend`) and reads plain memory: nothing wrong may reach it."""
    check_attention(q, k, v)
    check_starts(starts_B, q)
    check_cells(distances, first_row, dropout, q.shape[2])
    if starts_B is not None and (not starts_B.is_contiguous() or int(starts_B.min()) < 0):
        raise DataError(
            "starts must be contiguous, and no start below 0.", got=f"{starts_B.tolist()[:8]}", hint="count from 0."
        )


def _check_seed(seed: Tensor | None) -> None:
    if seed is not None and (seed.shape != () or seed.dtype != torch.int64 or int(seed) < 0):
        raise DataError(
            "seed must be one whole number of at least 0, as an int64 tensor.",
            got=f"{tuple(seed.shape)} {seed.dtype}" if seed.shape != () else f"{seed.item()} {seed.dtype}",
            hint="torch.tensor(0).",
        )


def native_step(
    q: Tensor,
    history: tuple[Tensor, Tensor],
    steps: tuple[Tensor, Tensor],
    cells: tuple[Sequence[int], Sequence[int]],
    starts_N: Tensor | None,
) -> Tensor:
    """One position of every path, as `attention.step` lays out history and steps: (N, P, H, E). No gradient.

    `cells`: those of the history, and those of the steps.
    """
    (history_k, history_v), (steps_k, steps_v) = history, steps
    series, paths, heads, width = q.shape
    _, _, length, value_width = history_v.shape
    out_NPHE = q.new_empty(series, paths, heads, value_width)
    sizes = (
        TYPES[q.dtype],
        series,
        paths,
        heads,
        width,
        value_width,
        length,
        steps_k.shape[3],
        torch.get_num_threads(),
    )
    dense = [x.data_ptr() for x in (history_k, history_v, steps_k, steps_v, out_NPHE)]
    _native.step(_plain(q.transpose(1, 2)), [*dense, _address(starts_N)], sizes, *cells)
    return out_NPHE


def _results(q: Tensor, v: Tensor, first_row: int) -> tuple[Tensor, Tensor]:
    rows = q.shape[2] - first_row
    lse_BHR = q.new_empty((*q.shape[:2], rows), dtype=torch.promote_types(q.dtype, torch.float32))
    return _empty(q, (rows, v.shape[3])), lse_BHR


def _like(x: Tensor) -> Tensor:
    return _empty(x, (x.shape[2], x.shape[3]))


def _empty(x: Tensor, shape: tuple[int, int]) -> Tensor:
    """(B, H, *shape), channel-first in memory where x is."""
    if x.stride(2) == 1:
        return x.new_empty((*x.shape[:2], shape[1], shape[0])).mT
    return x.new_empty((*x.shape[:2], *shape))


def _plain(x: Tensor) -> tuple[int, ...]:
    return x.data_ptr(), *x.stride()


def _address(starts_B: Tensor | None) -> int:
    return 0 if starts_B is None else starts_B.data_ptr()


def _number(seed: Tensor | None) -> int:
    return 0 if seed is None else int(seed)


def _sizes(q: Tensor, v: Tensor, first_row: int) -> tuple[int, ...]:
    return TYPES[q.dtype], *q.shape, v.shape[3], first_row, torch.get_num_threads()
