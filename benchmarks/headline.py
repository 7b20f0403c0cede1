"""The headline figure of the kernel: native against torch's causal SDPA, pattern logsparse, d = 32, best of many runs.

The two alternate. Takes a minute; benchmarks/attention.py measures every pattern and contender.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from logsparse.attention.attend import attend
from logsparse.attention.pattern import Pattern, logsparse, restart
from machine import measured_copy, peak_of, write_result

ROUNDS = 7
CASES: list[tuple[Pattern, int, int]] = [
    (logsparse(), 768, 32),
    (restart(96), 768, 25),
    (logsparse(), 4096, 32),
    (logsparse(), 8192, 32),
]


def inputs(length: int, width: int, batch: int = 4) -> list[Tensor]:
    """Return a tensor in channel-first memory, the layout of a convolution's output."""
    return [torch.randn(batch, 8, width, length).mT.requires_grad_() for _ in range(3)]


def best_of(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(ROUNDS):
        for name, work in contenders.items():
            for _ in range(1 if name == "sdpa" else 3):
                start = time.perf_counter()
                work()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def measure(pattern: Pattern, length: int, width: int, copy: float) -> dict[str, object]:
    q, k, v = inputs(length, width)
    rows = [x.detach().contiguous().requires_grad_() for x in (q, k, v)]  # the layout SDPA is fastest on

    def passes(work: Callable[[], Tensor], leaves: list[Tensor]) -> Callable[[], object]:
        def run() -> object:
            out = work()
            return torch.autograd.grad(out, leaves, torch.ones_like(out))

        return run

    def native() -> Tensor:
        return attend(q, k, v, pattern, backend="native")

    def causal() -> Tensor:
        return sdpa(rows[0], rows[1], rows[2], is_causal=True)

    with torch.no_grad():
        forward = best_of({"native": native, "sdpa": causal})
    backward = best_of({"native": passes(native, [q, k, v]), "sdpa": passes(causal, rows)})
    moved = 4 * q.numel() * q.element_size()
    return {
        "pattern": repr(pattern),
        "length": length,
        "width": width,
        "forward_ms": 1e3 * forward["native"],
        "forward_ratio": forward["sdpa"] / forward["native"],
        "both_ms": 1e3 * backward["native"],
        "both_ratio": backward["sdpa"] / backward["native"],
        "share_of_copy_bandwidth": moved / copy / forward["native"],
    }


def memory(length: int = 65_536) -> dict[str, object]:
    q, k, v = inputs(length, 32, batch=1)
    tensors = 8 * q.numel() * q.element_size()

    def work() -> object:
        out = attend(q, k, v, logsparse(), backend="native")
        return torch.autograd.grad(out, [q, k, v], torch.ones_like(out))

    grown = peak_of(work)
    held = 3 * q.numel() * q.element_size()  # q, k, v existed before
    return {"pattern": repr(logsparse()), "length": length, "peak_of_tensors": (grown + held) / tensors}


def main() -> None:
    torch.set_num_threads(2)
    found = memory()
    print(f"L={found['length']}: peak {found['peak_of_tensors']:.2f} x q, k, v, o and their gradients")
    copy = measured_copy()
    results = [found]
    for pattern, length, width in CASES:
        row = measure(pattern, length, width, copy)
        results.append(row)
        print(
            f"{row['pattern']:<42} L={length:<6} d={width}  forward {row['forward_ratio']:6.1f}x"
            f"  both {row['both_ratio']:6.1f}x  {row['share_of_copy_bandwidth']:.0%} of the copy bandwidth",
            flush=True,
        )
    print(f"wrote {write_result('headline', results).name}")


if __name__ == "__main__":
    main()
