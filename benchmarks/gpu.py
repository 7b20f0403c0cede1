"""Lengths, patterns -> time of attention on a GPU: the Triton kernels, FlexAttention with the pattern, causal SDPA.

Forward, and forward + backward; contenders alternate, best of several runs by the clock of the device. Prints one
table and writes one JSON file to results/. Without a GPU it says so and exits with code 1.

    python benchmarks/gpu.py [--dtype bfloat16] [--longest 65536]
"""

# B batch, H heads, L length, D head width

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention as sdpa

from logsparse.attention.attend import attend
from logsparse.attention.pattern import Pattern, logsparse, restart
from machine import write_result

LENGTHS = (768, 4096, 16384, 65536)
BATCH, HEADS, WIDTH, ROUNDS = 4, 8, 32, 20


def patterns(length: int) -> dict[str, Pattern]:
    return {"logsparse": logsparse(), "restart": restart(length // 8)}


def leaves(length: int, dtype: torch.dtype, *, rows: bool) -> list[Tensor]:
    """q, k, v, (B, H, L, D): row-major, or channel-first, the layout of a convolution's output."""
    shape = (BATCH, HEADS, length, WIDTH) if rows else (BATCH, HEADS, WIDTH, length)
    made = [torch.randn(shape, dtype=dtype, device="cuda") for _ in range(3)]
    return [(x if rows else x.mT).detach().requires_grad_() for x in made]


def flex(pattern: Pattern, length: int) -> Callable[..., Tensor]:
    """Compile FlexAttention over the cells of the pattern."""
    is_distance_L = torch.zeros(length, dtype=torch.bool, device="cuda")
    is_distance_L[list(pattern.distances(length))] = True

    def cell(_batch: Tensor, _head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return (row >= key) & is_distance_L[(row - key).clamp(min=0)]

    mask = create_block_mask(cell, None, None, length, length, device="cuda")
    compiled = torch.compile(flex_attention)
    return lambda q, k, v: compiled(q, k, v, block_mask=mask)


def milliseconds(work: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def best_of(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    for work in works.values():
        work()  # compiles
    best = dict.fromkeys(works, float("inf"))
    for _ in range(ROUNDS):
        for name, work in works.items():
            best[name] = min(best[name], milliseconds(work))
    return best


def measure(length: int, name: str, pattern: Pattern, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Return one row per contender."""
    row_major, channel_first = leaves(length, dtype, rows=True), leaves(length, dtype, rows=False)
    masked = flex(pattern, length)
    contenders: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
        "causal SDPA": (lambda q, k, v: sdpa(q, k, v, is_causal=True), row_major),
        "FlexAttention": (masked, row_major),
        "triton": (lambda q, k, v: attend(q, k, v, pattern, backend="triton"), channel_first),
        "triton rows": (lambda q, k, v: attend(q, k, v, pattern, backend="triton"), row_major),
    }

    def forward(run: Callable[..., Tensor], given: list[Tensor]) -> Callable[[], object]:
        def work() -> object:
            with torch.no_grad():
                return run(*given)

        return work

    def both(run: Callable[..., Tensor], given: list[Tensor]) -> Callable[[], object]:
        incoming = torch.ones_like(given[0])
        return lambda: torch.autograd.grad(run(*given), given, incoming)

    times = {
        passes: best_of({contender: make(*about) for contender, about in contenders.items()})
        for passes, make in (("forward", forward), ("both", both))
    }
    rows = []
    for contender in contenders:
        row: dict[str, Any] = {"length": length, "pattern": name, "dtype": str(dtype), "contender": contender}
        for passes, best in times.items():
            row[f"{passes}_ms"] = best[contender]
            row[f"{passes}_ratio"] = best["causal SDPA"] / best[contender]
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float32")
    parser.add_argument("--longest", type=int, default=LENGTHS[-1], help="leave longer sequences out")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks/gpu.py needs a GPU: torch finds none here.", file=sys.stderr)
        return 1
    torch.manual_seed(0)
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}, B={BATCH} H={HEADS} d={WIDTH}, {options.dtype}")
    print(f"{'length':>7} {'pattern':<10} {'contender':<14} {'forward':>12} {'ratio':>8} {'both':>12} {'ratio':>8}")
    rows: list[dict[str, Any]] = []
    for length in (length for length in LENGTHS if length <= options.longest):
        for name, pattern in patterns(length).items():
            for row in measure(length, name, pattern, getattr(torch, options.dtype)):
                rows.append({"device": device, **row})
                times = " ".join(f"{row[f'{p}_ms']:9.3f} ms {row[f'{p}_ratio']:7.2f}x" for p in ("forward", "both"))
                print(f"{length:>7} {name:<10} {row['contender']:<14} {times}", flush=True)
    print(f"wrote {write_result('gpu', rows).name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
