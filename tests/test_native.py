"""The C++ kernel: built, correct at every instruction level, compiled, without copies, deterministic."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from logsparse.attention.attend import attend
from logsparse.attention.native import _native, available, native
from logsparse.attention.pattern import Pattern, from_distances, full, local, logsparse, restart
from logsparse.errors import LogsparseError
from test_attend import PATTERNS, assert_equal_to_oracle, random_inputs, results


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_extension_was_built() -> None:
    assert available(), "the C++ kernel did not build: the rest of the suite would test the fallback"


def test_every_level_of_the_processor_gives_the_oracle_s_results() -> None:
    qkv32 = random_inputs((2, 2, 150, 9), dtype=torch.float32)
    qkv64 = random_inputs((2, 2, 150, 9))
    best = _native.level()
    try:
        for level in _native.levels():
            _native.use(level)
            for name in ("local", "dense rows"):
                for qkv, tolerance in ((qkv32, 1e-5), (qkv64, 1e-10)):
                    oracle = results("dense", qkv, PATTERNS[name], 0.2)
                    assert_equal_to_oracle(results("native", qkv, PATTERNS[name], 0.2), oracle, tolerance)
    finally:
        _native.use(best)
    with pytest.raises(ValueError, match="unknown instruction set: abacus"):
        _native.use("abacus")


def at_level_and_threads(level: str, count: int, qkv: tuple[Tensor, Tensor, Tensor], *settings: Any) -> list[Tensor]:
    best, before = _native.level(), torch.get_num_threads()
    try:
        _native.use(level)
        torch.set_num_threads(count)
        return results("native", qkv, *settings)
    finally:
        _native.use(best)
        torch.set_num_threads(before)


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_patterns_that_repeat_equal_the_oracle_in_values_and_gradients(data: st.DataObject) -> None:
    """The kernel folds them: any period, length, padding, dense rows and number of threads, at every level."""
    period = data.draw(st.sampled_from([5, 12, 16, 17, 24, 32, 72, 96]), "period")
    length = data.draw(st.integers(1, min(13 * period, 900)), "length")
    dense_rows = data.draw(st.sampled_from([0, 0, 1, length // 9, length // 2, length]), "dense rows")
    pattern = restart(period, data.draw(st.none() | st.integers(1, 9), "width"), dense_rows=dense_rows)
    batch, heads = data.draw(st.sampled_from([(1, 1), (1, 2), (3, 1)]), "batch, heads")
    width, values = data.draw(st.sampled_from([(1, 1), (3, 4), (8, 7), (25, 25), (26, 35)]), "channels")
    dtype, tolerance = data.draw(st.sampled_from([(torch.float64, 1e-10), (torch.float32, 2e-5)]), "type")
    dropout = data.draw(st.sampled_from([0.0, 0.3]), "dropout")
    starts_B, padded = None, [0] * batch
    if data.draw(st.booleans(), "padding"):
        padded = data.draw(st.lists(st.integers(0, length), min_size=batch, max_size=batch), "starts")
        starts_B = torch.tensor(padded)
    qkv = random_inputs((batch, heads, length, width), values=values, dtype=dtype, seed=data.draw(st.integers(0, 9)))
    oracle = results("dense", qkv, pattern, dropout, starts_B)
    for x in qkv:
        for b, start in enumerate(padded):
            x.data[b, :, :start] = torch.nan  # must not be read
    for level in _native.levels():
        for count in (1, 2):
            found = at_level_and_threads(level, count, qkv, pattern, dropout, starts_B)
            if all(start == length for start in padded):
                assert all((x == 0).all() for x in found)
            else:
                assert_equal_to_oracle(found, oracle, tolerance)


REPEATING = [0, 1, 3, 40, 41, 43, 80, 81, 83, 120, 121, 123]


@pytest.mark.parametrize(
    "distances",
    [
        REPEATING,
        REPEATING[:-1],
        REPEATING[:5] + REPEATING[6:],
        [*REPEATING, 124],
        list(range(0, 150, 20)),
        [0, 70, 140],
    ],
    ids=["repeats", "ends early", "has a gap", "has one more", "one a period", "two periods"],
)
def test_patterns_that_nearly_repeat_equal_the_oracle(distances: list[int]) -> None:
    pattern: Pattern = from_distances(distances)
    for length in (150, 160, 161):
        qkv = random_inputs((1, 2, length, 6), values=5)
        oracle = results("dense", qkv, pattern, 0.2)
        for level in _native.levels():
            assert_equal_to_oracle(at_level_and_threads(level, 1, qkv, pattern, 0.2), oracle, 1e-10)


@pytest.mark.parametrize("length", [1000, 2100])
def test_patterns_of_many_periods_equal_the_oracle(length: int) -> None:
    qkv = random_inputs((1, 1, length, 4), values=5)
    oracle = results("dense", qkv, restart(24, dense_rows=50), 0.1)
    for level in _native.levels():
        assert_equal_to_oracle(at_level_and_threads(level, 1, qkv, restart(24, dense_rows=50), 0.1), oracle, 1e-10)


def test_nan_and_large_scores_of_patterns_that_repeat_behave_as_in_softmax() -> None:
    pattern = restart(24)
    qkv = [x.detach() for x in random_inputs((1, 1, 200, 4), dtype=torch.float32)]
    q, k, v = qkv
    huge = attend(q * 1e4, k * 1e4, v, pattern, backend="native")
    assert torch.allclose(huge, attend(q * 1e4, k * 1e4, v, pattern, backend="dense"), atol=1e-5)
    q[0, 0, 150] = torch.nan
    leaves = q.requires_grad_(), k.requires_grad_(), v.requires_grad_()
    out, grad_q, grad_k, grad_v = (
        x.isnan().any(-1)[0, 0].nonzero().flatten() for x in results("native", leaves, pattern)
    )
    seen = sorted(150 - s for s in pattern.distances(200) if s <= 150)
    assert out.tolist() == grad_q.tolist() == [150]
    assert grad_k.tolist() == grad_v.tolist() == seen


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_gradcheck_passes(dropout: float) -> None:
    seed = torch.tensor(3) if dropout else None

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return native(q, k, v, local(3).distances(11), 2, dropout, seed, torch.tensor([4]))

    assert torch.autograd.gradcheck(run, random_inputs((1, 2, 11, 3), values=2))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_operator_passes_torch_s_own_checks(dropout: float) -> None:
    for seed in (0, 1):
        q, k, v = random_inputs((1, 2, 70, 3), seed=seed)
        number = torch.tensor(5) if dropout else None
        for starts in (None, torch.tensor([9])):
            operator = torch.ops.logsparse.attend.default
            torch.library.opcheck(operator, (q, k, v, [0, 1, 2, 4, 60], 1, dropout, number, starts))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distances": []}, r"distances must ascend from 0 and stay below the length, 9. Got \[\]"),
        ({"distances": [0, -3]}, r"distances must ascend from 0 .* Got \[0, -3\]"),
        ({"distances": [-1, 0]}, "distances must ascend from 0"),
        ({"distances": [1, 2]}, "distances must ascend from 0"),
        ({"distances": [0, 2, 2]}, "distances must ascend from 0"),
        ({"distances": [0, 9]}, "stay below the length, 9"),
        ({"k": torch.ones(1, 2, 5, 4)}, "q and k must be"),
        ({"k": torch.ones(1, 1, 9, 4)}, "q and k must be"),
        ({"v": torch.ones(2, 9, 4)}, "q and k must be"),
        ({"v": torch.ones(1, 2, 9, 4, dtype=torch.float64)}, "must share one device and one type"),
        ({"dense_rows": 10}, "dense_rows must be 0 to 9"),
        ({"dense_rows": -1}, "dense_rows must be 0 to 9"),
        ({"dropout": 1.0}, "dropout at least 0 and below 1"),
        ({"starts": torch.tensor([-2])}, "no start below 0"),
        ({"starts": torch.tensor([0, 1])}, "starts must be an int64 tensor"),
        ({"starts": torch.tensor([0.5])}, "starts must be an int64 tensor"),
        ({"dropout": 0.5, "seed": torch.tensor(-1)}, "seed must be one whole number of at least 0.* Got -1"),
        ({"dropout": 0.5, "seed": torch.tensor([1, 2])}, r"seed must be one whole number.* Got \(2,\)"),
        ({"dropout": 0.5, "seed": torch.tensor(torch.nan)}, "seed must be one whole number"),
    ],
    ids=str,
)
def test_the_operator_refuses_arguments_that_would_read_outside_memory(changes: dict[str, Any], message: str) -> None:
    x = torch.ones(1, 2, 9, 4)
    given = {"q": x, "k": x, "v": x, "distances": [0, 1], "dense_rows": 0, "dropout": 0.0, "seed": None, "starts": None}
    with pytest.raises(LogsparseError, match=message):
        torch.ops.logsparse.attend(*{**given, **changes}.values())


def test_the_backward_operator_refuses_gradients_of_another_shape() -> None:
    x = torch.ones(1, 2, 9, 4)
    out, lse = torch.ops.logsparse.attend(x, x, x, [0, 1], 0, 0.0, None, None)
    wrong = [(out[:, :, :5], out, lse), (out.double(), out, lse), (out, out[:, :, :5], lse), (out, out, lse[:, :, :5])]
    for grad, kept, sums in (*wrong, (out, out, lse.mT.mT[:, :1])):
        with pytest.raises(LogsparseError, match="as returned by the forward pass"):
            torch.ops.logsparse.attend_backward(grad, [x, x, x, kept, sums], [0, 1], 0, 0.0, None, None)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_torch_compile_gives_the_same_results(dropout: float) -> None:
    q, k, v = random_inputs((2, 2, 80, 8), dtype=torch.float32)
    pattern = restart(16, dense_rows=10)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q * 2, k, v, pattern, backend="native", dropout=dropout).square()

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    outcomes = []
    for function in (run, compiled):
        torch.manual_seed(0)
        out = function(q, k, v)
        outcomes.append([out, *torch.autograd.grad(out.sum(), (q, k, v))])
    for plain, from_graph in zip(*outcomes, strict=True):
        assert torch.allclose(plain, from_graph, atol=1e-5)


@pytest.mark.parametrize("name", PATTERNS)
def test_bfloat16_is_within_its_rounding_error(name: str) -> None:
    qkv = random_inputs((2, 2, 130, 16), dtype=torch.bfloat16)
    q, k, v = (x.detach().double().requires_grad_() for x in qkv)
    exact = results("dense", (q, k, v), PATTERNS[name])
    got = results("native", qkv, PATTERNS[name])
    assert all(x.dtype == torch.bfloat16 for x in got)
    assert_equal_to_oracle(got, exact, 1e-2)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.usefixtures("threads")
def test_results_are_the_same_bits_every_time_for_any_number_of_threads(count: int) -> None:
    qkv = random_inputs((2, 2, 300, 8), dtype=torch.float32)
    torch.set_num_threads(1)
    expected = results("native", qkv, restart(40), 0.1)
    torch.set_num_threads(count)
    first, second = (results("native", qkv, restart(40), 0.1) for _ in range(2))
    for x, y in zip(first, second, strict=True):
        assert torch.equal(x, y)
    assert_equal_to_oracle(first, expected, 1e-6)
    assert torch.equal(first[0], expected[0])


@pytest.mark.usefixtures("threads")
def test_threads_sharing_one_head_agree_with_the_oracle() -> None:
    torch.set_num_threads(3)
    for pattern in PATTERNS.values():
        qkv = random_inputs((1, 1, 400, 5))
        oracle = results("dense", qkv, pattern, 0.1)
        assert_equal_to_oracle(results("native", qkv, pattern, 0.1), oracle, 1e-10)


def test_channel_first_memory_is_taken_without_a_copy_and_given_back_channel_first() -> None:
    conv = torch.randn(2, 3 * 4 * 8, 500, requires_grad=True)  # as a convolution gives q, k, v
    q, k, v = conv.view(2, 3, 4, 8, 500).mT.unbind(1)
    assert q.stride(2) == 1
    with torch.profiler.profile(profile_memory=True) as profile:
        out = attend(q, k, v, logsparse(), backend="native")
    assert out.stride() == (4 * 8 * 500, 8 * 500, 1, 500)
    assert not any(event.key in {"aten::copy_", "aten::clone", "aten::contiguous"} for event in profile.key_averages())
    q_row, k_row, v_row = (x.contiguous() for x in (q, k, v))
    rows_first = attend(q_row, k_row, v_row, logsparse(), backend="native")
    assert rows_first.is_contiguous()
    assert torch.equal(out, rows_first)


def test_expanded_and_skipping_strides_are_supported() -> None:
    shared = torch.randn(1, 1, 90, 6, dtype=torch.float64)
    q, k, v = (shared.expand(2, 3, 90, 6)[:, :, ::2].detach().requires_grad_() for _ in range(3))
    out = attend(q, k, v, logsparse(), backend="native")
    oracle = attend(q, k, v, logsparse(), backend="dense")
    assert torch.allclose(out, oracle)
    gradients = torch.autograd.grad(out.sum(), (q, k, v))  # an incoming gradient with strides of zero
    expected = torch.autograd.grad(oracle.sum(), (q, k, v))
    for x, y in zip(gradients, expected, strict=True):
        assert torch.allclose(x, y, atol=1e-12)


def test_nan_and_large_scores_behave_as_in_softmax() -> None:
    q, k, v = (x.detach() for x in random_inputs((1, 1, 100, 4), dtype=torch.float32))
    huge = attend(q * 1e4, k * 1e4, v, logsparse(), backend="native")
    assert torch.allclose(huge, attend(q * 1e4, k * 1e4, v, logsparse(), backend="dense"), atol=1e-5)
    q[0, 0, 50] = torch.nan
    got = attend(q, k, v, logsparse(), backend="native").isnan().any(-1)
    assert got.nonzero().tolist() == [[0, 0, 50]]


def test_one_openmp_runtime_serves_torch_and_the_kernel() -> None:
    script = (
        "import logsparse.attention.attend\n"
        "names = {line.split()[-1] for line in open('/proc/self/maps') if 'omp' in line.split('/')[-1]}\n"
        "assert len(names) == 1, names\n"
    )
    if sys.platform == "linux":
        subprocess.run([sys.executable, "-c", script], check=True)


def test_the_first_call_does_not_import_the_compiler() -> None:
    # It would: a custom_op's first call imports torch._dynamo and sympy, 2.5 seconds of a core for every `predict`.
    program = """
