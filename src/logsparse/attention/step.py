"""One query per path, shared history, own steps -> attention at one position: M cells read per step, not L.

Many sample paths continue one series. Keys and values of the history are stored once per series; only the steps after
it differ from path to path:

    cache = StepCache.start(history_k, history_v, paths=200, steps=24)   # starts=: where each history begins
    cache.append(k, v)                                      # this step's keys and values of every path
    out = attend_step(q, cache, pattern, cache.length - 1)  # the last row of attend over the path
"""

# N series, P paths, H heads, T history length, S steps, M cells read, D channels of q and k, E channels of v

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from logsparse.attention.attend import choose_step
from logsparse.attention.inputs import check_pattern, check_starts, check_tensor
from logsparse.attention.pattern import Pattern
from logsparse.attention.plain import real, take
from logsparse.errors import ConfigError, DataError, whole

# Numbers in two of the widest vectors that any build of the kernel uses.
_LANES = 32


@dataclass
class StepCache:
    """Keys and values of N series with P paths each: positions 0 to T - 1 are history, T onwards each path's own."""

    history_k: Tensor
    """(N, H, T, D), channel-first in memory."""
    history_v: Tensor
    """(N, H, T, E)."""
    steps_k: Tensor
    """(N, P, H, S, D), filled up to `taken`."""
    steps_v: Tensor
    """(N, P, H, S, E)."""
    starts_N: Tensor | None
    """First real position of each history; everything before it is padding. None: no padding."""
    taken: int = 0

    @staticmethod
    def start(
        history_k: Tensor, history_v: Tensor, *, paths: int, steps: int, starts: Tensor | None = None
    ) -> StepCache:
        """Return a cache with room for `steps` steps of `paths` paths."""
        check_tensor("history_k", history_k)
        check_tensor("history_v", history_v)
        if (
            (history_k.ndim, history_v.ndim) != (4, 4)
            or history_k.shape[:3] != history_v.shape[:3]
            or history_k.dtype != history_v.dtype
            or history_k.device != history_v.device
        ):
            raise DataError(
                "The history must be keys and values of (series, heads, length, channels), of one type on one device.",
                got=f"{tuple(history_k.shape)} {history_k.dtype} and {tuple(history_v.shape)} {history_v.dtype}",
                hint="pass the k and v of attend.",
            )
        check_starts(starts, history_k)
        width, value_width = history_k.shape[-1], history_v.shape[-1]
        paths, steps = (whole(name, n, hint="1 or more.") for name, n in (("paths", paths), ("steps", steps)))
        batch = (*history_k.shape[:2], paths)
        # The kernel reads keys along positions, values along channels, and paths in order.
        own_k = _dense(history_k, (*batch, width, steps)).mT.transpose(1, 2)
        own_v = _dense(history_v, (*batch, steps, value_width)).transpose(1, 2)
        shared_k = _dense(history_k, history_k.mT.shape).copy_(history_k.mT).mT
        shared_v = _dense(history_v, history_v.shape).copy_(history_v)
        return StepCache(shared_k, shared_v, own_k, own_v, None if starts is None else starts.contiguous())

    @property
    def length(self) -> int:
        """Number of positions stored so far."""
        return self.history_k.shape[2] + self.taken

    def append(self, k: Tensor, v: Tensor) -> None:
        """Store one more step: k (N, P, H, D), v (N, P, H, E)."""
        room = self.steps_k.shape[3]
        if self.taken == room:
            raise DataError(
                f"This cache has room for {room} steps only.",
                got="one more",
                hint="pass StepCache.start the number of steps to decode.",
            )
        for name, new, steps in (("k", k, self.steps_k), ("v", v, self.steps_v)):
            _check_step(name, new, steps)
        self.steps_k[:, :, :, self.taken] = k
        self.steps_v[:, :, :, self.taken] = v
        self.taken += 1


def attend_step(q: Tensor, cache: StepCache, pattern: Pattern, position: int) -> Tensor:
    """Compute attention of queries (N, P, H, D) at `position` -> (N, P, H, E); the cache must hold that position."""
    check_pattern(pattern)
    if not isinstance(cache, StepCache):
        raise ConfigError("cache must be a StepCache.", got=type(cache).__name__, hint="StepCache.start makes one.")
    _check_step("q", q, cache.steps_k)
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, cache.history_k, cache.history_v, cache.steps_k)):
        raise ConfigError(
            "attend_step computes no gradients.",
            got="tensors that require them",
            hint="decode under torch.no_grad(); to train, use attend over whole sequences.",
        )
    if whole("position", position, least=0, hint="positions count from 0.") >= cache.length:
        raise DataError(
            "position must be one that the cache holds.",
            got=f"{position} with {cache.length} positions",
            hint="append this step's keys and values first.",
        )
    old, new = step_cells(pattern, position, cache.history_k.shape[2])
    history, steps = (cache.history_k, cache.history_v), (cache.steps_k, cache.steps_v)
    return choose_step(q)(q, history, steps, (old, new), cache.starts_N)


def attend_last(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, starts_N: Tensor | None = None) -> Tensor:
    """Return only the last row of `attend`, (N, H, 1, E); it must not be padding."""
    cells, _ = step_cells(pattern, q.shape[2] - 1, q.shape[2])
    scores_NH1M = q[:, :, -1:] / math.sqrt(q.shape[-1]) @ take(k, 2, cells).mT
    if starts_N is not None:
        scores_NH1M = scores_NH1M.masked_fill(~real(cells, starts_N), -math.inf)
    return scores_NH1M.softmax(-1) @ take(v, 2, cells)


@lru_cache(maxsize=1024)
def step_cells(pattern: Pattern, position: int, history: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the cells that this position attends to, oldest first: those of the history, those of the steps."""
    cells = pattern.row(position)
    return tuple(c for c in cells if c < history), tuple(c - history for c in cells if c >= history)


def _dense(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return memory of this shape that the kernel may read a pair of vectors beyond its end."""
    size = math.prod(shape)
    try:
        return like.new_empty(size + _LANES)[:size].view(shape)
    except (RuntimeError, TypeError) as error:  # out of memory; size out of range
        raise ConfigError(
            "A cache must fit into memory.",
            got=f"{size} numbers for {' x '.join(map(str, shape))}",
            hint="decode fewer series, paths or steps at a time.",
        ) from error


def _check_step(name: str, new: Tensor, steps: Tensor) -> None:
    """Raise DataError unless the shape is exact: broadcasting would silently share one path's values with others."""
    check_tensor(name, new)
    wanted = (*steps.shape[:3], steps.shape[4])
    if new.shape != wanted or new.dtype != steps.dtype or new.device != steps.device:
        needed = f"where {wanted} {steps.dtype} on {steps.device} is needed"
        raise DataError(
            f"{name} of one step must be (series, paths, heads, channels), as the cache holds them.",
            got=f"{tuple(new.shape)} {new.dtype} on {new.device}, {needed}",
            hint="one row per series and path.",
        )
