"""q, k, v, distances -> attention over the pattern's cells on a GPU by Triton kernels, an operator with gradients.

Tensors of any strides in float32, float16 or bfloat16, sums in float32. Nothing of size L x M is kept between the
passes: q, k, v, the result and one log-sum-exp per row. Triton itself is imported at the first launch. On a CPU the
operator runs in Triton's interpreter only (TRITON_INTERPRET=1), which is how the tests run it.
"""

# B batch, H heads, L length, R rows asked for (L - first_row), D channels of q and k, E channels of v

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from logsparse.attention.inputs import check_attention, check_cells, check_starts
from logsparse.errors import ConfigError, DataError

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Types that the kernels serve."""

_INSTALLED = importlib.util.find_spec("triton") is not None
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_OLDEST = (8, 0)
_log = logging.getLogger(__name__)
_told: list[str] = []


class Launch(NamedTuple):
    """How the kernels are started: positions per tile, and warps per program."""

    tile: int
    warps: int


# By the widest channels they serve. Chosen so that no kernel spills registers on sm_80 and sm_90 (docs/LOG.md); not by
# speed, which nobody has measured yet.
_FORWARD = {32: Launch(64, 4), 64: Launch(64, 4), 128: Launch(32, 4), 256: Launch(16, 4)}
_BACKWARD = {32: Launch(64, 4), 64: Launch(32, 4), 128: Launch(32, 8), 256: Launch(16, 8)}
WIDEST = 256
"""Channels per head that the kernels serve at most."""

# So many distances in a stretch of one tile go through a matrix product together; fewer go one by one.
_CROWDED = 6
# Beyond every length.
_END = 2**62


def available(device: torch.device) -> bool:
    """Whether the kernels run there: on a GPU that triton knows, or on a CPU in its interpreter."""
    if device.type == "cuda" and _INSTALLED:
        found = torch.cuda.get_device_properties(device)
        return (found.major, found.minor) >= _OLDEST
    return device.type == "cpu" and _INSTALLED and _INTERPRETED


def unserved(q: Tensor, v: Tensor) -> str | None:
    """Why the kernels cannot take these tensors; None if they can."""
    if not _INSTALLED:
        return "an install without triton"
    if not available(q.device):
        return f"{q.device}, which triton does not serve"
    if q.dtype not in DTYPES:
        return str(q.dtype)
    widest = max(q.shape[-1], v.shape[-1])
    return None if widest <= WIDEST else f"{widest} channels per head"


def serves(q: Tensor, v: Tensor) -> bool:
    """Whether the kernels take these tensors; the first time on a GPU, one log line says what serves."""
    reason = unserved(q, v)
    # Under torch.compile a log line would break the graph.
    if q.device.type == "cuda" and not torch.compiler.is_compiling() and str(reason) not in _told:
        _told.append(str(reason))
        if reason is None:
            _log.info("Triton kernels serve attention on %s.", q.device)
        else:
            _log.warning("Plain torch serves attention on %s (slower, same results): %s.", q.device, reason)
    return reason is None


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
    """q, k (B, H, L, D), v (B, H, L, E) -> rows from `first_row` on, (B, H, R, E)."""
    out_BHRE: Tensor = torch.ops.logsparse.attend_triton(
        q, k, v, list(distances), first_row, dropout, seed, starts_B
    )[0]
    return out_BHRE


@lru_cache(maxsize=1024)
def plan(distances: tuple[int, ...], tile: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Distances as the kernels read them: (offset, here, before) per tile in one row, and the single ones.

    A crowded stretch of distances, from c * tile on, becomes the bits of a word. Queries meet it in two tiles of
    keys: c * tile positions before them, where the word counts from there on, and one tile further back.
    """
    stretches: dict[int, list[int]] = {}
    for s in distances:
        stretches.setdefault(s // tile, []).append(s)
    crowded = {c: sum(1 << s % tile for s in found) for c, found in stretches.items() if len(found) >= _CROWDED}
    places = sorted(crowded.keys() | {c + 1 for c in crowded})
    tiles = [(c * tile, _signed(crowded.get(c, 0)), _signed(crowded.get(c - 1, 0))) for c in places]
    singles = [s for s in distances if s // tile not in crowded]
    return (*(number for row in tiles for number in row), _END), (*singles, _END)


def _signed(word: int) -> int:
    """The same 64 bits as a signed number."""
    return word - 2**64 if word >= 2**63 else word


@lru_cache(maxsize=256)
def _planned(distances: tuple[int, ...], tile: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The plan in the device's memory, where it stays: a copy per call would cost more than a short kernel."""
    tiles, singles = (torch.tensor(numbers, dtype=torch.int64, device=device) for numbers in plan(distances, tile))
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
    cells = (*_planned(tuple(distances), launch.tile, q.device), starts_B, _checked_seed(seed, q.device))
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
    grad_q, grad_k, grad_v = (_empty(x, x.shape[2], x.shape[3]) for x in (q, k, v))
    delta_BHR = torch.empty_like(like_BHR)
    launch = _launch(_BACKWARD, q, v)
    cells = (*_planned(tuple(distances), launch.tile, q.device), starts_B, _checked_seed(seed, q.device))
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
    grad_q, grad_k, grad_v = (_empty(x, x.shape[2], x.shape[3]) for x in saved[:3])
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
_library = torch.library.Library("logsparse", "FRAGMENT")
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
    """Launches kernels on one problem."""

    def __init__(self, q: Tensor, v: Tensor, first_row: int, dropout: float, launch: Launch) -> None:
        batch, heads, length, width = q.shape
        self.device, self.launch, self.heads = q.device, launch, batch * heads
        self.widths = width, v.shape[3]
        # As the rule of `attention.dropout` has it.
        self.sizes = heads, length, first_row, int(dropout * 2**24 + 0.5)
        self.rates = math.log2(math.e) / math.sqrt(width), 1 / (1 - dropout)

    def __call__(
        self, name: str, rows: int, strided: tuple[Tensor, ...], rest: tuple[Tensor | None, ...]
    ) -> None:
        kernels = importlib.import_module("logsparse.attention.triton_kernels")
        programs = self.heads * -(-rows // self.launch.tile)
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
            )


def _launch(table: dict[int, Launch], q: Tensor, v: Tensor) -> Launch:
    widest = max(q.shape[3], v.shape[3])
    return next(launch for width, launch in table.items() if widest <= width)


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    starts_B: Tensor | None,
) -> None:
    """The operator is public and reads plain memory: nothing wrong may reach it. Nothing here waits for the device."""
    check_attention(q, k, v)
    check_starts(starts_B, q)
    check_cells(distances, first_row, dropout, q.shape[2])
    check_served(q, v)
    if starts_B is not None and not starts_B.is_contiguous():
        raise DataError("starts must be contiguous.", got=f"a stride of {starts_B.stride()}", hint="starts.contiguous().")


def check_served(q: Tensor, v: Tensor) -> None:
    """Refuse what the kernels cannot take."""
    if reason := unserved(q, v):
        raise ConfigError(
            f"Backend triton serves float32, float16 and bfloat16 of at most {WIDEST} channels on a GPU.",
            got=reason,
            hint="use backend='auto'; pip install logsparse[gpu] installs triton.",
        )


def _checked_seed(seed: Tensor | None, device: torch.device) -> Tensor | None:
    """The seed in the device's memory: the kernels read it there, so that nobody waits for its value."""
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
            f"{name} must be {tuple(wanted.shape)} {wanted.dtype} on {wanted.device}, as the forward pass gave it.",
            got=f"{tuple(given.shape)} {given.dtype} on {given.device}",
            hint="let autograd call this operator.",
        )


def _results(q: Tensor, v: Tensor, first_row: int) -> tuple[Tensor, Tensor]:
    rows = q.shape[2] - first_row
    return _empty(q, rows, v.shape[3]), q.new_empty((*q.shape[:2], rows), dtype=torch.float32)


def _empty(x: Tensor, rows: int, channels: int) -> Tensor:
    """(B, H, rows, channels), channel-first in memory where x is."""
    if x.stride(2) == 1:
        return x.new_empty((*x.shape[:2], channels, rows)).mT
    return x.new_empty((*x.shape[:2], rows, channels))
