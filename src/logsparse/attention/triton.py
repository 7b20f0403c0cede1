"""q, k, v, distances -> attention over the pattern's cells on a GPU by Triton kernels, an operator with gradients.

Tensors of any strides in float32, float16 or bfloat16, sums in float32. Nothing of size L x M is kept between the
passes: q, k, v, the result and one log-sum-exp per row. Triton itself is imported at the first launch. On a CPU the
operator runs in Triton's interpreter only (TRITON_INTERPRET=1), which is how the tests run it.
"""

# B batch, H heads, L length, R rows asked for (L - first_row), D channels of q and k, E channels of v

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from logsparse.attention.plain import check_attention, check_cells, check_starts, empty
from logsparse.errors import ConfigError, DataError

_INSTALLED = importlib.util.find_spec("triton") is not None
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_OLDEST = (8, 0)


class Launch(NamedTuple):
    """Launch settings of the kernels."""

    tile: int
    """Positions per program: a power of two, 16 to 32."""
    warps: int
    crowded: int
    """Least number of distances within one tile that share a matrix product; fewer are computed one by one."""


# Keys: bytes per number, then the most channels per head that the entry serves. Tiles and warps are chosen so that
# kernels do not spill registers on sm_80 and sm_90; `crowded` by counting operations (docs/LOG.md): tensor cores make a
# product cheap for the short types, while float32 pays for every pair. Their speed is not measured yet.
_NEVER = 33
_Launches = dict[int, dict[int, Launch]]
_LONG = {32: Launch(16, 4, 12), 64: Launch(16, 8, 12), 128: Launch(16, 8, _NEVER)}
_FORWARD: _Launches = {4: _LONG, 2: {64: Launch(32, 4, 6), 128: Launch(16, 8, 4)}}
_BACKWARD: _Launches = {4: _LONG, 2: {32: Launch(16, 2, 4), 64: Launch(16, 4, 4), 128: Launch(16, 8, 4)}}
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
WIDEST = 128
"""Most channels per head that the kernels serve."""

# Beyond every length.
_END = 2**31 - 1


def available(device: torch.device) -> bool:
    """Return True if the kernels run on this device: a GPU that triton supports, or a CPU under its interpreter."""
    if device.type == "cuda" and _INSTALLED:
        properties = torch.cuda.get_device_properties(device)
        return (properties.major, properties.minor) >= _OLDEST
    return device.type == "cpu" and _INSTALLED and _INTERPRETED


def unserved(q: Tensor, v: Tensor) -> str | None:
    """Return why the kernels cannot take these tensors; None if they can."""
    if not _INSTALLED:
        return "an install without triton"
    if not available(q.device):
        return f"{q.device}, which triton does not serve"
    if q.dtype not in _DTYPES:
        return str(q.dtype)
    widest = max(q.shape[-1], v.shape[-1])
    return None if widest <= WIDEST else f"{widest} channels per head"


def triton_attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> Tensor:
    """Compute the rows from `first_row` on: q, k (B, H, L, D), v (B, H, L, E) -> (B, H, R, E)."""
    out_BHRE: Tensor = torch.ops.logsparse.attend_triton(q, k, v, list(distances), first_row, dropout, seed, starts_B)[
        0
    ]
    return out_BHRE


