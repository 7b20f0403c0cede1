"""Forms of the causal convolution for queries and keys -> their times, alone and with the attention that follows.

Forward and backward together. The forms alternate, and the best of several rounds counts: wall time with torch's
threads, and processor time with one thread, which other load on the machine hardly affects.
"""

# B batch, L length, W width, H heads, D head width, K kernel, C channels of queries and keys together

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from logsparse.attention.attend import attend
from logsparse.attention.layer import project
from logsparse.attention.pattern import Pattern, logsparse, restart
from machine import write_result

Form: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
CASES = [  # B, L, W, H, D, K
    ((64, 192, 25, 8, 25, 9), logsparse()),
    ((64, 192, 25, 8, 25, 1), logsparse()),
    ((64, 192, 48, 4, 12, 6), logsparse()),
    ((8, 768, 25, 8, 25, 6), restart(96)),
    ((8, 768, 48, 4, 12, 6), restart(96)),
]


def chosen(x_BLW: Tensor, weight_CWK: Tensor, bias_C: Tensor) -> Tensor:
    """Convolve as the layer does: by the kernel, which computes the values as well."""
    half = len(bias_C) // 2
    q_BCL, k_BCL, _ = project(x_BLW, weight_CWK, bias_C, weight_CWK[:half, :, -1], bias_C[:half], None)
    return torch.cat([q_BCL, k_BCL], dim=1)


def conv1d(x_BLW: Tensor, weight_CWK: Tensor, bias_C: Tensor) -> Tensor:
    """Convolve by Conv1d; the output is channel-first, (B, C, L)."""
    return F.conv1d(F.pad(x_BLW.mT, (weight_CWK.shape[2] - 1, 0)), weight_CWK, bias_C)


def unfold(x_BLW: Tensor, weight_CWK: Tensor, bias_C: Tensor) -> Tensor:
    """Convolve by one matrix product over unfolded windows; channel-last memory, viewed as (B, C, L)."""
    windows = F.pad(x_BLW, (0, 0, weight_CWK.shape[2] - 1, 0)).unfold(1, weight_CWK.shape[2], 1)
    return F.linear(windows.flatten(2), weight_CWK.flatten(1), bias_C).mT


def unfold_first(x_BLW: Tensor, weight_CWK: Tensor, bias_C: Tensor) -> Tensor:
    """Convolve by one product per item of the batch, so that the output is channel-first."""
    windows = F.pad(x_BLW, (0, 0, weight_CWK.shape[2] - 1, 0)).unfold(1, weight_CWK.shape[2], 1).flatten(2)
    return torch.baddbmm(bias_C[:, None], weight_CWK.flatten(1).expand(len(x_BLW), -1, -1), windows.mT)


def shifted(x_BLW: Tensor, weight_CWK: Tensor, bias_C: Tensor) -> Tensor:
    """Convolve by one matrix product per step of the kernel; the output is channel-last."""
    length, kernel = x_BLW.shape[1], weight_CWK.shape[2]
    padded = F.pad(x_BLW, (0, 0, kernel - 1, 0))
    out = bias_C
    for step in range(kernel):
        out = out + padded[:, step : step + length] @ weight_CWK[:, :, step].T
    return out.mT


FORMS: list[Form] = [chosen, conv1d, unfold, unfold_first, shifted]


def attention(form: Form, sizes: tuple[int, ...], pattern: Pattern) -> Callable[[], None]:
    """Run the convolution, pointwise values in the same layout, attention with dropout, and the backward pass."""
    x, weight, bias, value, towards = tensors(sizes)
    _, _, _, heads, head_width, _ = sizes

    def run() -> None:
        q_k = form(x, weight, bias)
        v = torch.bmm(value.expand(len(x), -1, -1), x.mT) if q_k.stride(2) == 1 else F.linear(x, value).mT
        q, k, v = (part.reshape(len(x), heads, head_width, -1).mT for part in (*q_k.chunk(2, dim=1), v))
        out = attend(q, k, v, pattern, dropout=0.1)
        torch.autograd.grad(out, (x, weight, bias, value), towards.as_strided(out.shape, out.stride()))

    return run


def alone(form: Form, sizes: tuple[int, ...], _pattern: Pattern) -> Callable[[], None]:
    x, weight, bias, _, towards = tensors(sizes)

    def run() -> None:
        out = form(x, weight, bias)
        torch.autograd.grad(out, (x, weight, bias), towards.as_strided(out.shape, out.stride()))

    return run


def tensors(sizes: tuple[int, ...]) -> Iterator[Tensor]:
    batch, length, width, heads, head_width, kernel = sizes
    inner = heads * head_width
    for shape in ((batch, length, width), (2 * inner, width, kernel), (2 * inner,), (inner, width)):
        yield torch.randn(shape).mul_(0.1).requires_grad_()
    yield torch.randn(batch * length * 2 * inner)


def best_times(runs: dict[str, Callable[[], None]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            begin = clock()
            run()
            best[name] = min(best[name], clock() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    threads = torch.get_num_threads()
    rows = []
    print(f"milliseconds, forward + backward: wall with {threads} threads / processor with one")
    for sizes, pattern in CASES:
        print("batch {}, length {}, width {}, {} heads of {}, kernel {}".format(*sizes), pattern)
        for part in (alone, attention):
            runs = {form.__name__: part(form, sizes, pattern) for form in FORMS}
            wall = best_times(runs, rounds, time.perf_counter)
            torch.set_num_threads(1)
            processor = best_times(runs, max(3, rounds // 2), time.process_time)
            torch.set_num_threads(threads)
            shown = [f"{name} {1e3 * wall[name]:.1f} / {1e3 * processor[name]:.1f}" for name in runs]
            print(f"  {part.__name__:10}", "   ".join(shown), flush=True)
            rows += [
                {"sizes": sizes, "pattern": repr(pattern), "part": part.__name__, "form": name, "threads": threads,
                 "wall_seconds": wall[name], "one_thread_seconds": processor[name]}
                for name in runs
            ]  # fmt: skip
    print("written:", write_result("convolution", rows).name)


if __name__ == "__main__":
    main()
