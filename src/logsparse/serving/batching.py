"""Histories of many requests -> forecasts: those that wait at the same time are decoded together, by one thread.

A request is read and written by a few other threads (`Engine.work`), or by that of the event loop if it is small. Its
history then waits in a queue (`forecast`).
The decoding thread takes the first history and all others for the same model and quantile levels, and forecasts them
by one call of `Forecaster.summaries`; the result for a series does not depend on what else is in the batch. A request
that is cancelled while it waits is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from logsparse.data.panel import Panel
from logsparse.errors import LogsparseError
from logsparse.forecast import Forecast, Forecaster
from logsparse.process import torch_threads

Result = TypeVar("Result")

# Threads that read and write tables, test and explain.
_READERS = 2
# A request of so many bytes is read and answered in a millisecond: handing it to another thread costs more.
_SMALL = 2**16
# Longest wait for requests that have arrived and may be about to join a batch, in seconds.
LINGER = 0.003
# A batch is decoded by one thread per so many series: threads that wait for each other take the time of others.
_SERIES_PER_THREAD = 64
# Series decoded together at most: a larger request is a batch of its own.
MOST_SERIES = 4096
# A warm-up forecasts so many of the model's series.
_WARM_SERIES = 2

log = logging.getLogger("logsparse.serve")


class BusyError(LogsparseError):
    """The queue is full (503)."""

    def __init__(self, waiting: int) -> None:
        super().__init__(
            "The server takes no more requests than it can answer soon.",
            got=f"{waiting:,} that wait already",
            hint="try again after the seconds in Retry-After.",
        )


@dataclass(eq=False)
class _Job:
    """One history that waits to be forecast."""

    model: Forecaster
    panel: Panel
    levels: tuple[float, ...]
    future: asyncio.Future[Forecast]

    def alike(self, other: _Job) -> bool:
        same = self.model is other.model and self.levels == other.levels
        return same and self.panel.origin.zone == other.panel.origin.zone


class Engine:
    """Threads that answer requests: `work` runs a function, `forecast` decodes a history.

    Parameters
    ----------
    queue
        Requests that may be under way at once.
    batch
        Whether requests are decoded together.
    """

    def __init__(self, *, queue: int, batch: bool = True) -> None:
        self.queue, self.batch = queue, batch
        self.under_way = 0
        """Requests whose body is complete, until their answer."""
        self.batches = self.batched = self.series = 0
        """Batches decoded, and requests and series in them."""
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="logsparse-read")
        self._decoder = threading.Thread(target=self._run, name="logsparse-decode", daemon=True)
        self._decoder.start()

    @property
    def waiting(self) -> int:
        """Number of histories in the queue."""
        return len(self._jobs)

    @property
    def alive(self) -> bool:
        """Whether requests can be answered."""
        return self._decoder.is_alive() and not self._closed

    @property
    def full(self) -> bool:
        """Whether another request is too much."""
        return self.under_way >= self.queue

    async def work(self, function: Callable[[], Result], *, size: int | None = None) -> Result:
        """Run a function in one of the reading threads, or here if its `size`, in bytes of the request, is small."""
        if size is not None and size <= _SMALL:
            return function()
        return await asyncio.wrap_future(self._readers.submit(function))

    async def forecast(self, model: Forecaster, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        """Forecast a history, together with others that wait; dropped if it is cancelled while it waits."""
        job = _Job(model, panel, levels, asyncio.get_running_loop().create_future())
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        return await job.future

    def close(self) -> None:
        """End all threads after what they do at the moment; what waits is dropped."""
        with self._changed:
            self._closed = True
            for job in self._jobs:
                job.future.cancel()
            self._jobs.clear()
            self._changed.notify()
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while jobs := self._next():
            alive = [job for job in jobs if not job.future.done()]
            found = self._decode(alive) if alive else []
            # One message per batch: each wakes the event loop, which then competes with this thread.
            for loop in {job.future.get_loop() for job in alive}:
                with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
                    loop.call_soon_threadsafe(_deliver, [one for one in found if one[0].future.get_loop() is loop])

    def _next(self) -> list[_Job]:
        """Wait for work and return what is decoded together; nothing after `close`."""
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
            if self._closed:
                return []
            until = time.monotonic() + LINGER
            while self.batch and self.under_way > len(self._jobs) and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            return self._together() if self.batch else [self._jobs.popleft()]

    def _together(self) -> list[_Job]:
        first = self._jobs.popleft()
        chosen, size = [first], len(first.panel)
        for job in list(self._jobs):
            if job.alike(first) and size + len(job.panel) <= MOST_SERIES:
                chosen.append(job)
                size += len(job.panel)
                self._jobs.remove(job)
        return chosen

    def _decode(self, jobs: Sequence[_Job]) -> list[tuple[_Job, Forecast | Exception]]:
        self.batches += 1
        self.batched += len(jobs)
        size = sum(len(job.panel) for job in jobs)
        self.series += size
        try:
            with torch_threads(size // _SERIES_PER_THREAD):
                found = list(jobs[0].model.summaries([job.panel for job in jobs], jobs[0].levels))
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to the request
            if len(jobs) == 1:
                return [(jobs[0], error)]
            # One of them cannot be forecast: each gets its own answer.
            return [one for job in jobs for one in self._decode([job])]
        return list(zip(jobs, found, strict=True))


def _deliver(found: Sequence[tuple[_Job, Forecast | Exception]]) -> None:
    """Give the results to those who still wait; runs in the event loop."""
    for job, result in found:
        if job.future.done():
            continue
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)


def warm_up(model: Forecaster) -> None:
    """Forecast once, so that the first request does not pay for what is made on first use."""
    began = time.monotonic()
    few = model.panel_.keep(np.arange(len(model.panel_)) < _WARM_SERIES)
    # Any values serve; a model may have been saved without its own.
    known = {name: np.nan_to_num(flat) for name, flat in few.covariates.items()}
    filled = replace(few, values=np.nan_to_num(few.values, nan=1.0), covariates=known)
    list(model.summaries([filled.reaching(model.horizon)], model.check_quantiles(None)))
    log.info("warmed up in %.1f s", time.monotonic() - began)
