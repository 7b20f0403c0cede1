"""Queries, keys and values of the kernel's convolution: the plain one's, in values and gradients, at every size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad

from logsparse.attention.layer import project, project_plainly
from logsparse.attention.native import extension
from logsparse.errors import LogsparseError

Inputs = tuple[Tensor, ...]
"""x, weights and biases of queries and keys, of values; and gain and shift where a norm stands before them."""


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
    kernel: int,
    *,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    norm: bool = False,
) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()

    return (
        draw(batch, length, width),
        draw(2 * channels, width, kernel),
        draw(2 * channels),
        draw(channels, width),
        draw(channels),
        *((draw(width), draw(width)) if norm else ()),
    )


# As a function of any arguments, for types.
_project: Any = project


def results(way: Any, given: Inputs, starts: Tensor | None) -> list[Tensor]:
    """Queries, keys, values, and the gradients of all inputs."""
    out = way(*given[:5], starts, given[5:] or (None, None))
    weight = [torch.arange(part.numel(), dtype=part.dtype).view_as(part).sin() for part in out]
    return [*(part.detach() for part in out), *torch.autograd.grad(out, given, weight)]


def assert_same(given: Inputs, starts: Tensor | None, tolerance: float) -> None:
    for got, wanted in zip(results(project, given, starts), results(project_plainly, given, starts), strict=True):
        assert (got - wanted).abs().max() <= tolerance * max(1.0, float(wanted.abs().max()))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_kernel_gives_the_plain_convolution_s_results(data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(1, most)) for most in (5, 230, 27, 60, 10)]
    given = inputs(*sizes, seed=data.draw(st.integers(0, 9)), norm=data.draw(st.booleans()))
    starts = data.draw(st.none() | st.lists(st.integers(0, sizes[1] + 2), min_size=sizes[0], max_size=sizes[0]))
    assert_same(given, None if starts is None else torch.tensor(starts), 1e-11)


@pytest.mark.parametrize("length", [1, 16, 191, 192, 193, 400])
@pytest.mark.parametrize("norm", [False, True])
def test_float32_is_within_its_rounding_error(length: int, *, norm: bool) -> None:
    assert_same(inputs(3, length, 25, 50, 9, dtype=torch.float32, norm=norm), None, 2e-5)


def test_any_strides_are_read() -> None:
    x, *weights = inputs(3, 50, 6, 8, 4)
    turned = x.detach().mT.contiguous().mT.requires_grad_()
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        assert_same((turned, *weights), None, 1e-11)


@pytest.mark.parametrize("norm", [False, True])
def test_the_content_of_padding_changes_nothing(*, norm: bool) -> None:
    x, *weights = inputs(2, 40, 5, 7, 6, norm=norm)
    starts = torch.tensor([13, 40])
    spoiled = x.detach().clone()
    spoiled[0, :13] = torch.nan
    spoiled[1] = torch.inf
    clean = results(project, (x, *weights), starts)
    for got, wanted in zip(results(project, (spoiled.requires_grad_(), *weights), starts), clean, strict=True):
        assert torch.equal(got, wanted)


def test_the_same_threads_give_the_same_bits() -> None:
    given = inputs(7, 130, 9, 20, 3, dtype=torch.float32, norm=True)
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        first, again = (results(project, given, None) for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_every_level_of_the_processor_gives_the_same() -> None:
    kernel = extension()
    best = kernel.level()
    try:
        for level in kernel.levels():
            kernel.use(level)
            assert_same(inputs(2, 70, 9, 13, 4, norm=True), None, 1e-11)
    finally:
        kernel.use(best)


def test_gradcheck_and_torch_s_own_checks_pass() -> None:
    starts = torch.tensor([0, 2])
    for norm in (False, True):
        given = inputs(2, 5, 3, 2, 3, norm=norm)
        assert torch.autograd.gradcheck(lambda *parts: _project(*parts[:5], starts, parts[5:] or (None, None)), given)
        for where in (None, torch.tensor([1, 5])):
            rest = given[5:] or (None, None)
            torch.library.opcheck(torch.ops.logsparse.project.default, (*given[:5], where, *rest))


# torch's own rules for forward mode still go through torch.jit
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_bfloat16_and_forward_mode_are_left_to_plain_torch() -> None:
    given = inputs(1, 8, 3, 2, 2, dtype=torch.float32)
    with torch.no_grad():
        assert _project(*(part.bfloat16() for part in given), None)[0].dtype == torch.bfloat16
    with forward_ad.dual_level():
        x = forward_ad.make_dual(given[0].detach(), torch.ones_like(given[0]))  # type: ignore[no-untyped-call]
        out = _project(x, *given[1:], None)[0]
        assert forward_ad.unpack_dual(out).tangent is not None  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("number", "wrong", "message"),
    [
        (0, torch.ones(2, 5), r"x must be \(batch, length, width\)"),
        (0, torch.ones(2, 0, 3), "x must be .* none empty"),
        (0, torch.ones(2, 5, 4), r"weight_qk must be \(4, 4, 2\)"),
        (1, torch.ones(6, 3, 2), r"weight_qk must be \(4, 3, 2\), as the other shapes say.* Got \(6, 3, 2\)"),
        (2, torch.ones(3), r"bias_qk must be \(4,\)"),
        (3, torch.ones(2, 3, dtype=torch.float64), "weight_v must be .* all of one type"),
        (4, torch.ones(1), r"bias_v must be \(2,\)"),
        (5, torch.tensor([0]), "starts must be an int64 tensor"),
        (5, torch.tensor([0, -1]), "no start below 0"),
        (6, torch.ones(4), r"gain must be \(3,\)"),
        (6, torch.ones(3), "A norm has a gain and a shift"),
    ],
)
def test_the_operator_refuses_arguments_that_would_read_outside_memory(
    number: int, wrong: Tensor, message: str
) -> None:
    given: list[Any] = [*(part.detach() for part in inputs(2, 5, 3, 2, 2, dtype=torch.float32)), None, None, None]
    given[number] = wrong
    with pytest.raises(LogsparseError, match=message):
        torch.ops.logsparse.project(*given)
