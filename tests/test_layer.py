"""The attention layer: canonical at kernel 1, causal always, the paper's sizes and initial values."""

from __future__ import annotations

import doctest
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from logsparse.attention import layer as module
from logsparse.attention.layer import ConvAttention
from logsparse.attention.pattern import Pattern, from_distances, full, local, logsparse, restart
from logsparse.config import ModelConfig
from logsparse.errors import ConfigError, DataError
from logsparse.model.transformer import Block

PATTERNS = [full(), logsparse(), local(3), restart(6, dense_rows=5), from_distances([2, 5])]


def layer_of(pattern: Pattern, *, kernel: int = 1, head_width: int | None = None, dropout: float = 0) -> ConvAttention:
    """In float64, with weights large enough that attention is far from uniform."""
    layer = ConvAttention(8, 2, pattern, kernel=kernel, head_width=head_width, dropout=dropout).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5, generator=torch.Generator().manual_seed(parameter.numel()))
    return layer


def inputs(length: int = 21, *, batch: int = 2) -> Tensor:
    return torch.randn(batch, length, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(length))


def written_out(layer: ConvAttention, x: Tensor) -> Tensor:
    """The layer in the plainest torch: shifted sums for the convolution, a mask for the pattern."""
    batch, length, _ = x.shape
    padded = F.pad(x, (0, 0, layer.kernel - 1, 0))
    taps = [padded[:, tap : tap + length] @ layer.query_key.weight[:, :, tap].T for tap in range(layer.kernel)]
    mixed = torch.stack(taps).sum(0) + layer.get_parameter("query_key.bias")
    rows = [*mixed.chunk(2, dim=2), F.linear(x, layer.value.weight, layer.value.bias)]
    q, k, v = (part.view(batch, length, layer.heads, layer.head_width).transpose(1, 2) for part in rows)
    scores = q @ k.transpose(2, 3) / math.sqrt(layer.head_width)
    hidden = ~torch.from_numpy(layer.pattern.mask(length))
    gathered = scores.masked_fill(hidden, -torch.inf).softmax(dim=3) @ v
    merged = gathered.transpose(1, 2).reshape(batch, length, layer.heads * layer.head_width)
    return F.linear(merged, layer.out.weight, layer.out.bias)


@pytest.mark.parametrize("head_width", [None, 8, 3])
def test_kernel_1_is_the_canonical_layer(head_width: int | None) -> None:
    layer, x = layer_of(full(), head_width=head_width), inputs()
    d = layer.head_width
    q_k = F.linear(x, layer.query_key.weight[:, :, 0], layer.query_key.bias)
    v = F.linear(x, layer.value.weight, layer.value.bias)
    q, k, v = (part.reshape(2, 21, 2, d).transpose(1, 2) for part in (*q_k.chunk(2, dim=2), v))
    canonical = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer(x), F.linear(canonical, layer.out.weight, layer.out.bias))


