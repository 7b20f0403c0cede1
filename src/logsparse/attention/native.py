"""q, k, v, distances -> attention over the pattern's cells by the C++ kernel, an operator with gradients.

The operator takes tensors of any strides without copying them. It is registered with `torch.library`, with a fake
implementation and a gradient, so that `torch.compile` sees one opaque node. Nothing of size L x M is kept between the
passes: only q, k, v, the result and one log-sum-exp per row. The kernel computes dense first rows too. It has first
derivatives; second ones go through plain torch.
"""

# B batch, H heads, L length, D channels of q and k, E channels of v, N series, P paths

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch  # before _native: torch's OpenMP runtime must be the one both use
from torch import Tensor
from torch.autograd import forward_ad

from logsparse.attention.plain import check_attention, check_cells, check_starts, empty, shifted, without_padding
from logsparse.errors import DataError

_native: Any = None
with contextlib.suppress(ImportError):  # installed without a compiler
    _native = importlib.import_module("logsparse._native")

TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
_log = logging.getLogger(__name__)
_reported: list[str] = []

# Not torch.library.custom_op: its first call imports the whole compiler, 2.5 seconds of a core (docs/LOG.md).
_library = torch.library.Library("logsparse", "FRAGMENT")  # type: ignore[no-untyped-call]


def define(
    schema: str,
    on_cpu: Callable[..., Any],
    fake: Callable[..., Any],
    gradient: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
) -> None:
    """Register `torch.ops.logsparse.<name>`; `gradient`: the backward function and the one that saves its inputs."""
    name = schema.partition("(")[0]
    _library.define(schema)  # type: ignore[no-untyped-call]
    _library.impl(name, on_cpu, "CPU")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"logsparse::{name}", fake, lib=_library)
    if gradient is not None:
        backward, remember = gradient
        torch.library.register_autograd(f"logsparse::{name}", backward, setup_context=remember, lib=_library)


def available() -> bool:
    """Return True if the extension was built; log once if it was not."""
    if _native is None and not _reported:
        _reported.append("missing")
        _log.warning("The C++ attention kernel was not built; plain torch serves instead (slower, same results).")
    return _native is not None


def extension() -> Any:
    """Return the extension; call only if it is `available`."""
    return _native


