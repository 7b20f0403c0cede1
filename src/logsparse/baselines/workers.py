"""Tasks -> answers, many at a time: each worker is a process of its own that reads and writes lines of JSON.

multiprocessing would import the caller's script once more in every process, and so run what is not behind
`if __name__ == "__main__"` again. These workers import the library and nothing else; nothing is pickled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from queue import SimpleQueue

from logsparse.baselines.estimate import Answer, Task, answer

# A worker starts in some three seconds; a process for fewer estimates than this gains nothing. Filtering forward takes
# about a hundredth of an estimate.
_ESTIMATES_A_WORKER, _FORWARDS_AN_ESTIMATE = 4, 100
# Workers stand in for threads: each gets one.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
# Ctrl-C reaches every process of a terminal; that of the caller answers it.
_SERVE = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:] = json.loads(sys.argv[1])
from logsparse.baselines.workers import serve
serve()
"""


def answers(tasks: Sequence[Task], processes: int, done: Callable[[], object]) -> list[Answer]:
    """In the order of the tasks; `done` is called after each. Few tasks, or one process, are worked off here."""
    afresh = sum(task["model"] is None for task in tasks)
    estimates = afresh + (len(tasks) - afresh) // _FORWARDS_AN_ESTIMATE
    count = min(processes, estimates // _ESTIMATES_A_WORKER)
    if count < 2:
        found = []
        for task in tasks:
            found.append(answer(task))
            done()
        return found
    free: SimpleQueue[_Worker] = SimpleQueue()
    workers = [_Worker() for _ in range(count)]
    for worker in workers:
        free.put(worker)

    def ask(task: Task) -> Answer:
        worker = free.get()
        try:
            return worker.ask(task)
        finally:
            free.put(worker)

    pool = ThreadPoolExecutor(count)
    try:
        places = {pool.submit(ask, task): place for place, task in enumerate(tasks)}
        given: list[Answer] = [{} for _ in tasks]
        for future in as_completed(places):
            given[places[future]] = future.result()
            done()
        return given
    finally:
        # After Ctrl-C nothing must wait for a task under way: its process is killed, which ends its thread.
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()
        pool.shutdown()
        for worker in workers:
            worker.close()


class _Worker:
    """One process; where a task kills it, a new one takes the next."""

    process: subprocess.Popen[str] | None = None

    def ask(self, task: Task) -> Answer:
        if self.process is None:
            self.process = subprocess.Popen(  # noqa: S603 (our own code, no shell)
                [sys.executable, "-c", _SERVE, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | _ONE_THREAD,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = ""
        with suppress(OSError):  # where the process is gone, so is its end of the pipe
            self.process.stdin.write(json.dumps(task) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        if not line:
            self.close()
            return {"failed": "its process died"}
        found: Answer = json.loads(line)
        return found

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            with suppress(OSError), self.process:  # closes the pipes, waits for the end
                pass
            self.process = None


def serve() -> None:
    """What a worker does: a line with a task in, a line with its answer out, until no more come."""
    out, sys.stdout = sys.stdout, sys.stderr  # prints of other libraries must not stand between the answers
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()
