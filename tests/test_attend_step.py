"""One position of many paths: the kernel gives the plain answer for any sizes, strides and cells."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from logsparse.attention.attend import StepCache, attend, attend_last, attend_step, step_cells
from logsparse.attention.native import _native
from logsparse.attention.pattern import Pattern, from_distances, full, local, logsparse, restart
from logsparse.attention.plain import dense, shifted_step

PATTERNS = [full(), logsparse(), local(5), restart(7, 2), from_distances([0, 3]), full(dense_rows=4)]


def plainly(q: Tensor, cache: StepCache, cells: tuple[tuple[int, ...], tuple[int, ...]]) -> Tensor:
    """The oracle."""
    return shifted_step(q, (cache.history_k, cache.history_v), (cache.steps_k, cache.steps_v), cells, cache.starts_N)


def filled(
    *,
    paths: int,
    history: int,
    taken: int,
    width: int,
    value_width: int,
    turned: bool,
    dtype: torch.dtype,
    starts: tuple[int, ...] | None = None,
) -> tuple[Tensor, StepCache]:
    """A query and a cache of 3 series and 2 heads, `turned`: channel-first in memory."""
    draw = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=dtype)

    if turned:
        past = random(3, 2, width, history).mT, random(3, 2, value_width, history).mT
    else:
        past = random(3, 2, history, width), random(3, 2, history, value_width)
    starts_N = None if starts is None else torch.tensor(starts)
    for x in past:
        for n, start in enumerate(starts or ()):
            x[n, :, :start] = torch.nan
    cache = StepCache.start(*past, paths=paths, steps=taken + 2, starts=starts_N)
    for _ in range(taken):
        cache.append(random(3, paths, 2, width), random(3, paths, 2, value_width))
    return random(3, paths, 2, width), cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize(
    "sizes",
    [
        {"paths": 1, "history": 1, "taken": 1, "width": 1, "value_width": 1, "turned": False},
        {"paths": 3, "history": 16, "taken": 16, "width": 12, "value_width": 12, "turned": True},
        {"paths": 4, "history": 17, "taken": 33, "width": 25, "value_width": 7, "turned": True},
        {"paths": 9, "history": 100, "taken": 5, "width": 7, "value_width": 64, "turned": False},
        {"paths": 6, "history": 40, "taken": 1, "width": 33, "value_width": 17, "turned": True},
    ],
    ids=str,
)
def test_every_level_of_the_kernel_gives_the_plain_answer(
    sizes: dict[str, Any], pattern: Pattern, dtype: torch.dtype
) -> None:
    q, cache = filled(**sizes, dtype=dtype)
    position = cache.length - 1
    expected = plainly(q, cache, step_cells(pattern, position, sizes["history"]))
    best = _native.level()
    try:
        for level in _native.levels():
            _native.use(level)
            found = attend_step(q, cache, pattern, position)
            tolerance = 1e-5 if dtype == torch.float32 else 1e-12
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    finally:
        _native.use(best)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize(("history", "starts"), [(1, (0, 1, 1)), (40, (0, 17, 40)), (100, (99, 3, 64))], ids=str)
@pytest.mark.parametrize("turned", [True, False])
def test_padding_of_a_history_is_not_read(
    pattern: Pattern, history: int, starts: tuple[int, ...], turned: bool
) -> None:
    q, cache = filled(
        paths=5, history=history, taken=6, width=7, value_width=5, turned=turned, dtype=torch.float64, starts=starts
    )
    position = cache.length - 1
    found = attend_step(q, cache, pattern, position)
    plain = plainly(q, cache, step_cells(pattern, position, history))
    torch.testing.assert_close(found, plain, rtol=1e-12, atol=1e-12)
    for n, start in enumerate(starts):
        rows = [c for c in pattern.row(position) if c >= start]
        for path in range(5):
            k = torch.cat([cache.history_k[n], cache.steps_k[n, path]], 1)[:, rows]
            v = torch.cat([cache.history_v[n], cache.steps_v[n, path]], 1)[:, rows]
            weights = (k @ q[n, path, :, :, None] / 7**0.5).softmax(1)
            torch.testing.assert_close(found[n, path], (weights * v).sum(1), rtol=1e-12, atol=1e-12)


def test_a_position_inside_the_padding_gives_zeros() -> None:
    q, cache = filled(
        paths=2, history=9, taken=1, width=4, value_width=3, turned=True, dtype=torch.float32, starts=(9, 5, 0)
    )
    found = attend_step(q, cache, logsparse(), 4)
    assert (found[:2] == 0).all()
    assert (found[2] != 0).all()
    torch.testing.assert_close(found, plainly(q, cache, step_cells(logsparse(), 4, 9)))


def test_large_scores_do_not_overflow() -> None:
    q, cache = filled(paths=4, history=9, taken=3, width=8, value_width=8, turned=True, dtype=torch.float32)
    found = attend_step(1e4 * q, cache, full(), cache.length - 1)
    expected = plainly(1e4 * q, cache, step_cells(full(), cache.length - 1, 9))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_query_of_any_strides_is_taken_as_it_is() -> None:
    q, cache = filled(paths=5, history=9, taken=3, width=8, value_width=8, turned=True, dtype=torch.float32)
    strange = q.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    position = cache.length - 1
    assert (attend_step(strange, cache, full(), position) == attend_step(q, cache, full(), position)).all()


@pytest.mark.parametrize("length", [1, 2, 17, 100])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_the_last_row_alone_is_the_last_of_all_rows(pattern: Pattern, length: int) -> None:
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, 2, length, width, generator=draw) for width in (5, 5, 7))
    every = dense(q, k, v, *pattern.cells_of(length), 0.0, None, None)
    torch.testing.assert_close(attend_last(q, k, v, pattern), every[:, :, -1:])
    starts_N = torch.tensor([0, length - 1, length // 2])
    padded = attend(q, k, v, pattern, backend="dense", starts=starts_N)
    torch.testing.assert_close(attend_last(q, k, v, pattern, starts_N), padded[:, :, -1:])
