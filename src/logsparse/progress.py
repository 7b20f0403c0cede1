"""Progress of long work -> a bar on a terminal, one line that updates itself in a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from html import escape
from types import TracebackType
from typing import Any, Self, TextIO

# In a notebook: shortest time between two updates, and work that takes less than this shows nothing.
_SECONDS_BETWEEN_UPDATES, _QUICK_SECONDS = 0.2, 0.5
# Shortest time between two lines where there is no terminal.
_SECONDS_BETWEEN_LINES = 20.0


class Progress:
    """`with Progress("training", 1000) as progress: progress.step(loss=0.5)`; silent unless `verbose`.

    A `total` of None is unknown. `limit` is the number of seconds after which the work stops even if unfinished.
    """

    def __init__(
        self,
        what: str,
        total: int | None,
        *,
        limit: float | None = None,
        verbose: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        self.what, self.total, self.limit, self.done = what, total, limit, 0
        self.stream = sys.stderr if stream is None else stream
        self.verbose, self.on_terminal = verbose, self.stream.isatty()
        self.in_notebook = stream is None and in_notebook()
        self._shown: Any = None
        self.began = self.reported = time.monotonic()
        self.resumed_at, self._note = 0, ""

    def __enter__(self) -> Self:
        if self.verbose and self.on_terminal:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self._bar = Bar(*columns, console=Console(file=self.stream), transient=True)
            self._task = self._bar.add_task(self.what, total=self.total, note="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.verbose and self.on_terminal:
            self._bar.stop()
        if self.verbose and self.done:
            self._report("stopped" if kind else "done")

    def skip_to(self, done: int) -> None:
        """Count work done in an earlier run, without counting it in the rate."""
        self.done = self.resumed_at = done

    def step(self, count: int = 1, **figures: float) -> None:
        """Count finished work, and show these figures next to it."""
        self.done += count
        self._note = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        if not self.verbose:
            return
        if self.on_terminal:
            self._bar.update(self._task, completed=self.done, note=f"{self._pace()}  {self._note}")
        elif time.monotonic() - self.reported > (
            _SECONDS_BETWEEN_UPDATES if self.in_notebook else _SECONDS_BETWEEN_LINES
        ):
            self.reported = time.monotonic()
            self._report(self._pace())

    def _pace(self) -> str:
        """Return the rate and the time left until the work is done or the limit is reached."""
        left = [] if self.total is None else [(self.total - self.done) / max(self._rate(), 1e-9)]
        if self.limit is not None:
            left.append(max(self.limit - (time.monotonic() - self.began), 0))
        return f"{self._rate():.3g}/s" + (f", {_duration(min(left))} left" if left else "")

    def _rate(self) -> float:
        return (self.done - self.resumed_at) / max(time.monotonic() - self.began, 1e-9)

    def _report(self, state: str) -> None:
        """Write a line, or replace that of the notebook."""
        took = time.monotonic() - self.began
        share = f"{self.done}" if self.total is None else f"{self.done} of {self.total}"
        line = f"{self.what}: {share}, {_duration(took)}, {state}  {self._note}".rstrip()
        if not self.in_notebook:
            print(line, file=self.stream, flush=True)
        elif self._shown is not None:
            self._shown.update(self._bundle(line), raw=True)
        elif took > _QUICK_SECONDS:
            from IPython.display import display

            self._shown = display(self._bundle(line), raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def _bundle(self, line: str) -> dict[str, str]:
        """Return the line as text, and as HTML with a bar before it."""
        bar = "" if self.total is None else f'<progress value="{self.done}" max="{self.total}"></progress> '
        return {"text/plain": line, "text/html": f"<div>{bar}<code>{escape(line)}</code></div>"}


def in_notebook() -> bool:
    """Return True in the kernel of a notebook; IPython is not imported for this."""
    ipython = sys.modules.get("IPython")
    shell: Any = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}h{minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m{rest:02d}s"
