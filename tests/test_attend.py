"""Every backend against the oracle, the front's rules, the one-step form."""

from __future__ import annotations

import doctest
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from logsparse.attention import attend as attend_module
from logsparse.attention import native as native_module
from logsparse.attention.attend import Call, attend, choose
from logsparse.attention.inputs import factors
from logsparse.attention.pattern import Pattern, from_distances, full, local, logsparse, restart
from logsparse.attention.plain import dense
from logsparse.attention.step import StepCache, attend_step
from logsparse.errors import ConfigError, DataError, LogsparseError

PATTERNS = {
    "full": full(),
    "logsparse": logsparse(),
    "local": local(7),
    "restart": restart(24),
    "dense rows": restart(16, dense_rows=40),
    "custom": from_distances([3, 64, 65, 200]),
}
LENGTHS = (1, 2, 3, 63, 64, 65, 127, 192, 768, 1000)
WIDTHS = (1, 7, 25, 32, 64)
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the cases are small, and tests run side by side
    yield
    torch.set_num_threads(before)


def random_inputs(
    shape: tuple[int, int, int, int],
    *,
    values: int | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v as leaves of (B, H, L, D), `values` channels in v; channel-first in memory for even seeds."""
    generator = torch.Generator().manual_seed(seed)
    batch, heads, length, width = shape

    def leaf(channels: int) -> Tensor:
        if seed % 2 == 0:
            x = torch.randn(batch, heads, channels, length, generator=generator, dtype=torch.float64).mT
        else:
            x = torch.randn(batch, heads, length, channels, generator=generator, dtype=torch.float64)
        return x.to(dtype).requires_grad_()

    return leaf(width), leaf(width), leaf(values or width)


def results(
    backend: str,
    qkv: tuple[Tensor, Tensor, Tensor],
    pattern: Pattern,
    dropout: float = 0.0,
    starts: Tensor | None = None,
) -> list[Tensor]:
    """The output and the gradients of q, k, v for one fixed incoming gradient and one fixed dropout mask."""
    seven = torch.Generator().manual_seed(7)
    out = attend(*qkv, pattern, backend=backend, dropout=dropout, generator=seven, starts=starts)
    incoming = torch.randn(out.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, qkv, incoming)]


def assert_equal_to_oracle(got: list[Tensor], oracle: list[Tensor], tolerance: float) -> None:
    # A gradient that is zero in exact arithmetic (q and k at length 1) is measured against the others' size.
    largest_gradient = max(x.abs().max().item() for x in oracle[1:])
    for name, x, y in zip(("out", "grad q", "grad k", "grad v"), got, oracle, strict=True):
        size = y.abs().max().item()
        size = size if size > 1e-3 * largest_gradient else largest_gradient
        difference = (x.to(y.dtype) - y).abs().max().item()
        assert difference <= tolerance * size, f"{name}: {difference / size:.1e}"


def cases() -> Iterator[tuple[int, int, str, torch.dtype, float]]:
    """Every length with every pattern, type and dropout; widths take turns. Long full patterns once only."""
    turn = itertools.cycle(WIDTHS)
    for length, name, dtype, dropout in itertools.product(
        LENGTHS, PATTERNS, (torch.float32, torch.float64), (0.0, 0.3)
    ):
        if length >= 768 and name == "full" and (dropout or dtype == torch.float32):
            continue
        yield length, next(turn), name, dtype, dropout


@pytest.mark.parametrize(("length", "width", "name", "dtype", "dropout"), list(cases()))
def test_native_equals_the_oracle_in_values_and_gradients(
    length: int, width: int, name: str, dtype: torch.dtype, dropout: float
) -> None:
    heads = (2, 3) if length < 500 else (1, 2)
    seed = length + WIDTHS.index(width)
    qkv = random_inputs((*heads, length, width), values=width + seed % 3, dtype=dtype, seed=seed)
    oracle = results("dense", qkv, PATTERNS[name], dropout)
    assert_equal_to_oracle(results("native", qkv, PATTERNS[name], dropout), oracle, TOLERANCE[dtype])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("length", [1, 3, 65, 127])
def test_shifted_equals_the_oracle_in_values_and_gradients(length: int, name: str, dropout: float) -> None:
    qkv = random_inputs((2, 2, length, 7), values=5)
    oracle = results("dense", qkv, PATTERNS[name], dropout)
    assert_equal_to_oracle(results("shifted", qkv, PATTERNS[name], dropout), oracle, 1e-10)


def test_sdpa_serves_the_full_pattern() -> None:
    qkv = random_inputs((2, 2, 65, 7))
    assert_equal_to_oracle(results("sdpa", qkv, full()), results("dense", qkv, full()), 1e-10)
    assert_equal_to_oracle(results("auto", qkv, full()), results("dense", qkv, full()), 1e-10)


def test_full_attention_is_the_kernel_s_on_a_cpu_and_torch_s_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for pattern in (full(), logsparse(dense_rows=99)):
        qkv = random_inputs((2, 2, 65, 7))
        call = Call(*qkv, *pattern.cells_of(65))
        assert choose("auto", call).name == "native"
        assert_equal_to_oracle(results("auto", qkv, pattern), results("dense", qkv, full()), 1e-10)
        with monkeypatch.context() as patched:
            patched.setattr(native_module, "_native", None)
            assert choose("auto", call).name == "sdpa"


def test_more_dense_rows_than_rows_is_full_attention() -> None:
    qkv = random_inputs((1, 2, 20, 4))
    for backend in ("auto", "native", "shifted"):
        got = results(backend, qkv, logsparse(dense_rows=99))
        assert_equal_to_oracle(got, results("dense", qkv, full()), 1e-10)


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 150),
    distances=st.sets(st.integers(0, 160), max_size=12),
    dense_rows=st.integers(0, 80),
    data=st.data(),
)
def test_no_output_depends_on_a_later_input(
    length: int, distances: set[int], dense_rows: int, data: st.DataObject
) -> None:
    kinds = [full(), logsparse(3), local(4), restart(1), restart(10), from_distances(distances)]
    pattern = data.draw(st.sampled_from(kinds))
    pattern = Pattern(pattern.rule, pattern.settings, dense_rows=dense_rows)
    cut = data.draw(st.integers(0, length - 1))
    q, k, v = (x.detach() for x in random_inputs((1, 2, length, 3), dtype=torch.float32))
    # NaN spreads into whatever touches it; rows that see their whole past multiply later ones by 0.
    later = torch.nan if dense_rows == 0 and pattern.rule != "full" else 1e3
    q2, k2, v2 = (x.clone() for x in (q, k, v))
    for x in (q2, k2, v2):
        x[:, :, cut + 1 :] = later
    for backend in ("native", "shifted"):
        before = attend(q, k, v, pattern, backend=backend)[:, :, : cut + 1]
        after = attend(q2, k2, v2, pattern, backend=backend)[:, :, : cut + 1]
        assert torch.allclose(before, after, atol=1e-6)


def without_padding(qkv: tuple[Tensor, Tensor, Tensor], pattern: Pattern, starts: Tensor) -> list[Tensor]:
    """Each batch row by itself, cut off at its start, by the oracle; zeros where the padding was."""
    distances, dense_rows = pattern.cells_of(qkv[0].shape[2])
    out = torch.zeros_like(qkv[2]).detach()
    rows = []
    for b, s in enumerate(starts.tolist()):
        if s < qkv[0].shape[2]:
            q, k, v = (x[b : b + 1, :, s:] for x in qkv)
            rows.append((b, s, dense(q, k, v, distances, max(0, dense_rows - s), 0.0, None, None)))
    incoming = torch.randn(out.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64).to(out.dtype)
    for b, s, found in rows:
        out[b, :, s:] = found[0].detach()
    total = sum(((found[0] * incoming[b, :, s:]).sum() for b, s, found in rows), torch.zeros(()))
    return [out, *torch.autograd.grad(total, qkv)]


@pytest.mark.parametrize("backend", ["native", "shifted", "dense", "auto"])
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("starts", [(0, 1, 2), (64, 63, 65), (149, 40, 0), (150, 100, 7)], ids=str)
def test_padding_affects_neither_values_nor_gradients(backend: str, name: str, starts: tuple[int, int, int]) -> None:
    starts_B = torch.tensor(starts)
    for seed, dtype in ((0, torch.float64), (1, torch.float32)):
        qkv = random_inputs((3, 2, 150, 9), values=7, dtype=dtype, seed=seed)
        oracle = without_padding(qkv, PATTERNS[name], starts_B)
        found = results(backend, qkv, PATTERNS[name], starts=starts_B)
        assert_equal_to_oracle(found, oracle, TOLERANCE[dtype])
        for x in found:
            for b, s in enumerate(starts):
                assert (x[b, :, :s] == 0).all(), "rows of padding, and gradients of padding, are exactly 0"


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_dropout_beside_padding_is_that_of_the_oracle(name: str, threads: int) -> None:
    qkv = random_inputs((2, 3, 130, 5))
    starts_B = torch.tensor([70, 3])
    oracle = results("dense", qkv, PATTERNS[name], 0.3, starts_B)
    torch.set_num_threads(threads)
    for backend in ("native", "shifted"):
        assert_equal_to_oracle(results(backend, qkv, PATTERNS[name], 0.3, starts_B), oracle, 1e-10)


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 150), dense_rows=st.integers(0, 80), data=st.data())
def test_the_content_of_padding_changes_nothing(length: int, dense_rows: int, data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from([full(), logsparse(), local(4), restart(10)]))
    pattern = Pattern(pattern.rule, pattern.settings, dense_rows=dense_rows)
    starts_B = torch.tensor(data.draw(st.lists(st.integers(0, length), min_size=2, max_size=2)))
    dropout = data.draw(st.sampled_from([0.0, 0.4]))
    qkv = random_inputs((2, 2, length, 3), seed=data.draw(st.integers(0, 1)))
    other = tuple(x.detach().clone() for x in qkv)
    for x in other:
        for b, s in enumerate(starts_B.tolist()):
            x[b, :, :s] = torch.nan
        x.requires_grad_()
    for backend in ("native", "shifted", "dense"):
        before = results(backend, qkv, pattern, dropout, starts_B)
        after = results(backend, (other[0], other[1], other[2]), pattern, dropout, starts_B)
        assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))


def test_dropout_keeps_the_asked_share_and_differs_by_head_position_and_distance() -> None:
    position, distance = torch.arange(300)[:, None], torch.arange(20)
    kept = factors(torch.tensor(2**40 + 5), (3, 4), position, distance, 0.25)
    assert set(kept.flatten().tolist()) == {0.0, 1 / 0.75}
    for dim in range(4):
        others = [d for d in range(4) if d != dim]
        share = (kept > 0).to(torch.float64).mean(others)
        assert (share - 0.75).abs().max() < 4.5 * (0.75 * 0.25 / (kept.numel() / kept.shape[dim])) ** 0.5
        assert not torch.equal(*kept.movedim(dim, 0)[:2])


def test_the_dropout_seed_comes_from_the_generator() -> None:
    qkv = random_inputs((1, 1, 50, 4))
    first, again, other = (
        attend(*qkv, logsparse(), dropout=0.5, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_distances_of_a_pattern_are_computed_once_per_length(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    computed = Pattern.distances

    def counted(pattern: Pattern, length: int) -> tuple[int, ...]:
        lengths.append(length)
        return computed(pattern, length)

    monkeypatch.setattr(Pattern, "distances", counted)
    attend_module._cells_of.cache_clear()
    for length in (20, 30, 20, 30, 20):
        attend(*random_inputs((1, 1, length, 4)), logsparse())
    assert lengths == [20, 30]


def test_the_example_of_attend_runs() -> None:
    assert doctest.testmod(attend_module) == (0, 4)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("history", [1, 30])
def test_decoding_step_by_step_equals_attending_over_whole_paths(name: str, history: int) -> None:
    series, paths, heads, steps, width = 2, 3, 2, 25, 4
    generator = torch.Generator().manual_seed(0)
    past = [torch.randn(series, 1, heads, history, width, generator=generator) for _ in range(3)]
    new = [torch.randn(series, paths, heads, steps, width, generator=generator) for _ in range(3)]
    whole = [
        torch.cat([p.expand(-1, paths, -1, -1, -1), n], dim=3).flatten(0, 1) for p, n in zip(past, new, strict=True)
    ]
    q, k, v = whole
    expected = attend(q, k, v, PATTERNS[name], backend="dense").reshape(series, paths, heads, -1, width)
    cache = StepCache.start(past[1][:, 0], past[2][:, 0], paths=paths, steps=steps)
    for step in range(steps):
        q, k, v = (x[:, :, :, step] for x in new)
        cache.append(k, v)
        out = attend_step(q, cache, PATTERNS[name], cache.length - 1)
        assert torch.allclose(out, expected[:, :, :, history + step], atol=1e-5)


def test_a_full_cache_and_an_unknown_position_are_refused() -> None:
    cache = StepCache.start(torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2), paths=1, steps=1)
    step = torch.ones(1, 1, 1, 2)
    with pytest.raises(DataError, match="position must be one that the cache holds"):
        attend_step(step, cache, full(), 3)
    cache.append(step, step)
    with pytest.raises(DataError, match="This cache has room for 1 steps"):
        cache.append(step, step)


def test_errors_say_what_is_wrong() -> None:
    x = torch.ones(1, 2, 5, 3)
    with pytest.raises(ConfigError, match="backend must be one of"):
        attend(x, x, x, full(), backend="magic")
    with pytest.raises(ConfigError, match="dropout must be at least 0 and below 1"):
        attend(x, x, x, full(), dropout=1.0)
    with pytest.raises(ConfigError, match="Backend sdpa serves the full pattern"):
        attend(x, x, x, logsparse(), backend="sdpa")
    for k, v in ((x[0], x), (x[:, :, 1:], x), (x, x[:, :1]), (x[..., 1:], x)):
        with pytest.raises(DataError, match="q and k must be"):
            attend(x, k, v, full())
    with pytest.raises(DataError, match="none empty"):
        attend(x[:, :, :0], x[:, :, :0], x[:, :, :0], full())
    with pytest.raises(DataError, match="must share one device and one type"):
        attend(x, x.double(), x, full())
    with pytest.raises(DataError, match="must be float32, float64, bfloat16 or float16"):
        attend(x.int(), x.int(), x.int(), full())


def test_without_the_extension_shifted_serves_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native_module, "_native", None)
    monkeypatch.setattr(native_module, "_reported", [])
    qkv = random_inputs((1, 1, 20, 4))
    for _ in range(2):
        assert_equal_to_oracle(results("auto", qkv, logsparse()), results("dense", qkv, logsparse()), 1e-10)
    with pytest.raises(ConfigError, match=r"Backend native runs on a CPU, where it was built.* Got an install without"):
        results("native", qkv, logsparse())
    assert [record.message for record in caplog.records if "was not built" in record.message] == [
        "The C++ attention kernel was not built; plain torch serves instead (slower, same results)."
    ]


# torch's own rules for forward mode still go through torch.jit
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_forward_mode_differentiation_gives_the_right_tangent() -> None:
    q, tangent = (torch.randn(1, 2, 20, 4, generator=torch.Generator().manual_seed(i)) for i in (0, 1))

    def by(backend: str) -> torch.Tensor:
        found: torch.Tensor = torch.func.jvp(lambda t: attend(t, t, t, logsparse(), backend=backend), (q,), (tangent,))[
            1
        ]
        return found

    assert torch.allclose(by("auto"), by("dense"), atol=1e-5)
    with pytest.raises(ConfigError, match=r"Got forward-mode differentiation. Hint: use backend='auto'"):
        by("native")


def anything(value: Any) -> Any:
    """A mistake that the types would catch."""
    return value


def cache_of(x: Tensor) -> StepCache:
    return StepCache.start(x, x, paths=1, steps=1)


def step_of(x: Tensor) -> Tensor:
    """The first position, as one step of one path."""
    return x[:, None, :, 0].detach().clone()


@pytest.mark.parametrize("pattern", [full(), logsparse(), logsparse(dense_rows=9)], ids=repr)
def test_autocast_changes_neither_the_type_nor_the_numbers(pattern: Pattern) -> None:
    q = torch.randn(1, 2, 70, 8, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        inside = attend(q, q, q, pattern)
    assert torch.equal(inside, attend(q, q, q, pattern))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda x: attend(x, x, x, anything("logsparse")),
            "pattern must be a Pattern. Got 'logsparse'. Hint: call one",
        ),
        (lambda x: attend(x, x, x, anything(logsparse)), "pattern must be a Pattern. Got <function"),
        (
            lambda x: attend(x, x, x, full(), dropout=anything("0.1")),
            "dropout must be at least 0 and below 1. Got '0.1'",
        ),
        (lambda x: attend(x, x, x, full(), generator=anything(3)), "generator must be a torch.Generator. Got 3"),
        (lambda x: attend(x, x, x[..., :0], full()), "none empty"),
        (lambda x: attend(x, x[:, :, 1:], x, full()), "v the same but for channels"),
        (lambda x: StepCache.start(x, x[:, :, 1:], paths=1, steps=1), "The history must be keys and values of"),
        (lambda x: StepCache.start(x, x, paths=-3, steps=1), "paths must be at least 1. Got -3"),
        (lambda x: StepCache.start(x, x, paths=3, steps=1).append(x[:, :1, 0], x[:, :1, 0]), "k of one step must be"),
        (lambda x: attend_step(x[:, :1, 0], StepCache.start(x, x, paths=3, steps=1), full(), 0), "q of one step must"),
        (lambda x: attend(anything(None), x, x, full()), "q must be a torch.Tensor. Got NoneType"),
        (
            lambda x: attend(x, x, x.to_sparse(), full()),
            "v must be a dense tensor. Got torch.sparse",
        ),
        (
            lambda x: attend(x.to("meta"), x, x, full()),
            "q, k and v must share one device and one type. Got q torch.float32 on meta",
        ),
        (
            lambda x: attend(x.long(), x.long(), x.long(), full()),
            "float32, float64, bfloat16 or float16. Got q of torch.int64",
        ),
        (lambda x: attend(x, anything(None), x, full()), "k must be a torch.Tensor. Got NoneType"),
        (
            lambda x: StepCache.start(anything(None), x, paths=1, steps=1),
            "history_k must be a torch.Tensor. Got NoneType",
        ),
        (
            lambda x: StepCache.start(x.long(), x.long(), paths=1, steps=1),
            "float32, float64, bfloat16 or float16. Got history_k",
        ),
        (lambda x: StepCache.start(x, x[0], paths=1, steps=1), "The history must be keys and values of"),
        (lambda x: StepCache.start(x, x[None], paths=1, steps=1), "The history must be keys and values of"),
        (lambda x: StepCache.start(x, x, paths=1, steps=10**12), "A cache must fit into memory. Got 8000000000000"),
        (lambda x: StepCache.start(x, x, paths=10**30, steps=1), "A cache must fit into memory."),
        (lambda x: attend_step(anything(None), cache_of(x), full(), 0), "q must be a torch.Tensor. Got NoneType"),
        (lambda x: attend_step(x[:, :1], anything(None), full(), 0), "cache must be a StepCache. Got NoneType"),
        (lambda x: attend_step(step_of(x).to_sparse(), cache_of(x), full(), 0), "q must be a dense tensor"),
        (lambda x: attend_step(step_of(x).to("meta"), cache_of(x), full(), 0), "on meta, where"),
        (lambda x: attend_step(step_of(x).long(), cache_of(x), full(), 0), "Got q of torch.int64"),
        (lambda x: attend_step(step_of(x), cache_of(x), anything(None), 0), "pattern must be a Pattern. Got None"),
        (
            lambda x: attend_step(step_of(x).requires_grad_(), cache_of(x), full(), 0),
            "attend_step computes no gradients.",
        ),
        (
            lambda x: attend_step(step_of(x), cache_of(x.requires_grad_()), full(), 0),
            "attend_step computes no gradients.",
        ),
        (lambda x: attend(x, x, x, full(), starts=anything([0])), "starts must be an int64 tensor of (1,) on cpu"),
        (lambda x: attend(x, x, x, full(), starts=torch.zeros(2, dtype=torch.int64)), "Got (2,) torch.int64 on cpu"),
        (lambda x: attend(x, x, x, full(), starts=torch.zeros(1)), "Got (1,) torch.float32 on cpu"),
        (lambda x: attend(x, x, x, logsparse(), starts=torch.tensor([-1]), backend="native"), "no start below 0"),
        (
            lambda x: attend(x, x, x, full(), starts=torch.tensor([1]), backend="sdpa"),
            "without dropout or padding only",
        ),
    ],
)
def test_wrong_arguments_are_refused_without_broadcasting(act: Callable[[torch.Tensor], object], message: str) -> None:
    with pytest.raises(LogsparseError, match=re.escape(message)):
        act(torch.ones(1, 2, 5, 4))


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("length", [1, 7, 130])
def test_the_oracle_sees_the_cells_of_the_pattern_s_mask(pattern: Pattern, length: int) -> None:
    # Equal scores, and values that name their cell: the result is the mean over the cells seen.
    q = torch.zeros(1, 1, length, 1, dtype=torch.float64)
    cells = torch.eye(length, dtype=torch.float64)[None, None]
    mask = torch.from_numpy(pattern.mask(length)).double()
    got = dense(q, q, cells, *pattern.cells_of(length), 0.0, None, None)[0, 0]
    torch.testing.assert_close(got, mask / mask.sum(1, keepdim=True))


@pytest.mark.parametrize("backend", ["auto", "dense", "shifted"])
@pytest.mark.parametrize("fewer", [1, 2])
def test_fewer_heads_of_keys_and_values_serve_groups_of_heads_of_queries(backend: str, fewer: int) -> None:
    q, k, v = (torch.randn(2, heads, 40, 8, dtype=torch.float64, requires_grad=True) for heads in (4, fewer, fewer))
    grouped = attend(q, k, v, logsparse(), backend=backend)
    mask = torch.from_numpy(logsparse().mask(40))
    torchs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    torch.testing.assert_close(grouped, torchs)
    ours, theirs = (torch.autograd.grad(out.square().sum(), (q, k, v)) for out in (grouped, torchs))
    torch.testing.assert_close(ours, theirs)


def test_a_number_of_heads_that_does_not_divide_that_of_queries_is_refused() -> None:
    q, k = torch.randn(1, 4, 10, 8), torch.randn(1, 3, 10, 8)
    with pytest.raises(DataError, match=r"k and v may both have fewer heads, if their number divides that of q\."):
        attend(q, k, k, logsparse())


def test_float16_on_a_cpu_is_float32_rounded() -> None:
    qkv = [torch.randn(2, 2, 70, 8) for _ in range(3)]
    halves = [x.half() for x in qkv]
    out = attend(halves[0], halves[1], halves[2], logsparse())
    assert out.dtype == torch.float16
    wide = [x.float() for x in halves]
    torch.testing.assert_close(out.float(), attend(wide[0], wide[1], wide[2], logsparse()), rtol=5e-3, atol=5e-3)


def test_a_mask_over_keys_is_refused_with_the_way_to_starts() -> None:
    x, padding = torch.randn(2, 2, 9, 4), torch.zeros(2, 9, dtype=torch.bool)
    with pytest.raises(DataError, match=r"Padding after the values needs none, since no row attends to later ones"):
        attend(x, x, x, logsparse(), starts=padding)


@pytest.mark.parametrize("pattern", [full(), logsparse(), logsparse(dense_rows=5)], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_meta_tensors_get_the_shape_of_the_result(pattern: Pattern, dropout: float) -> None:
    q = torch.empty(2, 4, 50, 8, device="meta", requires_grad=True)
    v = torch.empty(2, 4, 50, 6, device="meta", dtype=torch.float32)
    out = attend(q, q, v, pattern, dropout=dropout, starts=torch.zeros(2, dtype=torch.int64, device="meta"))
    assert (out.shape, out.dtype, out.device.type) == (v.shape, v.dtype, "meta")
    assert torch.autograd.grad(out.sum(), q)[0].shape == q.shape