def plan(distances: Sequence[int], launch: Launch) -> tuple[list[int], list[int]]:
    """Return the distances as the kernels read them: a list of (offset, here, before) per tile, and the single ones.

    A crowded stretch of distances, from c * tile on, becomes the bits of a word. Queries meet it in two tiles of
    keys: c * tile positions before them, where the word counts from there on, and one tile further back.
    """
    tile = launch.tile
    words: dict[int, int] = {}
    for s in distances:
        words[s // tile] = words.get(s // tile, 0) | 1 << s % tile
    words = {c: word for c, word in words.items() if word.bit_count() >= launch.crowded}
    tiles = [
        number
        for c in sorted(words.keys() | {c + 1 for c in words})
        for number in (c * tile, _signed(words.get(c, 0)), _signed(words.get(c - 1, 0)))
    ]
    return tiles, [s for s in distances if s // tile not in words]


def _signed(word: int) -> int:
    """Return the same 32 bits as a signed number."""
    return word - 2**32 if word >= 2**31 else word


@lru_cache(maxsize=256)
def _planned(distances: tuple[int, ...], launch: Launch, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
    """Return the plan on the device, cached: a copy per call would cost more than a short kernel.

    An empty list is None: the kernel is then compiled without that loop.
    """
    tiles, singles = (
        torch.tensor([*numbers, _END], dtype=torch.int32, device=device) if numbers else None
        for numbers in plan(distances, launch)
    )
    return tiles, singles


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
    out_BHRE, lse_BHR = _results(q, v, first_row)
    launch = _launch(_FORWARD, q, v)
    cells = (*_planned(tuple(distances), launch, q.device), starts_B, _checked_seed(seed, q.device))
    run = _Run(q, v, first_row, dropout, launch)
    run("forward", q.shape[2] - first_row, (q, k, v, out_BHRE), (lse_BHR, *cells))
    return out_BHRE, lse_BHR


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


def _attend_backward(
    grad_BHRE: Tensor,
    saved: Sequence[Tensor],
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, out_BHRE, lse_BHR = saved
    _check(q, k, v, distances, first_row, dropout, starts_B)
    like_BHRE, like_BHR = _results(q, v, first_row)
    _check_same("grad", grad_BHRE, like_BHRE)
    _check_same("out", out_BHRE, like_BHRE)
    _check_same("lse", lse_BHR, like_BHR)
    grad_q, grad_k, grad_v = (empty(x, x.shape[2], x.shape[3]) for x in (q, k, v))
    delta_BHR = torch.empty_like(like_BHR)
    launch = _launch(_BACKWARD, q, v)
    cells = (*_planned(tuple(distances), launch, q.device), starts_B, _checked_seed(seed, q.device))
    run = _Run(q, v, first_row, dropout, launch)
    rest = (lse_BHR.contiguous(), delta_BHR, *cells)
    run("backward_rows", q.shape[2], (q, k, v, out_BHRE, grad_BHRE, grad_q), rest)
    run("backward_keys", q.shape[2], (q, k, v, grad_BHRE, grad_k, grad_v), rest)
    return grad_q, grad_k, grad_v


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
    grad_q, grad_k, grad_v = (empty(x, x.shape[2], x.shape[3]) for x in saved[:3])
    return grad_q, grad_k, grad_v


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.distances, ctx.first_row, ctx.dropout, seed, starts_B = inputs
    ctx.save_for_backward(q, k, v, *output, seed, starts_B)


def _gradients(ctx: Any, grad_BHRE: Tensor, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    *saved, seed, starts_B = ctx.saved_tensors
    grads = torch.ops.logsparse.attend_triton_backward(
        grad_BHRE, saved, ctx.distances, ctx.first_row, ctx.dropout, seed, starts_B
    )
    return (*grads, None, None, None, None, None)


def _no_gradients(_ctx: Any, *_grads: Tensor) -> NoReturn:
    raise ConfigError(
        "The Triton kernels compute first derivatives only.",
        got="a second derivative",
        hint="use backend='shifted' for it.",
    )


# Not torch.library.custom_op: its first call imports torch._dynamo and sympy.
_library: Any = torch.library.Library("logsparse", "FRAGMENT")  # type: ignore[no-untyped-call]
_REST = "SymInt[] distances, SymInt first_row, float dropout, Tensor? seed, Tensor? starts"
_library.define(
    f"attend_triton(Tensor q, Tensor k, Tensor v, {_REST}) -> (Tensor, Tensor)", tags=torch.Tag.pt2_compliant_tag
)
_library.define(
    f"attend_triton_backward(Tensor grad, Tensor[] saved, {_REST}) -> (Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
for _key in ("CPU", "CUDA"):
    _library.impl("attend_triton", _attend, _key)
    _library.impl("attend_triton_backward", _attend_backward, _key)
torch.library.register_fake("logsparse::attend_triton", _attend_fake, lib=_library)
torch.library.register_fake("logsparse::attend_triton_backward", _attend_backward_fake, lib=_library)
torch.library.register_autograd("logsparse::attend_triton", _gradients, setup_context=_remember, lib=_library)
torch.library.register_autograd("logsparse::attend_triton_backward", _no_gradients, lib=_library)


class _Run:
    """Launcher of the kernels for one call."""

    def __init__(self, q: Tensor, v: Tensor, first_row: int, dropout: float, launch: Launch) -> None:
        batch, heads, length, width = q.shape
        self.device, self.launch, self.heads = q.device, launch, batch * heads
        self.widths = width, v.shape[3]
        # The rule of `attention.plain`.
        self.sizes = heads, length, first_row, int(dropout * 2**24 + 0.5)
        self.rates = math.log2(math.e) / math.sqrt(width), 1 / (1 - dropout)

    def __call__(self, name: str, rows: int, strided: tuple[Tensor, ...], rest: tuple[Tensor | None, ...]) -> None:
        kernels = importlib.import_module("logsparse.attention.triton_kernels")
        programs = self.heads * -(-rows // self.launch.tile)
        strided = tuple(_compact(x) for x in strided)
        strides = tuple(x.stride() for x in strided)
        with torch.cuda.device(self.device if self.device.type == "cuda" else -1):
            getattr(kernels, name)[(programs,)](
                (*strided, *rest),
                strides,
                self.sizes,
                self.rates,
                *self.widths,
                self.launch.tile,
                num_warps=self.launch.warps,
                enable_fp_fusion=True,
            )


def _launch(table: _Launches, q: Tensor, v: Tensor) -> Launch:
    widest = max(q.shape[3], v.shape[3])
    return next(launch for width, launch in table[q.element_size()].items() if widest <= width)


def _compact(x: Tensor) -> Tensor:
    """Return x, copied if one of its tiles spans more memory than 32-bit offsets address."""
    return x if 32 * x.stride(2) + WIDEST * x.stride(3) < 2**31 else x.contiguous()


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    starts_B: Tensor | None,
) -> None:
    """Validate everything: the operator is public and reads raw memory. Nothing here waits for the device."""
    check_attention(q, k, v)
    check_starts(starts_B, q)
    check_cells(distances, dropout, q.shape[2], first_row=(first_row, q.shape[2] - 1))
    check_served(q, v)
    if starts_B is not None and not starts_B.is_contiguous():
        raise DataError(
            "starts must be contiguous.", got=f"a stride of {starts_B.stride()}", hint="starts.contiguous()."
        )


def check_served(q: Tensor, v: Tensor) -> None:
    """Raise ConfigError if the kernels cannot take these tensors."""
    if reason := unserved(q, v):
        raise ConfigError(
            f"Backend triton serves float32, float16 and bfloat16 of at most {WIDEST} channels on a GPU.",
            got=reason,
            hint="use backend='auto'; pip install logsparse[gpu] installs triton.",
        )


def _checked_seed(seed: Tensor | None, device: torch.device) -> Tensor | None:
    """Return the seed on the device, where the kernels read it without a synchronization."""
    if seed is None:
        return None
    if seed.shape != () or seed.dtype != torch.int64:
        raise DataError(
            "seed must be one whole number, as an int64 tensor.",
            got=f"{tuple(seed.shape)} {seed.dtype}",
            hint="torch.tensor(0).",
        )
    return seed.to(device, non_blocking=True)


def _check_same(name: str, given: Tensor, wanted: Tensor) -> None:
    if given.shape != wanted.shape or given.dtype != wanted.dtype or given.device != wanted.device:
        raise DataError(
            f"{name} must be {tuple(wanted.shape)} {wanted.dtype} on {wanted.device}, as returned by the forward pass.",
            got=f"{tuple(given.shape)} {given.dtype} on {given.device}",
            hint="let autograd call this operator.",
        )


def _results(q: Tensor, v: Tensor, first_row: int) -> tuple[Tensor, Tensor]:
    rows = q.shape[2] - first_row
    return empty(q, rows, v.shape[3]), q.new_empty((*q.shape[:2], rows), dtype=torch.float32)