import sys, torch
from logsparse.attention.layer import ConvAttention
from logsparse.attention.pattern import logsparse
layer = ConvAttention(8, 2, logsparse(), kernel=3)
layer(torch.ones(1, 9, 8)).sum().backward()
print([name for name in ("torch._dynamo", "sympy", "triton") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("pattern", [full(), restart(24), restart(24, dense_rows=40)], ids=str)
def test_gradients_of_bfloat16_match_plain_torch_for_sharp_weights(pattern: Pattern) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v, weight = (torch.randn(2, 4, 97, 16, generator=generator).bfloat16() for _ in range(4))

    def gradients(backend: str, dtype: torch.dtype) -> list[Tensor]:
        given = [x.to(dtype).requires_grad_() for x in (20 * q, k, v)]
        found = torch.autograd.grad(
            attend(given[0], given[1], given[2], pattern, backend=backend), given, weight.to(dtype)
        )
        return [x.double() for x in found]

    true = gradients("dense", torch.float64)
    for threads in (1, 16):  # threads of their own heads, and threads that share one
        torch.set_num_threads(threads)
        pair = gradients("native", torch.bfloat16), gradients("shifted", torch.bfloat16)
        for wanted, ours, plain in zip(true, *pair, strict=True):
            assert (ours - wanted).norm() <= 1.2 * (plain - wanted).norm()
