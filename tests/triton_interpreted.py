"""The Triton kernels in the interpreter against the oracle; `test_triton.py` runs this file in its own process.

The interpreter must be asked for before triton is imported: TRITON_INTERPRET=1 pytest tests/triton_interpreted.py
With LOGSPARSE_TRITON_LONG=1 every pattern meets every length, which takes many minutes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from logsparse.attention import triton as module
from logsparse.attention.attend import attend
from logsparse.attention.pattern import full, local, logsparse, restart
from logsparse.attention.triton import Launch, triton_attend
from logsparse.errors import ConfigError, LogsparseError
from test_attend import PATTERNS, assert_equal_to_oracle, random_inputs, results

LENGTHS = (1, 2, 15, 16, 17, 33, 65, 127, 300)
WIDTHS = ((16, 16), (25, 25), (64, 7), (32, 48))
SHORT = [
    (1, "full", 0.0), (33, "full", 0.3), (65, "local", 0.3), (65, "restart", 0.0),
    (65, "dense rows", 0.3), (127, "custom", 0.3), (300, "logsparse", 0.0),
]  # fmt: skip
LONG = list(itertools.product(LENGTHS, PATTERNS, (0.0, 0.3)))
TOLERANCE = 2e-6


@pytest.fixture(autouse=True)
def larger_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes as long for a small tile as for a large one; both ways through the distances are in use."""
    launch(monkeypatch, Launch(32, 4, 6))


def launch(monkeypatch: pytest.MonkeyPatch, chosen: Launch) -> None:
    for table in ("_FORWARD", "_BACKWARD"):
        monkeypatch.setattr(module, table, {size: {module.WIDEST: chosen} for size in (2, 4)})


