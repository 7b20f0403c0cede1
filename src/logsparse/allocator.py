"""Nothing -> a context in which the process keeps the memory it frees.

A training step allocates and frees the same tensors again and again. By default the C library gives large blocks back
to the system at once, and the next step pays for fresh pages: up to 7 % of its time (docs/LOG.md).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

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
