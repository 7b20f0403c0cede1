"""Progress is one line of a notebook, a bar of a terminal or plain lines, and nothing at all unless verbose."""

from __future__ import annotations

import io
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

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


class Notebook:
    """What IPython's `display` shows: one list of texts per line, the last of which is on the page."""

    def __init__(self) -> None:
        self.lines: list[list[dict[str, str]]] = []

    def display(self, bundle: dict[str, str], **_: Any) -> SimpleNamespace:
        self.lines.append([bundle])
        return SimpleNamespace(update=lambda later, **_: self.lines[-1].append(later))


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    import IPython
    import IPython.display

    page = Notebook()
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setattr(IPython.display, "display", page.display)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_UPDATES", -1.0)
    monkeypatch.setattr(progress, "_QUICK_SECONDS", -1.0)
    return page


def test_in_a_notebook_one_line_updates_itself(notebook: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("training <b>", 2) as bar:
        bar.step(nll=0.5)
        bar.step(nll=0.25)
    (line,) = notebook.lines
    assert line[0]["text/plain"].startswith("training <b>: 1 of 2, 0m00s, ")
    assert line[-1]["text/plain"] == "training <b>: 2 of 2, 0m00s, done  nll 0.25"
    assert '<progress value="2" max="2">' in line[-1]["text/html"]
    assert "training &lt;b&gt;: 2 of 2" in line[-1]["text/html"]
    assert capsys.readouterr() == ("", "")


def test_in_a_notebook_quick_work_shows_nothing(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("forecasting", 1, verbose=False) as bar:
        bar.step()
    monkeypatch.setattr(progress, "_QUICK_SECONDS", 60.0)
    with Progress("forecasting", 1) as bar:
        bar.step()
    assert notebook.lines == []
    assert capsys.readouterr() == ("", "")


def test_ipython_is_not_imported_to_look_for_a_notebook() -> None:
    code = "import sys; from logsparse.progress import in_notebook; print(in_notebook(), 'IPython' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
