"""The process: its forks, memory and cores; the progress of long work; worker processes.

polars and torch keep thread pools. A fork copies the memory of the pools but none of their threads, so that work given
to a pool in the child never finishes.

A training step allocates and frees the same tensors every time. By default the C library returns large blocks to the
system at once, and the next step spends up to 7 % of its time on new pages (docs/LOG.md).

Progress is a bar on a terminal, one line that updates itself in a notebook, and plain lines elsewhere.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TextIO

from logsparse.errors import ConfigError, DataError

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


def check_memory(needed: float, of: str) -> None:
    """Raise if `needed` bytes do not fit into the free memory."""
    free = available()
    if needed > free:
        raise DataError(
            "A table must fit into memory.",
            got=f"{of}, which need about {needed / 2**30:.1f} GiB, while {free / 2**30:.1f} GiB are free",
            hint="read fewer series, a shorter span or fewer columns at a time, or use a machine with more memory; "
            "a long table of any size can be read in parts, which `logsparse shard` makes.",
        )


def available() -> int:
    """Return the bytes this process may still allocate: the least of machine, container and `ulimit -v`."""
    return min(_free_on_machine(), _free_in_container(), _free_below_limit())


def _free_on_machine() -> int:
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_in_container() -> int:
    """Return what the control group (version 1 or 2) leaves; cached files count as free."""
    free = [2**63]
    for folder, limit, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            stat = dict(line.split() for line in (Path(folder) / "memory.stat").read_text().splitlines())
            cached = int(stat.get("inactive_file", stat.get("total_inactive_file", 0)))
            free.append(int((Path(folder) / limit).read_text()) - int((Path(folder) / used).read_text()) + cached)
    return max(min(free), 0)


def _free_below_limit() -> int:
    """Return what `ulimit -v` leaves, if it is set."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            return max(limit - used, 0)
    return 2**63


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def torch_threads(most: int) -> Iterator[None]:
    """Let torch use at most so many threads inside the block, and one at least; nothing happens if it is not loaded."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, most)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


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


# One thread per worker: the workers share the cores. The number of threads also changes the last digits of sums.
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
)
# Ctrl-C reaches every process of a terminal; only the caller handles it. Blocked, not ignored: polars handles an
# ignored one itself while it collects. Threads that start later inherit the block.
_BEGIN = """
import json, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
sys.path[:] = json.loads(sys.argv[1])
"""


class Worker:
    """A process that runs a program of Python and answers tasks of JSON; one that dies is replaced at the next task.

    The program reads and writes lines, as `answer_lines` does.
    """

    def __init__(self, program: str, *arguments: str) -> None:
        self.program, self.arguments = program, arguments
        self.process: subprocess.Popen[str] | None = None

    def ask(self, task: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer, or None if the process has died."""
        if self.process is None:
            self.process = subprocess.Popen(  # noqa: S603 (our own code, no shell)
                [sys.executable, "-c", _BEGIN + self.program, json.dumps(sys.path), *self.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | _ONE_THREAD,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = ""
        with suppress(OSError, ValueError):  # the pipe is broken if the process has died, and closed after `close`
            self.process.stdin.write(json.dumps(task) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        if not line.endswith("\n"):
            self.close()
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        """End the process without waiting; a task that it works on is answered by None."""
        if self.process is not None:
            self.process.kill()

    def close(self) -> None:
        """End the process, and wait until it has ended."""
        if self.process is not None:
            self.process.kill()
            with suppress(OSError), self.process:  # closes the pipes, waits for the end
                pass
            self.process = None


def answer_lines(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer one task per line of stdin on stdout; the process ends with its caller, even in the middle of a task."""
    out, sys.stdout = sys.stdout, sys.stderr  # keep prints of other libraries out of the answers
    tasks: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            tasks.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        line = json.dumps(answer(json.loads(tasks.get()))) + "\n"
        try:
            out.write(line)
            out.flush()
        except BrokenPipeError:
            os._exit(0)  # the caller has ended
