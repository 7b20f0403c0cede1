"""Ctrl-C and SIGTERM -> a wish to stop that a long work looks at between its steps; said twice, it is an interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Whoever has set a handler of their own keeps it, and a process that ignores Ctrl-C goes on ignoring it.
_USUAL = (signal.SIG_DFL, signal.default_int_handler)


@dataclass
class Wish:
    """Whether a stop was asked for."""

    stop: bool = False


@contextmanager
def asked_to_stop(*, heed: bool = True) -> Iterator[Wish]:
    """Inside, the first signal ends no step in its middle; the second one is a KeyboardInterrupt at once.

    Python gives signals to its main thread only: in any other, and without `heed`, they do as usual.
    """
    wish = Wish()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if wish.stop:
            raise KeyboardInterrupt
        wish.stop = True

    heed = heed and threading.current_thread() is threading.main_thread()
    taken = {number: was for number in _SIGNALS if heed and (was := signal.getsignal(number)) in _USUAL}
    try:
        for number in taken:
            signal.signal(number, ask)
        yield wish
    finally:
        for number, was in taken.items():
            signal.signal(number, was)
