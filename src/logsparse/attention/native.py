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

_native: Any = None
with contextlib.suppress(ImportError):  # installed without a compiler
    _native = importlib.import_module("logsparse._native")

_TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
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
) -> Tensor:
    """q, k (B, H, L, D), v (B, H, L, E) -> rows from `first_row` on, (B, H, R, E)."""
    out_BHRE: Tensor = _attend(q, k, v, list(distances), first_row, dropout, seed)[0]
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
) -> tuple[Tensor, Tensor]:
    out_BHRE, lse_BHR = _results(q, v, first_row)
    tensors = [_plain(x) for x in (q, k, v, out_BHRE)]
    _native.forward(tensors, _sizes(q, v, first_row), distances, lse_BHR.data_ptr(), _number(seed), dropout)
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
) -> tuple[Tensor, Tensor]:
    del k, distances, dropout, seed
    return _results(q, v, first_row)


@torch.library.custom_op("logsparse::attend_backward", mutates_args=(), device_types="cpu")
def _attend_backward(
    grad_BHRE: Tensor,
    saved: Sequence[Tensor],
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, lse_BHR = saved
    grads = (_like(q), _like(k), _like(v))
    tensors = [_plain(x) for x in (q, k, v, grad_BHRE, *grads)]
    _native.backward(tensors, _sizes(q, v, first_row), distances, lse_BHR.data_ptr(), _number(seed), dropout)
    return grads


@_attend_backward.register_fake
def _attend_backward_fake(
    grad_BHRE: Tensor,
    saved: Sequence[Tensor],
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    del grad_BHRE, distances, first_row, dropout, seed
    q, k, v, _ = saved
    return _like(q), _like(k), _like(v)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.distances, ctx.first_row, ctx.dropout, seed = inputs
    ctx.save_for_backward(q, k, v, output[1], seed)


def _gradients(ctx: Any, grad_BHRE: Tensor, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    *saved, seed = ctx.saved_tensors
    grads = _attend_backward(grad_BHRE, saved, ctx.distances, ctx.first_row, ctx.dropout, seed)
    return (*grads, None, None, None, None)


_attend.register_autograd(_gradients, setup_context=_remember)


def native_step(
    q: Tensor, history: tuple[Tensor, Tensor], steps: tuple[Tensor, Tensor], old: Sequence[int], new: Sequence[int]
) -> Tensor:
    """One position of every path, as `attention.step` lays out history and steps: (N, P, H, E). No gradient."""
    (history_k, history_v), (steps_k, steps_v) = history, steps
    series, paths, heads, width = q.shape
    _, _, cells, value_width = history_v.shape
    out_NPHE = q.new_empty(series, paths, heads, value_width)
    sizes = (
        _TYPES[q.dtype],
        series,
        paths,
        heads,
        width,
        value_width,
        cells,
        steps_k.shape[3],
        torch.get_num_threads(),
    )
    dense = [x.data_ptr() for x in (history_k, history_v, steps_k, steps_v, out_NPHE)]
    _native.step(_plain(q.transpose(1, 2)), dense, sizes, old, new)
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


def _number(seed: Tensor | None) -> int:
    return 0 if seed is None else int(seed)


def _sizes(q: Tensor, v: Tensor, first_row: int) -> tuple[int, ...]:
    return _TYPES[q.dtype], *q.shape, v.shape[3], first_row, torch.get_num_threads()
