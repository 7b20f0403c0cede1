"""Bytes that a table will take -> nothing, or a refusal before it is read: polars ends the process when memory does."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from logsparse.errors import DataError

# Measured peaks while a table is read (docs/data.md): ids, times, order and values of a row; a column beside them.
A_LONG_ROW, A_COLUMN_BESIDE = 120, 16
# A cell of the panel, and one of a wide table's columns that are read at once.
A_CELL, A_CELL_READ = 4, 16
# Of the size of a csv file: its text and the table made of it.
CSV_TIMES = 3


def check_memory(needed: float, of: str) -> None:
    """Refuse what would not fit into the memory that is free now."""
    free = available()
    if needed > free:
        raise DataError(
            "A table must fit into memory.",
            got=f"{of}, which take about {needed / 2**30:.1f} GiB where {free / 2**30:.1f} GiB are free",
            hint="read fewer series, a shorter span or fewer columns at a time, or use a machine with more memory.",
        )


def available() -> int:
    """Bytes that this process may still take: what the machine, the container and the shell's limit leave."""
    return min(_of_machine(), _of_container(), _of_limit())


def _of_machine() -> int:
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_container() -> int:
    """By the limits of control groups as they are seen from within, of either version; files count as free."""
    left = [2**63]
    for folder, most, taken in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            stat = dict(line.split() for line in (Path(folder) / "memory.stat").read_text().splitlines())
            cached = int(stat.get("inactive_file", stat.get("total_inactive_file", 0)))
            left.append(int((Path(folder) / most).read_text()) - int((Path(folder) / taken).read_text()) + cached)
    return max(min(left), 0)


def _of_limit() -> int:
    """By `ulimit -v`, where there is one."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            return max(most - taken, 0)
    return 2**63
