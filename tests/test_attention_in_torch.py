"""Attention inside a model of one's own: second derivatives, torch.func, torch.export and torch.jit.trace."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import logsparse as ls
from logsparse.model.block import Weights, feed_forward

# B batch, L length, W width

PATTERNS = [ls.patterns.full(), ls.patterns.logsparse(), ls.patterns.restart(4, dense_rows=3)]


def leaf(*shape: int, seed: int = 0) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.requires_grad_()


def layer(dropout: float = 0.0) -> ls.ConvAttention:
    torch.manual_seed(0)
    made = ls.ConvAttention(8, 2, ls.patterns.logsparse(), kernel=3, dropout=dropout).double()
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.5)
    return made


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("starts", [None, [0, 3]], ids=["whole", "padded"])
def test_second_derivatives_of_attend_are_right(
    pattern: ls.patterns.Pattern, dropout: float, starts: list[int] | None
) -> None:
    q, k, v = leaf(2, 2, 6, 2), leaf(2, 1, 6, 2, seed=1), leaf(2, 1, 6, 1, seed=2)
    first = None if starts is None else torch.tensor(starts)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        draws = torch.Generator().manual_seed(1)
        return ls.attend(q, k, v, pattern, backend="native", dropout=dropout, generator=draws, starts=first)

    assert torch.autograd.gradgradcheck(run, (q, k, v))


def test_second_derivatives_of_one_tensor_that_is_query_key_and_value_are_right() -> None:
    x = leaf(1, 1, 6, 2)
    assert torch.autograd.gradgradcheck(lambda x: ls.attend(x, x, x, ls.patterns.logsparse()), (x,))


@pytest.mark.parametrize("starts", [None, [0, 3]], ids=["whole", "padded"])
def test_second_derivatives_of_a_layer_are_right_in_its_input_and_its_weights(starts: list[int] | None) -> None:
    of, x = layer(), leaf(2, 6, 8)
    first = None if starts is None else torch.tensor(starts)
    names = [name for name, _ in of.named_parameters()]

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        given = dict(zip(names, weights, strict=True))
        found: Tensor = torch.func.functional_call(of, given, (x,), {"starts": first})
        return found

    assert torch.autograd.gradgradcheck(run, (x, *of.parameters()), fast_mode=True)


def test_second_derivatives_of_a_normed_projection_are_right() -> None:
    of, norm, x = layer(), nn.LayerNorm(8).double(), leaf(2, 6, 8)
    assert torch.autograd.gradgradcheck(lambda x, *_: of.gather(x, norm=norm), (x, *norm.parameters()), fast_mode=True)


@pytest.mark.parametrize("last", [True, False], ids=["norm at the end", "pre-norm"])
def test_second_derivatives_of_the_feed_forward_part_are_right(last: bool) -> None:
    sizes = [(3, 4), (3,), (5, 3), (5,), (3, 5), (3,), (3,), (3,), *[(3,)] * (2 * last)]
    weights = [leaf(*size, seed=n + 2) for n, size in enumerate(sizes)]
    kept = leaf(2, 4, 3, seed=20).detach(), None

    def run(x: Tensor, gathered: Tensor, *weights: Tensor) -> Tensor:
        return feed_forward(x, gathered, Weights(*weights, *[None] * (10 - len(weights))), kept)

    assert torch.autograd.gradgradcheck(run, (leaf(2, 4, 3), leaf(2, 4, 4, seed=1), *weights), fast_mode=True)


def test_an_ordinary_backward_pass_stays_with_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("plain torch was called")

    for module in ("logsparse.attention.native", "logsparse.attention.layer"):
        monkeypatch.setattr(f"{module}.differentiable_gradients", refuse)
    x = leaf(2, 6, 8)
    layer()(x).sum().backward()
    torch.compile(layer(), backend="aot_eager", fullgraph=True)(x).sum().backward()
    assert x.grad is not None


def test_torch_func_gives_the_gradients_of_each_window() -> None:
    of, x = layer(), leaf(3, 9, 8).detach()
    weights = {name: weight.detach() for name, weight in of.named_parameters()}

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(of, weights, (x[None],)).square().sum()
        return found

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)
    for n, window in enumerate(x):
        of.zero_grad()
        of(window[None]).square().sum().backward()
        for name, weight in of.named_parameters():
            torch.testing.assert_close(each[name][n], weight.grad)


def test_the_kernel_asked_for_by_name_refuses_torch_func_grad() -> None:
    x = leaf(1, 1, 6, 2).detach()
    with pytest.raises(ls.ConfigError, match=r"Got torch.func.grad. Hint: use backend='auto'"):
        torch.func.grad(lambda x: ls.attend(x, x, x, ls.patterns.logsparse(), backend="native").sum())(x)


@pytest.mark.parametrize("padded", [False, True])
def test_an_exported_layer_takes_batches_of_any_size(padded: bool) -> None:
    of = layer().eval()
    batch = torch.export.Dim("batch", min=2, max=64)

    def given(size: int) -> dict[str, Tensor]:
        return {"starts": torch.arange(size)} if padded else {}

    shapes = {"x_BLW": {0: batch}} | ({"starts": {0: batch}} if padded else {})
    exported = torch.export.export(of, (leaf(3, 20, 8).detach(),), given(3), dynamic_shapes=shapes)
    x = leaf(7, 20, 8, seed=1).detach()
    assert torch.equal(exported.module()(x, **given(7)), of(x, **given(7)))


def test_an_exported_layer_has_one_length() -> None:
    length = torch.export.Dim("length", min=2, max=64)
    with pytest.raises(torch._dynamo.exc.UserError, match="length as dynamic but your code specialized it"):
        torch.export.export(layer(), (leaf(3, 20, 8).detach(),), dynamic_shapes={"x_BLW": {1: length}})


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.*:DeprecationWarning")
def test_a_traced_layer_returns_the_same() -> None:
    of, x = layer().eval(), leaf(3, 20, 8).detach()
    assert torch.equal(torch.jit.trace(of, x)(x), of(x))  # type: ignore[no-untyped-call]
