"""Process-wide settings: refuse to run in a forked process, and keep freed memory between steps.

polars and torch keep thread pools. A fork copies the memory of the pools but none of their threads, so that work given
to a pool in the child never finishes.

A training step allocates and frees the same tensors every time. By default the C library returns large blocks to the
system at once, and the next step spends up to 7 % of its time on new pages (docs/LOG.md).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from logsparse.errors import ConfigError

# Linux lists the threads of a process here; elsewhere only use of the pools by logsparse is known.
_THREADS = Path("/proc/self/task")


@dataclass
class _Process:
    started: bool = False
    """True if the pools may have threads."""
    lost: bool = False
    """True if they had threads before the fork that created this process."""


_process = _Process()


def refuse_forked() -> None:
    """Raise a ConfigError in a forked process whose thread pools are lost. Call it before polars or torch does work."""
    if _process.lost:
        raise ConfigError(
            "logsparse must not run in a fork of a process that has used polars or torch: their threads are lost.",
            got=f"the forked process {os.getpid()}",
            hint='start processes with multiprocessing.get_context("spawn") or "forkserver".',
        )
    _process.started = True


def _before_fork() -> None:
    _process.started = _process.started or _polars_runs()


def _in_child() -> None:
    _process.lost = _process.started


def _polars_runs() -> bool:
    """Return True if the thread pool of polars runs, even if started by the user's own code."""
    try:
        return any(re.match(r"polars-\d", (thread / "comm").read_text()) for thread in _THREADS.iterdir())
    except OSError:  # no such folder on this system, or a thread that has just ended
        return False


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)


# Parameters of mallopt in glibc; other C libraries lack the function or ignore it.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# The highest values that glibc would set by itself: the largest block on the heap, and what it keeps at its top.
_MMAP_BYTES = 32 * 2**20
_TRIM_BYTES = 2 * _MMAP_BYTES


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed blocks of up to 32 MiB inside the block; return them to the system after it."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        yield
        return
    library.mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)
    library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        library.mallopt(_TRIM_THRESHOLD, _TRIM_BYTES)
        library.malloc_trim(0)
