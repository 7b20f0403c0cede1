"""Progress is shown in plain lines where there is no terminal, and not at all unless verbose."""

from __future__ import annotations

import io

import pytest

from logsparse import progress
from logsparse.progress import Progress


def test_plain_lines_show_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)
    stream = io.StringIO()
    with Progress("training", 4, stream=stream) as bar:
        bar.skip_to(2)
        bar.step(nll=0.5)
        bar.step(nll=0.25)
    first, _, last = stream.getvalue().splitlines()
    assert first.startswith("training: 3 of 4, 0m00s, ")
    assert first.endswith("left  nll 0.5")
    assert last == "training: 4 of 4, 0m00s, done  nll 0.25"


def test_work_that_ends_at_a_limit_shows_the_time_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)
    stream = io.StringIO()
    with Progress("training", 10**12, limit=90.5, stream=stream) as bar:
        bar.step()
    assert ", 1m30s left" in stream.getvalue().splitlines()[0]
    with Progress("training", 2, limit=90.5, stream=stream) as bar:
        bar.step()
        bar.limit = -1
        bar.step()
    assert ", 0m00s left" in stream.getvalue().splitlines()[-2]


def test_on_a_terminal_the_bar_shows_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with Progress("training", 10**12, limit=90.5, stream=stream) as bar:
        bar.step(nll=0.5)
        bar._bar.refresh()
    assert "/s, 1m30s left  nll 0.5" in stream.getvalue()


def test_an_interruption_is_reported() -> None:
    stream = io.StringIO()
    bar = Progress("training", 4, stream=stream)
    bar.step()
    bar.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert "training: 1 of 4, 0m00s, stopped" in stream.getvalue()


def test_nothing_is_shown_unless_verbose() -> None:
    stream = io.StringIO()
    with Progress("training", 1, verbose=False, stream=stream) as bar:
        bar.step()
    assert stream.getvalue() == ""


def test_an_unknown_total_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)
    stream = io.StringIO()
    with Progress("downloading", None, stream=stream) as bar:
        bar.step(3)
    first, last = stream.getvalue().splitlines()
    assert first.startswith("downloading: 3, 0m00s, ")
    assert "left" not in first
    assert last == "downloading: 3, 0m00s, done"
