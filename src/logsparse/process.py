"""What holds for the whole process: a forked copy is refused, and freed memory can be kept for the next step.

polars and torch keep pools of threads. A fork copies the memory of the pools and none of their threads, so the first
work that is given to a pool in the child is never done.

A training step allocates and frees the same tensors again and again. By default the C library gives large blocks back
to the system at once, and the next step pays for fresh pages: up to 7 % of its time (docs/LOG.md).
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

# Linux names the threads of a process here; elsewhere only our own use of the pools is known.
_THREADS = Path("/proc/self/task")


@dataclass
class _Process:
    started: bool = False
    """Whether the pools may have threads."""
    lost: bool = False
    """Whether they had some before the fork that made this process."""


_process = _Process()


def refuse_forked() -> None:
    """To be called before any work of polars or torch; from then on a fork of this process is refused."""
    if _process.lost:
        raise ConfigError(
            "logsparse must not work in a fork of a process that has used polars or torch: their threads are lost.",
            got=f"the forked process {os.getpid()}",
            hint='start processes with multiprocessing.get_context("spawn") or "forkserver".',
        )
    _process.started = True


def _before_fork() -> None:
    _process.started = _process.started or _polars_runs()


def _in_child() -> None:
    _process.lost = _process.started


def _polars_runs() -> bool:
    """Whether the pool of polars was started, be it by the user's own code."""
    try:
        return any(re.match(r"polars-\d", (thread / "comm").read_text()) for thread in _THREADS.iterdir())
    except OSError:  # no such folder here, or a thread that has just ended
        return False


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)


# Parameters of glibc's mallopt. Other C libraries have no such function, or ignore it.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# The largest block that glibc takes from its heap, and what it keeps at the top of the heap then, if left to itself.
_MMAP_BYTES = 32 * 2**20
_TRIM_BYTES = 2 * _MMAP_BYTES


@contextmanager
def kept_memory() -> Iterator[None]:
    """Inside, freed blocks of up to 32 MiB stay with the process; afterwards they are given back."""
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