def wide(qkv: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The same numbers as float64 leaves, for the oracle."""
    q, k, v = (x.detach().double().requires_grad_() for x in qkv)
    return q, k, v


def cases() -> Iterator[tuple[int, str, float, tuple[int, int]]]:
    chosen = LONG if os.environ.get("LOGSPARSE_TRITON_LONG") == "1" else SHORT
    for case, widths in zip(chosen, itertools.cycle(WIDTHS), strict=False):
        yield *case, widths


def report(got: list[Tensor], oracle: list[Tensor]) -> None:
    """The largest differences, for whoever runs this file with -s."""
    found = [f"{(x - y).abs().max().item():.1e}" for x, y in zip(got, oracle, strict=True)]
    print("largest differences of out, grad q, grad k, grad v:", *found)  # noqa: T201


@pytest.mark.parametrize(("length", "name", "dropout", "widths"), list(cases()))
def test_values_and_gradients_are_those_of_the_oracle(
    length: int, name: str, dropout: float, widths: tuple[int, int]
) -> None:
    qkv = random_inputs((1, 1, length, widths[0]), values=widths[1], dtype=torch.float32, seed=length + len(name))
    got, oracle = results("triton", qkv, PATTERNS[name], dropout), results("dense", wide(qkv), PATTERNS[name], dropout)
    report(got, oracle)
    assert_equal_to_oracle(got, oracle, TOLERANCE)


@pytest.mark.parametrize("name", ["logsparse", "dense rows"])
def test_padding_is_not_seen_even_where_it_is_nan(name: str) -> None:
    starts = torch.tensor([0, 19, 45])
    qkv = random_inputs((3, 1, 45, 16), values=9, dtype=torch.float32)
    oracle = results("dense", wide(qkv), PATTERNS[name], 0.3, starts)
    soiled = tuple(x.detach().clone() for x in qkv)
    for x in soiled:
        for b, s in enumerate(starts.tolist()):
            x[b, :, :s] = torch.nan
        x.requires_grad_()
    got = results("triton", (soiled[0], soiled[1], soiled[2]), PATTERNS[name], 0.3, starts)
    report(got, oracle)
    assert_equal_to_oracle(got, oracle, TOLERANCE)
    for x in got:
        for b, s in enumerate(starts.tolist()):
            assert (x[b, :, :s] == 0).all(), "rows of padding, and gradients of padding, are exactly 0"


@pytest.mark.parametrize("chosen", [Launch(16, 4, 1), Launch(16, 4, 17), Launch(32, 4, 33)], ids=str)
def test_every_way_through_the_distances_gives_the_same(chosen: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, chosen)
    qkv = random_inputs((1, 2, 40, 16), dtype=torch.float32, seed=1)
    pattern = restart(24, 3, dense_rows=11)  # the kernels start at row 11, in the middle of a tile
    assert_equal_to_oracle(results("triton", qkv, pattern, 0.2), results("dense", wide(qkv), pattern, 0.2), TOLERANCE)


def test_float16_is_as_good_as_float16_can_be() -> None:
    qkv = random_inputs((1, 1, 70, 16), dtype=torch.float16)
    got, oracle = results("triton", qkv, logsparse()), results("dense", wide(qkv), logsparse())
    report(got, oracle)
    assert all(x.dtype == torch.float16 for x in got)
    assert_equal_to_oracle(got, oracle, 2e-3)


def test_expanded_and_skipping_strides_are_read_right() -> None:
    shared = torch.randn(1, 1, 40, 6, generator=torch.Generator().manual_seed(0))
    q, k, v = (shared.expand(2, 1, 40, 6)[:, :, ::2].detach().requires_grad_() for _ in range(3))
    out, oracle = (attend(q, k, v, local(4), backend=backend) for backend in ("triton", "dense"))
    # The incoming gradient has strides of zero.
    got, expected = (torch.autograd.grad(x.sum(), (q, k, v)) for x in (out, oracle))
    for x, y in zip((out, *got), (oracle, *expected), strict=True):
        assert torch.allclose(x, y, atol=1e-5)


def test_channel_first_memory_is_given_back_channel_first() -> None:
    for seed in (0, 1):
        q, k, v = random_inputs((1, 2, 20, 16), dtype=torch.float32, seed=seed)
        out = attend(q, k, v, logsparse(), backend="triton")
        assert out.stride() == q.stride()
        assert torch.autograd.grad(out.sum(), q)[0].stride() == q.stride()


def test_the_operator_passes_torch_s_own_checks() -> None:
    q, k, v = random_inputs((1, 1, 20, 3), dtype=torch.float32)
    given = (q, k, v, [0, 1, 2, 4, 16], 1, 0.1, torch.tensor(5), torch.tensor([3]))
    torch.library.opcheck(torch.ops.logsparse.attend_triton.default, given)


def test_torch_compile_gives_the_same_results() -> None:
    q, k, v = random_inputs((1, 1, 33, 8), dtype=torch.float32)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q * 2, k, v, restart(16, dense_rows=10), backend="triton", dropout=0.1).square()

    outcomes = []
    for function in (run, torch.compile(run, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(0)
        out = function(q, k, v)
        outcomes.append([out, *torch.autograd.grad(out.sum(), (q, k, v))])
    for plain, from_graph in zip(*outcomes, strict=True):
        assert torch.allclose(plain, from_graph, atol=1e-5)


def test_second_derivatives_are_refused() -> None:
    q, k, v = random_inputs((1, 1, 5, 4), dtype=torch.float32)
    first = torch.autograd.grad(attend(q, k, v, full(), backend="triton", dropout=0.1).sum(), q, create_graph=True)[0]
    with pytest.raises(ConfigError, match="compute first derivatives only"):
        torch.autograd.grad(first.sum(), q)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distances": [0, 9]}, "stay below the length, 9"),
        ({"first_row": 9}, "first_row must be 0 to 8"),
        ({"k": torch.ones(1, 1, 9, 4)}, "q and k must be"),
        ({"starts": torch.tensor([0, 1])}, "starts must be an int64 tensor"),
        ({"seed": torch.tensor([1, 2])}, r"seed must be one whole number.* Got \(2,\)"),
        ({name: torch.ones(1, 2, 9, 4, dtype=torch.float64) for name in "qkv"}, "Got torch.float64"),
        ({name: torch.ones(1, 2, 9, 129) for name in "qkv"}, "at most 128 channels on a GPU. Got 129 channels"),
    ],
    ids=str,
)
def test_the_operator_itself_refuses_what_would_read_foreign_memory(changes: dict[str, object], message: str) -> None:
    x = torch.ones(1, 2, 9, 4)
    given = {"q": x, "k": x, "v": x, "distances": [0, 1], "first_row": 0, "dropout": 0.0, "seed": None, "starts": None}
    with pytest.raises(LogsparseError, match=message):
        torch.ops.logsparse.attend_triton(*{**given, **changes}.values())


def test_a_start_below_0_counts_as_0() -> None:
    q, k, v = (x.detach() for x in random_inputs((1, 1, 20, 4), dtype=torch.float32))
    below = triton_attend(q, k, v, (0, 1, 2), 0, 0.0, None, torch.tensor([-5]))
    assert torch.equal(below, triton_attend(q, k, v, (0, 1, 2), 0, 0.0, None, None))