def test_kernel_1_with_width_over_heads_is_torch_s_own_multi_head_attention() -> None:
    layer, x = layer_of(full()), inputs()
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([layer.query_key.weight[:, :, 0], layer.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([layer.get_parameter("query_key.bias"), layer.value.bias]))
        theirs.out_proj.weight.copy_(layer.out.weight)
        theirs.out_proj.bias.copy_(layer.out.bias)
    future = torch.ones(21, 21, dtype=torch.bool).triu(1)
    torch.testing.assert_close(layer(x), theirs(x, x, x, attn_mask=future, need_weights=False)[0])


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize(("kernel", "head_width"), [(1, 5), (2, 5), (6, 5), (30, 5), (2, 24), (6, 30)])
def test_values_and_gradients_are_those_of_the_layer_written_out(
    pattern: Pattern, kernel: int, head_width: int
) -> None:
    layer, x = layer_of(pattern, kernel=kernel, head_width=head_width), inputs().requires_grad_()
    leaves = [x, *layer.parameters()]
    ours, plain = layer(x), written_out(layer, x)
    torch.testing.assert_close(ours, plain)
    towards = torch.randn(plain.shape, dtype=plain.dtype, generator=torch.Generator().manual_seed(1))
    for mine, theirs in zip(
        torch.autograd.grad(ours, leaves, towards), torch.autograd.grad(plain, leaves, towards), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(PATTERNS), st.integers(1, 9), st.integers(1, 20), st.data())
def test_no_output_depends_on_a_later_input(pattern: Pattern, kernel: int, length: int, data: st.DataObject) -> None:
    layer, x = layer_of(pattern, kernel=kernel), inputs(length)
    cut = data.draw(st.integers(0, length - 1))
    changed = x.clone()
    changed[:, cut:] = 1e3
    assert torch.equal(layer(changed)[:, :cut], layer(x)[:, :cut])


def test_a_query_sees_the_kernel_s_steps_and_no_older_one() -> None:
    layer, x = layer_of(from_distances([]), kernel=4), inputs().requires_grad_()
    query = layer.project(x)[0][:, :, 12].sum()
    seen = torch.autograd.grad(query, x)[0].abs().sum(dim=(0, 2)).nonzero().flatten()
    assert seen.tolist() == [9, 10, 11, 12]


@pytest.mark.parametrize(("kernel", "count"), [(1, 25_850), (6, 75_850), (9, 105_850)])
def test_a_block_of_the_paper_has_exactly_the_authors_number_of_parameters(kernel: int, count: int) -> None:
    block = Block(ModelConfig(heads=8, head_width="full", kernel=kernel), 25, 0)
    assert sum(p.numel() for p in block.parameters()) == count


def test_the_example_of_the_layer_runs() -> None:
    assert doctest.testmod(module) == (0, 4)


def test_initial_values_are_the_authors() -> None:
    layer = ConvAttention(64, 8, full(), kernel=6, head_width=64)
    for part, deviation in (("query_key", 0.01), ("value", 0.02), ("out", 0.02)):
        weight = layer.get_parameter(f"{part}.weight")
        assert weight.std().item() == pytest.approx(deviation, rel=0.03)
        assert abs(weight.mean().item()) < deviation / 20
        assert not layer.get_parameter(f"{part}.bias").any()


def test_initial_values_come_from_the_generator() -> None:
    weights = []
    for seed in (3, 3, 4):
        layer = ConvAttention(8, 2, full())
        layer.reset_parameters(torch.Generator().manual_seed(seed))
        weights.append(layer.query_key.weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_dropout_acts_in_training_only_and_follows_its_generator(pattern: Pattern) -> None:
    layer, x = layer_of(pattern, kernel=3, dropout=0.4), inputs()
    first, again, other = (layer(x, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    torch.testing.assert_close(layer.eval()(x), written_out(layer, x))


@pytest.mark.parametrize(("kernel", "head_width"), [(1, 4), (3, 4), (3, 24)])
def test_memory_stays_channel_first_from_the_convolution_to_the_output(kernel: int, head_width: int) -> None:
    layer = layer_of(logsparse(), kernel=kernel, head_width=head_width)
    assert all(part.stride(2) == 1 for part in layer.project(inputs()))


def test_the_repr_shows_heads_pattern_and_dropout() -> None:
    text = repr(ConvAttention(25, 8, restart(96), kernel=6, head_width=25, dropout=0.1))
    assert "8 heads of 25, restart(sub_length=96, width=7, base=2), dropout=0.1" in text


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"width": 0}, r"width must be at least 1\. Got 0\. Hint: the paper has"),
        ({"heads": 0}, r"heads must be at least 1\. Got 0\."),
        ({"kernel": 0}, r"kernel must be at least 1\. Got 0\."),
        ({"head_width": 0}, r"head_width must be at least 1\. Got 0\."),
        (
            {"width": 25},
            r"must be a multiple of heads\. Got width=25, heads=8\. Hint: pass head_width, .* 25\.",
        ),
    ],
)
def test_impossible_sizes_are_refused(sizes: dict[str, int], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ConvAttention(**{"width": 16, "heads": 8, "pattern": full(), **sizes})  # type: ignore[arg-type]


def test_a_wrong_input_is_refused_with_its_shape() -> None:
    layer = layer_of(full(), kernel=3)
    with pytest.raises(DataError, match=r"takes \(batch, length, 8\)\. Got \(2, 21, 7\)\. Hint: the last"):
        layer(inputs()[:, :, :7])


def test_a_layer_without_a_pattern_or_with_an_impossible_dropout_is_refused() -> None:
    for pattern, dropout in (("logsparse", 0.0), (full(), 2.0), (full(), -1.0)):
        with pytest.raises(ConfigError, match="A layer needs a Pattern, and a dropout of at least 0 and below 1"):
            ConvAttention(8, 2, pattern, dropout=dropout)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"kernel must be a whole number. Got 2.5"):
        ConvAttention(8, 2, full(), kernel=2.5)  # type: ignore[arg-type]


def test_a_layer_in_training_drops_by_the_global_generator() -> None:
    layer, x = layer_of(logsparse(), kernel=3, dropout=0.5), inputs()
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(layer.train()(x))
    assert torch.equal(runs[0], runs[1])
    assert not torch.allclose(runs[0], runs[2])
    assert not torch.allclose(runs[0], layer.eval()(x))
    torch.testing.assert_close(layer(x), written_out(layer, x))


def test_a_layer_that_drops_compiles_as_one_graph() -> None:
    layer, x = layer_of(logsparse(), kernel=3, dropout=0.5).train(), inputs()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.manual_seed(3)
    first = compiled(x)
    torch.manual_seed(3)
    assert torch.equal(compiled(x), first)
    assert not torch.allclose(first, layer.eval()(x))


def test_a_layer_on_the_meta_device_returns_the_shape_of_its_result() -> None:
    with torch.device("meta"):
        layer = ConvAttention(8, 2, logsparse(), kernel=3, dropout=0.2)
        out = layer(torch.empty(3, 20, 8))
    assert (out.shape, out.device.type) == ((3, 20, 8), "meta")
