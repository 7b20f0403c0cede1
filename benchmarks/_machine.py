"""The machine at hand -> its name for result files, its copy bandwidth, the peak memory of some work."""

from __future__ import annotations

import os
import platform
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch


def name_of_machine() -> str:
    """Processor model and number of cores; never a host name."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*:\s*(.+)", info.read_text())):
        model = found.group(1)
    words = re.sub(r"\([^)]*\)|@.*|CPU|Processor", " ", model).split()
    return "-".join([*words, f"{os.cpu_count()}-cores"]).lower()


def fair_clock() -> Callable[[], float]:
    """With one thread, its processor time: a busy machine disturbs that little."""
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


def measured_copy(mebibytes: int = 256) -> float:
    """Bytes read plus bytes written per second, best of ten copies."""
    clock = fair_clock()
    source = torch.ones(mebibytes * 2**18)
    target = torch.ones_like(source)
    best = float("inf")
    for _ in range(10):
        start = clock()
        target.copy_(source)
        best = min(best, clock() - start)
    return 2 * source.numel() * 4 / best


def peak_of(work: Callable[[], object]) -> int:
    """Bytes by which the process grows at its peak while `work` runs."""
    before = psutil.Process().memory_info().rss
    status = Path("/proc/self/status")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forgets earlier peaks, such as that of the imports
    except OSError:
        status = Path()
    work()
    if status.is_file() and (found := re.search(r"VmHWM:\s*(\d+)", status.read_text())):
        return int(found.group(1)) * 1024 - before
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
