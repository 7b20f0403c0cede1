"""The first signal is a wish to stop, the second an interrupt; whoever handles signals themselves goes on doing so."""

from __future__ import annotations

import signal
import threading

import pytest

from logsparse.train.loop import asked_to_stop

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@SIGNALS
def test_the_first_is_a_wish_and_the_second_interrupts(number: signal.Signals) -> None:
    before, stops = signal.getsignal(number), []
    with asked_to_stop() as wish:
        stops.append(wish.stop)
        signal.raise_signal(number)
        stops.append(wish.stop)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert stops == [False, True]
    assert signal.getsignal(number) == before


@SIGNALS
def test_a_handler_of_the_caller_is_left_alone(number: signal.Signals) -> None:
    got: list[int] = []
    before = signal.signal(number, lambda number, _frame: got.append(number))
    try:
        with asked_to_stop() as wish:
            signal.raise_signal(number)
        assert not wish.stop
        assert got == [number]
    finally:
        signal.signal(number, before)


def test_in_another_thread_and_unheeded_nothing_changes() -> None:
    seen = []

    def look() -> None:
        with asked_to_stop():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    with asked_to_stop(heed=False):
        seen.append(signal.getsignal(signal.SIGTERM))
    assert seen == [signal.getsignal(signal.SIGTERM)] * 2
