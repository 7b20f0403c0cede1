"""Freed memory stays with the process inside the block, and is returned to the system after it."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, resource, psutil, torch
from logsparse.process import kept_memory
if not hasattr(ctypes.CDLL(None), "mallopt"):
    raise SystemExit(77)
mebibytes = lambda: psutil.Process().memory_info().rss / 2**20
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
blocks = lambda: [torch.ones(2 * 2**20) for _ in range(20)]
before = mebibytes()
with kept_memory():
    blocks()
    began = faults()
    for _ in range(5):
        blocks()
    again, inside = faults() - began, mebibytes()
print(again, inside - before, mebibytes() - before)
"""


def test_freed_memory_is_used_again_inside_and_given_back_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this C library has no mallopt")
    faults, inside, after = (float(word) for word in done.stdout.split())
    assert faults < 20_000, "100 blocks of 2,048 pages each were touched"
    assert inside > 150
    assert after < 20
