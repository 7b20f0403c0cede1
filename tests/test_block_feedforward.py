"""The part of a block after its attention: kernel and torch agree in values and gradients, at every size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from logsparse.attention.native import extension
from logsparse.errors import LogsparseError
from logsparse.model.block import (
    Kept,
    Weights,
    dropout_mask,
    dropout_mask_plainly,
    feed_forward,
    feed_forward_plainly,
    kernel_draws,
)

Inputs = tuple[Tensor, Tensor, Weights, Kept]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def inputs(
    batch: int,
    length: int,
    width: int,
    channels: int,
    wide: int,
    *,
    pre: bool = False,
    dropped: bool = False,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return (torch.randn(*shape, generator=generator, dtype=dtype) * 0.4).requires_grad_()

    weights = Weights(
        *(draw(width, channels), draw(width), draw(wide, width), draw(wide), draw(width, wide), draw(width)),
        *(draw(width), draw(width)),
        *((None, None) if pre else (draw(width), draw(width))),
    )
    x = draw(batch, length, width)
    # Channel-first, like the output of attention.
    gathered = draw(batch, channels, length).detach().mT.requires_grad_()
    kept = (dropout_mask(x.detach().mT.contiguous().mT, 0.3, generator), dropout_mask(x.detach(), 0.3, generator))
    return x, gathered, weights, kept if dropped else (None, None)


def results(way: Any, given: Inputs) -> list[Tensor]:
    """Return the stream, and the gradients of all inputs."""
    x, gathered, weights, _ = given
    out = way(*given)
    leaves = [x, gathered, *(part for part in weights if part is not None)]
    weight = torch.arange(out.numel(), dtype=out.dtype).view_as(out).sin()
    return [out.detach(), *torch.autograd.grad(out, leaves, weight)]


def assert_same(given: Inputs, tolerance: float) -> None:
    for got, wanted in zip(results(feed_forward, given), results(feed_forward_plainly, given), strict=True):
        assert (got - wanted).abs().max() <= tolerance * max(1.0, float(wanted.abs().max()))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_kernel_equals_the_reference(data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(1, most)) for most in (4, 150, 35, 40, 50)]
    pre, dropped = data.draw(st.booleans()), data.draw(st.booleans())
    assert_same(inputs(*sizes, pre=pre, dropped=dropped, seed=data.draw(st.integers(0, 9))), 1e-9)


@pytest.mark.parametrize("pre", [False, True])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 192])
def test_single_precision_agrees_to_rounding(length: int, pre: bool) -> None:
    assert_same(inputs(3, length, 25, 200, 100, pre=pre, dropped=True, dtype=torch.float32), 2e-5)


def test_many_short_rows_equal_each_row_alone() -> None:
    x, gathered, weights, _ = inputs(50, 3, 9, 12, 20, pre=True)
    with torch.no_grad():
        dense = gathered.contiguous()
        whole = feed_forward(x, dense, weights, (None, None))
        each = [feed_forward(x[i : i + 1], dense[i : i + 1], weights, (None, None)) for i in range(50)]
    torch.testing.assert_close(whole, torch.cat(each))


def test_the_same_threads_give_the_same_bits() -> None:
    given = inputs(7, 130, 9, 20, 30, dtype=torch.float32)
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        first, again = (results(feed_forward, given) for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_every_instruction_set_gives_the_same() -> None:
    kernel = extension()
    best = kernel.level()
    try:
        for level in kernel.levels():
            kernel.use(level)
            assert_same(inputs(2, 70, 9, 13, 21), 1e-9)
    finally:
        kernel.use(best)


@pytest.mark.parametrize("pre", [False, True])
def test_gradcheck_and_torch_s_own_checks_pass(pre: bool) -> None:
    x, gathered, weights, kept = inputs(2, 3, 4, 3, 5, pre=pre, dropped=True)
    leaves = [part for part in weights if part is not None]

    def run(x: Tensor, gathered: Tensor, *parts: Tensor) -> Tensor:
        return feed_forward(x, gathered, Weights(*parts, *[None] * (10 - len(parts))), kept)

    assert torch.autograd.gradcheck(run, (x, gathered, *leaves))
    torch.library.opcheck(torch.ops.logsparse.feed_forward.default, (x, gathered, *kept, *weights))


def test_a_nan_stays_with_its_position() -> None:
    x, gathered, weights, kept = inputs(1, 20, 5, 6, 7)
    with torch.no_grad():
        x[0, 11, 2] = torch.nan
        out = feed_forward(x, gathered, weights, kept)
    assert out.isnan().any(-1)[0].nonzero().flatten().tolist() == [11]


@pytest.mark.parametrize(
    ("number", "wrong", "message"),
    [
        (0, torch.ones(2, 5), r"x must be \(batch, length, width\)"),
        (1, torch.ones(2, 4, 3), r"gathered must be \(2, 5, 3\)"),
        (2, torch.ones(2, 5, 3), r"keep_merged must be \(2, 5, 4\)"),
        (4, torch.ones(4, 2), r"merge_WC must be \(4, 3\)"),
        (8, torch.ones(4, 7), r"narrow_WF must be \(4, 6\)"),
        (13, torch.ones(9), r"last_shift_W must be \(4,\)"),
    ],
)
def test_the_operator_refuses_shapes_that_would_read_out_of_bounds(number: int, wrong: Tensor, message: str) -> None:
    x, gathered, weights, kept = inputs(2, 5, 4, 3, 6, dropped=True, dtype=torch.float32)
    given: list[Any] = [x, gathered, *kept, *weights]
    given[number] = wrong
    with torch.no_grad(), pytest.raises(LogsparseError, match=message):
        torch.ops.logsparse.feed_forward(*given)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 312, 1), (2, 313, 3), (8, 192, 25)])
@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channel_first", [False, True])
def test_the_kernel_draws_what_torch_would_draw(
    shape: tuple[int, int, int], before: int, dtype: torch.dtype, *, channel_first: bool
) -> None:
    like = torch.empty(shape, dtype=dtype)
    if channel_first:
        like = like.mT.contiguous().mT
    ours, plain = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    for generator in (ours, plain):
        torch.rand(before, generator=generator)
    kept = dropout_mask(like, 0.1, ours)
    assert torch.equal(kept, dropout_mask_plainly(like, 0.1, plain))
    assert kept.stride() == like.stride()
    assert torch.equal(ours.get_state(), plain.get_state())


def test_the_kernel_reads_the_generator_of_this_torch() -> None:
    assert kernel_draws()
