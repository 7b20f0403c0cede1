"""The first signal requests a stop, the second interrupts; signal handlers of the caller stay."""

from __future__ import annotations

import signal
import threading

import pytest

from logsparse.train.loop import stop_on_signals

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@SIGNALS
def test_the_first_signal_is_a_request_and_the_second_interrupts(number: signal.Signals) -> None:
    before, stops = signal.getsignal(number), []
    with stop_on_signals() as request:
        stops.append(request.stop)
        signal.raise_signal(number)
        stops.append(request.stop)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert stops == [False, True]
    assert signal.getsignal(number) == before


@SIGNALS
def test_a_handler_of_the_caller_is_left_alone(number: signal.Signals) -> None:
    got: list[int] = []
    before = signal.signal(number, lambda number, _frame: got.append(number))
    try:
        with stop_on_signals() as request:
            signal.raise_signal(number)
        assert not request.stop
        assert got == [number]
    finally:
        signal.signal(number, before)


def test_in_another_thread_and_when_disabled_nothing_changes() -> None:
    seen = []

    def enter() -> None:
        with stop_on_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    with stop_on_signals(enabled=False):
        seen.append(signal.getsignal(signal.SIGTERM))
    assert seen == [signal.getsignal(signal.SIGTERM)] * 2
