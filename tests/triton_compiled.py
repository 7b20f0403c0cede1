"""`python triton_compiled.py 80`: compile the kernels for sm_80 without a GPU; one JSON line per kernel and case.

A case is what `attend` launches: arguments are recorded, and triton compiles them as it would for a launch.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from logsparse.attention import triton as module
from logsparse.attention import triton_kernels as kernels
from logsparse.attention.attend import attend
from logsparse.attention.pattern import full, logsparse

NAMES = ("forward", "backward_rows", "backward_keys")
CASES = [
    (torch.float32, 32, logsparse(), True),
    (torch.float32, 64, full(), False),
    (torch.bfloat16, 32, logsparse(), True),
]


class Target:
    """The driver of a GPU that is not there."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0


class Recorded:
    """A kernel that is not started: its arguments are kept."""

    launches: list[tuple[Any, Any, Any, Any]] = []  # noqa: RUF012 - one list for all kernels

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int]) -> Any:
        return lambda *given, **options: self.launches.append((self.kernel, grid, given, options))


def usage(cubin: bytes) -> tuple[int, int]:
    """Registers per thread, and bytes of stack."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run([tool, "-res-usage", file.name], check=True, capture_output=True, text=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", said.stdout + said.stderr)
    assert found
    return int(found[1]), int(found[2])


def main() -> None:
    driver.set_active(Target(int(sys.argv[1])))
    module._INTERPRETED = True  # lets tensors on a CPU through; nothing is run
    for name in NAMES:
        setattr(kernels, name, Recorded(getattr(kernels, name)))
    for dtype, width, pattern, channel_first in CASES:
        shape = (2, 2, width, 512) if channel_first else (2, 2, 512, width)
        q, k, v = (torch.zeros(shape, dtype=dtype) for _ in range(3))
        q, k, v = ((x.mT if channel_first else x).requires_grad_() for x in (q, k, v))
        Recorded.launches.clear()
        out = attend(q, k, v, pattern, backend="triton", dropout=0.1, starts=torch.tensor([0, 3]))
        torch.autograd.grad(out, (q, k, v), torch.zeros_like(out))
        for kernel, grid, given, options in Recorded.launches:
            compiled = kernel.warmup(*given, grid=grid, **options)
            registers, stack = usage(compiled.asm["cubin"])
            target = re.search(r"\.target (sm_\d+)", compiled.asm["ptx"])
            about = {"kernel": kernel.__name__, "dtype": str(dtype), "width": width, "pattern": str(pattern)}
            found = {"target": target and target[1], "registers": registers, "stack": stack}
            print(json.dumps({**about, "channel_first": channel_first, **found}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
