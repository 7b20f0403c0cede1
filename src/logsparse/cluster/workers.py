"""A model and settings -> workers, each a process of this machine or an actor of Ray: content of a part -> its results.

A worker gets the model once, as files in the folder of results, or through Ray's object store: no disk has to be
shared, and logsparse is all that a node needs. Every worker uses one thread, since the number of threads changes the
last digits of a forecast: so the results have the same bytes whatever the number and kind of workers.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, Protocol

import numpy as np
import polars as pl

from logsparse import __version__
from logsparse.cluster.shards import open_part
from logsparse.data.calendar import Ints
from logsparse.data.files import encode
from logsparse.data.findings import MostEnds
from logsparse.data.frame import Data
from logsparse.data.health import NothingLeftError
from logsparse.data.later import read_like
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError, LogsparseError
from logsparse.evaluation.backtest import backtest
from logsparse.forecast import Forecast, Forecaster
from logsparse.params import altered
from logsparse.process import Worker, answer_lines, usable_cores
from logsparse.registry import load

# Series that are named as left out, per part.
_NAMED = 20
_SERVE = "from logsparse.cluster.workers import serve; serve()"
# Entries of tasks and answers that are the content of a file.
_CONTENT = ("data", "future", "results")
# Times that Ray may fail to start a worker before the job stops, and seconds between two looks at one that starts.
_STARTS, _SECONDS = 3, 0.5
# Seconds within which a cluster must accept a connection.
_ANSWERS_WITHIN = 10

Task = dict[str, Any]
"""`name` of a part, `data`: its content, `future`: that of its covariates to come, or None; `most`: when most series of
all parts end, or None if nobody asks."""
Answer = dict[str, Any]
"""`results`: content of a parquet file, `series`, `rows`, `left_out`, `reasons`; or `failed`: the reason, and `final`:
whether a second attempt would fail as well."""


def most_ends(model: Forecaster, parts: Iterable[Data]) -> dict[str, Any]:
    """Return when most series of all parts end, as tasks have it; a part that cannot be read fails in its worker."""
    ends: list[Ints] = [np.empty(0, np.int64)]
    for part in parts:
        with suppress(LogsparseError):
            panel = read_like(model.panel_, part, **model.columns_).to_last_value()
            last = panel.values[panel.indptr[:-1] + panel.lengths - 1]
            ends.append(panel.ends()[~np.isnan(last)])
    return asdict(MostEnds.of(model.panel_.freq, np.concatenate(ends)))


class Work:
    """What a worker does: load the models of a job once, and answer tasks."""

    def __init__(self, models: Path, job: Mapping[str, Any]) -> None:
        self.place, self.job, self.settings = models, job, job["settings"]

    @cached_property
    def models(self) -> dict[str, Forecaster]:
        import torch

        torch.set_num_threads(1)
        changed = {name: self.settings[name] for name in ("samples", "method") if name in self.settings}
        found = [load(self.place / str(number), **changed) for number in range(len(self.job["names"]))]
        quiet = [altered(model, verbose=False, processes=1) for model in found]
        return dict(zip(self.job["names"], quiet, strict=True))

    def run(self, task: Task) -> Answer:
        """Return the results of a part, or why there are none."""
        try:
            return self._predicted(task) if self.job["work"] == "predict" else self._tested(task)
        except LogsparseError as error:
            return {"failed": str(error), "final": True}
        except Exception as error:  # noqa: BLE001 - one part must not end the job; its reason is shown
            return {"failed": f"{type(error).__name__}: {error}", "final": False}

    def _predicted(self, task: Task) -> Answer:
        (model,) = self.models.values()
        steps, levels = self.settings["horizon"], tuple(self.settings["quantiles"])
        on_bad, part = self.settings["on_bad"], open_part(task["name"], task["data"])
        most = None if task["most"] is None else MostEnds(**task["most"])
        try:
            past, health = model.screened(part, on_bad, compare=False, most=most)
        except NothingLeftError as error:
            table, health = _nothing(read_like(model.panel_, part, **model.columns_), steps, levels), error.health
        else:
            future = None if task["future"] is None else open_part(task["name"], task["future"])
            (forecast,) = model.summaries([model.history(past, future, steps, health.bad)], levels)
            table = forecast.first(steps).table()
        table = _with_ids_like(table, model)
        skipped = health.only("bad").reasons() if on_bad == "skip" else []
        facts = {"left_out": len(skipped), "reasons": skipped[:_NAMED]}
        return {"results": encode(table, "parquet"), "series": table.height // steps, "rows": table.height, **facts}

    def _tested(self, task: Task) -> Answer:
        options = {name: self.settings[name] for name in ("windows", "step", "until", "quantiles", "season")}
        models = self.models if self.job["names"] != [""] else self.models[""]
        table = backtest(models, open_part(task["name"], task["data"]), **options, **self.settings["columns"])
        table = _with_ids_like(table, next(iter(self.models.values())))
        series = table.to_series(0).n_unique()
        facts = {"left_out": 0, "reasons": []}
        return {"results": encode(table, "parquet"), "series": series, "rows": table.height, **facts}


def _with_ids_like(table: pl.DataFrame, model: Forecaster) -> pl.DataFrame:
    """Return the table with ids of the type of the fitted ones, so that all parts have one type.

    Whole numbers become text, and text of whole numbers becomes numbers, whether or not the part has a fitted series.
    """
    ids, kinds = table.to_series(0), {type(name) for name in model.panel_.ids}
    if ids.dtype.is_integer() and kinds == {str}:
        return table.with_columns(ids.cast(pl.String))
    numbers = ids.cast(pl.Int64, strict=False) if ids.dtype == pl.String and kinds == {int} else None
    same = numbers is not None and numbers.null_count() == 0 and bool((numbers.cast(pl.String) == ids).all())
    return table.with_columns(numbers) if numbers is not None and same else table


def _nothing(panel: Panel, steps: int, levels: tuple[float, ...]) -> pl.DataFrame:
    """Return a table without rows, with the columns and types that the forecast of a series of this panel has."""
    zeros = np.zeros((1, len(levels), steps), np.float32)
    return Forecast(panel.keep(np.arange(len(panel)) == 0), zeros[:, 0], levels, zeros).table().clear()


class Seat(Protocol):
    """The place of one worker, who is replaced after dying."""

    def open(self, stopped: Event) -> bool:
        """Wait until there is a worker; return False if the job stops before."""

    def ask(self, task: Task) -> Answer | None:
        """Return the answer, or None if the worker died."""

    def kill(self) -> None:
        """End the worker, also in the middle of a task, which is answered by None."""

    def close(self) -> None:
        """Release what the worker held; no thread waits for it any more."""


@contextmanager
def seats(count: int | None, ray: bool | str, models: Path, job: Mapping[str, Any]) -> Iterator[Sequence[Seat]]:
    """Yield the places of workers: of Ray if `ray` is True or an address, else of processes; close them at the end."""
    made: Sequence[Seat] = ()
    with _cluster(ray, models, job) if ray else nullcontext() as cluster:
        try:
            if cluster is None:
                made = [ProcessSeat(models, job) for _ in range(count or usable_cores())]
            else:
                made = [RaySeat(cluster) for _ in range(count or cluster.cores)]
            yield made
        finally:
            for seat in made:
                seat.close()


class ProcessSeat:
    """The place of a process of this machine."""

    def __init__(self, models: Path, job: Mapping[str, Any]) -> None:
        self.worker = Worker(_SERVE, str(models.resolve()), json.dumps(job))

    def open(self, stopped: Event) -> bool:
        """Return True: the first task starts the process."""
        return not stopped.is_set()

    def ask(self, task: Task) -> Answer | None:
        """Send the task as a line of JSON."""
        found = self.worker.ask(_as_text(task))
        return None if found is None else _as_bytes(found)

    def kill(self) -> None:
        """End the process."""
        self.worker.kill()

    def close(self) -> None:
        """Close its pipes."""
        self.worker.close()


def serve() -> None:
    """Answer tasks; the main function of a process."""
    work = Work(Path(sys.argv[2]), json.loads(sys.argv[3]))
    answer_lines(lambda task: _as_text(work.run(_as_bytes(task))))


def _as_text(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {name: base64.b64encode(x).decode() if isinstance(x, bytes) else x for name, x in entries.items()}


def _as_bytes(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {name: base64.b64decode(x) if name in _CONTENT and x is not None else x for name, x in entries.items()}


@dataclass(frozen=True)
class _Cluster:
    """A Ray cluster with the models in its object store."""

    ray: Any
    actor: Any
    setup: Any
    cores: int


@contextmanager
def _cluster(address: bool | str, models: Path, job: Mapping[str, Any]) -> Iterator[_Cluster]:
    """Connect to a cluster, or to the one that the caller is connected to already."""
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise ConfigError(
            "Workers of Ray need the extra `ray`.", got="no module ray", hint="pip install 'logsparse[ray]'."
        ) from error
    mine = not ray.is_initialized()
    if mine:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            where = None if address is True else address
            if isinstance(where, str):
                _check_port(where)
            ray.init(address=where, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        except Exception as error:
            raise ConfigError(
                "A Ray cluster must answer at its address.",
                got=f"{address}: {next(iter(str(error).splitlines()), type(error).__name__)}",
                hint="start one with `ray start --head`, or leave the address out.",
            ) from error
    try:
        files = {str(path.relative_to(models)): path.read_bytes() for path in models.rglob("*") if path.is_file()}
        actor = ray.remote(num_cpus=1, max_restarts=0)(RemoteWork)
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        yield _Cluster(ray, actor, ray.put((files, dict(job))), cores)
    finally:
        if mine:
            ray.shutdown()


def _check_port(address: str) -> None:
    """Raise OSError if nothing listens at `host:port`: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS_WITHIN).close()