def room(count: int) -> int:
    """Return `count` rounded up to `sums_align` of native/problem.h, the size of a row of summed gradients."""
    return -(-count // 32) * 32


def serves(*tensors: Tensor) -> bool:
    """Return True if the operators of the layers take these tensors: all float32 or all float64, on a CPU.

    Autocast, forward-mode differentiation and torch.func.grad are left to plain torch.
    """
    first = tensors[0]
    same = all(x.dtype == first.dtype and x.device.type == "cpu" for x in tensors)
    wide = first.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
    return same and wide and not has_tangent(*tensors) and not inside_grad() and available()


def has_tangent(*tensors: Tensor) -> bool:
    """Return True under forward-mode differentiation, which the kernel does not support."""
    inside: int = forward_ad._current_level  # noqa: SLF001 - there is no public accessor
    return inside >= 0 and any(forward_ad.unpack_dual(x).tangent is not None for x in tensors)  # type: ignore[no-untyped-call]


def inside_grad() -> bool:
    """Return True inside torch.func.grad and its kin, which do not support gradients registered by an operator."""
    # There is no public accessor.
    if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():  # noqa: SLF001
        return False
    functorch: Any = torch._C._functorch  # noqa: SLF001
    return any(level.key() == functorch.TransformType.Grad for level in functorch.get_interpreter_stack())


def differentiable_gradients(
    function: Callable[..., Any], inputs: Sequence[Tensor | None], grads: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of a function of plain torch with a graph of their own, for second derivatives."""
    # One tensor given twice would receive the sum of both gradients twice; its views do not.
    own = [x if x is None else x.view_as(x) for x in inputs]
    wanted = [x for x in own if x is not None and x.requires_grad]
    found = iter(torch.autograd.grad(function(*own), wanted, grads, create_graph=True, allow_unused=True))
    return tuple(next(found) if x is not None and x.requires_grad else None for x in own)


def check_shapes(**parts: tuple[Tensor | None, tuple[int, ...]]) -> None:
    """Raise DataError if a public operator would read outside its memory: name=(tensor, the shape it must have)."""
    (first, _), *_ = parts.values()
    for name, (x, shape) in parts.items():
        if x is None:
            continue
        if tuple(x.shape) != shape or 0 in shape or first is None or x.dtype != first.dtype or x.device.type != "cpu":
            raise DataError(
                f"{name} must be {shape}, as the other shapes say, none empty, all of one type on a CPU.",
                got=f"{tuple(x.shape)} {x.dtype} on {x.device}",
                hint="call the layer, which passes them.",
            )
    if first is None or first.dtype not in (torch.float32, torch.float64):
        kind = "none" if first is None else str(first.dtype)
        raise DataError("The operator takes float32 or float64.", got=kind, hint="call the layer, which chooses.")


def native(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    dense_rows: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> Tensor:
    """Compute attention by the kernel: q, k (B, H, L, D), v (B, H, L, E) -> (B, H, L, E)."""
    out_BHLE: Tensor = torch.ops.logsparse.attend(q, k, v, distances, dense_rows, dropout, seed, starts_B)[0]
    return out_BHLE


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    dense_rows: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> tuple[Tensor, Tensor]:
    _check(q, k, v, distances, dense_rows, dropout, starts_B)
    _check_seed(seed)
    out_BHLE, lse_BHL = _results(q, v)
    tensors = [_plain(x) for x in (q, k, v, out_BHLE)]
    where = lse_BHL.data_ptr(), _address(starts_B)
    _native.forward(tensors, _sizes(q, v, dense_rows), distances, *where, _number(seed), dropout)
    return out_BHLE, lse_BHL


def _attend_fake(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    del k
    return _results(q, v)


def _attend_backward(
    grad_BHLE: Tensor,
    saved: Sequence[Tensor],
    distances: Sequence[int],
    dense_rows: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, out_BHLE, lse_BHL = saved
    _check(q, k, v, distances, dense_rows, dropout, starts_B)
    _check_seed(seed)
    like_BHLE, like_BHL = _results(q, v)
    parts = (("grad", grad_BHLE, like_BHLE), ("out", out_BHLE, like_BHLE), ("lse", lse_BHL, like_BHL))
    for name, given, wanted in parts:
        if given.shape != wanted.shape or given.dtype != wanted.dtype or not (name != "lse" or given.is_contiguous()):
            raise DataError(
                f"{name} must be {tuple(wanted.shape)} {wanted.dtype}, as returned by the forward pass.",
                got=f"{tuple(given.shape)} {given.dtype}",
                hint="let autograd call this operator.",
            )
    grads = (_like(q), _like(k), _like(v))
    tensors = [_plain(x) for x in (q, k, v, out_BHLE, grad_BHLE, *grads)]
    where = lse_BHL.data_ptr(), _address(starts_B)
    _native.backward(tensors, _sizes(q, v, dense_rows), distances, *where, _number(seed), dropout)
    return grads


def _attend_backward_fake(grad_BHLE: Tensor, saved: Sequence[Tensor], *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    del grad_BHLE
    q, k, v = saved[:3]
    return _like(q), _like(k), _like(v)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.distances, ctx.dense_rows, ctx.dropout, seed, starts_B = inputs
    ctx.save_for_backward(q, k, v, *output, seed, starts_B)


def _gradients(ctx: Any, grad_BHLE: Tensor, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    *saved, seed, starts_B = ctx.saved_tensors
    settings = ctx.distances, ctx.dense_rows, ctx.dropout, seed, starts_B
    if torch.is_grad_enabled():  # create_graph=True

        def plainly(*qkv: Tensor) -> Tensor:
            return shifted(*(without_padding(x, starts_B) for x in qkv), *settings)

        return (*differentiable_gradients(plainly, saved[:3], [grad_BHLE]), None, None, None, None, None)
    return (*torch.ops.logsparse.attend_backward(grad_BHLE, saved, *settings), None, None, None, None, None)


_SETTINGS = "int[] distances, int dense_rows, float dropout, Tensor? seed, Tensor? starts"
define(
    f"attend(Tensor q, Tensor k, Tensor v, {_SETTINGS}) -> (Tensor, Tensor)",
    _attend,
    _attend_fake,
    (_gradients, _remember),
)
define(
    f"attend_backward(Tensor grad, Tensor[] saved, {_SETTINGS}) -> (Tensor, Tensor, Tensor)",
    _attend_backward,
    _attend_backward_fake,
)


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    dense_rows: int,
    dropout: float,
    starts_B: Tensor | None,
) -> None:
    """Validate everything: the operator is public (`torch.ops.logsparse.attend`) and reads raw memory."""
    check_attention(q, k, v)
    check_starts(starts_B, q)
    length = q.shape[2]
    check_cells(distances, dropout, length, dense_rows=(dense_rows, length))
    check_starts_memory(starts_B)


def check_starts_memory(starts_B: Tensor | None) -> None:
    """Raise DataError unless the kernel can read and cut at these starts."""
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
    """Compute one position of every path, (N, P, H, E), without gradient.

    History and steps are laid out by `StepCache`; `cells`: those of the history and those of the steps.
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


def _results(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    lse_BHL = q.new_empty(q.shape[:3], dtype=torch.promote_types(q.dtype, torch.float32))
    return empty(q, q.shape[2], v.shape[3]), lse_BHL


def _like(x: Tensor) -> Tensor:
    return empty(x, x.shape[2], x.shape[3])


def _plain(x: Tensor) -> tuple[int, ...]:
    return x.data_ptr(), *x.stride()


def _address(starts_B: Tensor | None) -> int:
    return 0 if starts_B is None else starts_B.data_ptr()


def _number(seed: Tensor | None) -> int:
    return 0 if seed is None else int(seed)


def _sizes(q: Tensor, v: Tensor, dense_rows: int) -> tuple[int, ...]:
    return TYPES[q.dtype], *q.shape, v.shape[3], dense_rows, torch.get_num_threads()