class RemoteWork:
    """`Work` on any node: the models come as files from the object store."""

    def __init__(self, setup: tuple[Mapping[str, bytes], Mapping[str, Any]]) -> None:
        files, job = setup
        with TemporaryDirectory(prefix="logsparse-") as scratch:
            for name, content in files.items():
                place = Path(scratch, name)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            self.work = Work(Path(scratch), job)
            self.loaded = list(self.work.models)  # before the files are removed

    def version(self) -> str:
        """Return the version of logsparse on this node."""
        return __version__

    def run(self, task: Task) -> Answer:
        """Return the results of a part, or why there are none."""
        return self.work.run(task)


class RaySeat:
    """The place of an actor of Ray. After the loss of its node, the next one starts where there is room."""

    def __init__(self, cluster: _Cluster) -> None:
        self.cluster, self.ray = cluster, cluster.ray
        self.actor: Any = None
        self.failures = 0

    def open(self, stopped: Event) -> bool:
        """Start an actor and wait for it, without a part in hand, since there may be no room for it."""
        while self.actor is None and not stopped.is_set():
            actor = self.cluster.actor.remote(self.cluster.setup)
            answer = actor.version.remote()
            while not stopped.is_set() and not self.ray.wait([answer], timeout=_SECONDS)[0]:
                pass
            self.actor = actor
            if not stopped.is_set():
                self._check(answer)
        return not stopped.is_set()

    def _check(self, answer: Any) -> None:
        """Forget an actor that did not start; raise if that happens again and again, or it is of another version."""
        try:
            version, failed = self.ray.get(answer), ""
        except self.ray.exceptions.RayError as error:
            version, failed = "", next(line for line in reversed(str(error).splitlines()) if line.strip())
            self.kill()
            self.failures += 1
        if version not in ("", __version__) or self.failures == _STARTS:
            raise ConfigError(
                f"Every node of the cluster must have logsparse {__version__}.",
                got=f"logsparse {version}" if version else f"a worker that does not start: {failed}",
                hint="install it there, with the same Python.",
            )

    def ask(self, task: Task) -> Answer | None:
        """Send the task to the actor; its content travels through the object store."""
        try:
            found: Answer = self.ray.get(self.actor.run.remote(task))
        except self.ray.exceptions.RayError:
            self.kill()
            return None
        self.failures = 0
        return found

    def close(self) -> None:
        """Do nothing more than `kill`."""
        self.kill()

    def kill(self) -> None:
        """End the actor."""
        actor, self.actor = self.actor, None
        if actor is not None:
            with suppress(Exception):  # the cluster may be gone
                self.ray.kill(actor)
