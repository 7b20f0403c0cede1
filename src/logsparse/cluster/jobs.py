"""A model and a folder of parts -> a folder of results, part by part, by workers; restartable after any end.

Only this side touches files: it reads a part, sends its content to a free worker, and writes the results and their
entry in the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, Self, TypedDict, Unpack

from logsparse.cluster.ledger import Ledger
from logsparse.cluster.shards import series_per_part
from logsparse.cluster.workers import Answer, Seat, most_ends, seats
from logsparse.data.columns import Columns, ColumnSpec
from logsparse.data.files import part_names, scan_part
from logsparse.data.health import OnBad, check_on_bad
from logsparse.data.times import When
from logsparse.errors import ConfigError, DataError, LogsparseError, a_path, keywords, whole
from logsparse.evaluation.backtest import check_test, levels_of
from logsparse.folder import CONFIG, write
from logsparse.forecast import Forecaster
from logsparse.params import Levels, opened, steps_asked
from logsparse.process import Progress
from logsparse.registry import load
from logsparse.storage import checksum, read_file, write_whole

# A part is tried this many times; the job stops after this many parts have failed.
_ATTEMPTS, _MOST_FAILED = 3, 10
_SECONDS_BETWEEN_LOOKS = 0.2


class PredictSettings(TypedDict, total=False):
    """Settings of `predict_shards`; all are optional."""

    horizon: int | None
    quantiles: Levels | None
    samples: int | None
    method: str | None
    future: str | Path | None
    on_bad: OnBad


class BacktestSettings(TypedDict, total=False):
    """Settings of `backtest_shards`; all are optional."""

    windows: int
    step: int | None
    until: When | None
    quantiles: Levels | None
    season: int | None
    samples: int | None
    method: str | None
    columns: Columns


@dataclass(frozen=True)
class ShardRun:
    """What `predict_shards` and `backtest_shards` have done.

    Parameters
    ----------
    parts
        Parts of the data, all of them done now.
    made
        Parts that were made in this run; the others were there.
    series, rows
        Series and rows of the results, over all parts.
    left_out
        Series that `on_bad="skip"` left out, over all parts.
    reasons
        Why, for the first of those in each part that this run made.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.ShardRun(parts=8, made=3, series=40, rows=960, left_out=0).made
    3
    """

    parts: int
    made: int
    series: int
    rows: int
    left_out: int
    reasons: tuple[str, ...] = ()


def predict_shards(
    model: Forecaster | str | Path,
    folder: str | Path,
    out: str | Path,
    *,
    jobs: int | None = None,
    ray: bool | str = False,
    verbose: bool = True,
    **settings: Unpack[PredictSettings],
) -> ShardRun:
    """Forecast a folder of parts, one part of results per part, by several processes or by Ray.

    The job can be stopped and killed at any moment: the same call makes the parts that are missing. Memory is that of
    one part per worker. The results do not depend on the number of workers.

    Parameters
    ----------
    model
        A fitted forecaster, or the folder of a saved one.
    folder
        Folder of parquet parts, each series whole in one of them, as `shard` writes it.
    out
        Folder of the results: new, empty, or begun by the same call.
    jobs
        Number of workers, each with one thread; the cores of this machine, or of Ray's cluster, if left out.
    ray
        True for the workers of a running Ray cluster (or a new one on this machine), or the address of a cluster. Needs
        the extra `ray`.
    verbose
        Whether to show progress.
    **settings
        `horizon`, `quantiles`, `on_bad` as for `Forecaster.predict`; `samples`, `method` as for `load`; `future`: a
        folder with the covariates to come, in parts of the same names. With another `on_bad` than "warn", all parts are
        read once before, to compare the ends of all series.

    Returns
    -------
    ShardRun
        Numbers of parts, series and rows.

    Raises
    ------
    ConfigError, DataError
        If an argument or the data break a rule, `out` belongs to another model, other settings or other data, or a part
        failed three times; finished parts stay.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> model = ls.SeasonalNaive(horizon=3, season=7).fit(frame)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parts = ls.shard(frame, f"{folder}/parts", parts=1)
    ...     done = ls.predict_shards(model, f"{folder}/parts", f"{folder}/out", jobs=1, verbose=False)
    ...     again = ls.predict_shards(model, f"{folder}/parts", f"{folder}/out", jobs=1, verbose=False)
    ...     done.rows, done.made, again.made
    (3, 1, 0)
    """
    keywords(settings, PredictSettings.__annotations__)
    changed = {name: settings.get(name) for name in ("samples", "method") if settings.get(name) is not None}
    models = _Models.of({"": model}, changed)
    forecaster, future = models.loaded[""], settings.get("future")
    on_bad = settings.get("on_bad", "warn")
    check_on_bad(on_bad)
    asked = {
        "horizon": steps_asked(settings.get("horizon"), forecaster.horizon),
        "quantiles": list(forecaster.check_quantiles(settings.get("quantiles"))),
        "on_bad": on_bad,
        "future": future is not None,
    }
    places = _Places.of(folder, out, future)
    return _run(_Job("predict", models, {**asked, **changed}, places), jobs, ray, verbose=verbose)


def backtest_shards(
    models: Forecaster | str | Path | Mapping[str, Forecaster | str | Path],
    folder: str | Path,
    out: str | Path,
    *,
    jobs: int | None = None,
    ray: bool | str = False,
    verbose: bool = True,
    **settings: Unpack[BacktestSettings],
) -> ShardRun:
    """Backtest fitted models on a folder of parts, as `predict_shards` forecasts it.

    Parameters
    ----------
    models
        A fitted forecaster or the folder of a saved one; several by name are compared.
    folder, out, jobs, ray, verbose
        As for `predict_shards`. `score` reads `out` part by part.
    **settings
        `windows`, `step`, `until`, `quantiles`, `season` as for `backtest`; `samples`, `method` as for `load`;
        `columns`: a dictionary of the keywords of `to_panel`, if they differ from those of the model.

    Returns
    -------
    ShardRun
        Numbers of parts, series and rows.

    Raises
    ------
    ConfigError, DataError
        As for `predict_shards`, and as for `backtest`.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> model = ls.SeasonalNaive(horizon=3, season=7).fit(frame, until=60)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parts = ls.shard(frame, f"{folder}/parts", parts=1)
    ...     done = ls.backtest_shards(model, f"{folder}/parts", f"{folder}/out", jobs=1, windows=2, verbose=False)
    ...     ls.score(f"{folder}/out")["count"].to_list()
    [6]
    """
    keywords(settings, BacktestSettings.__annotations__)
    changed = {name: settings.get(name) for name in ("samples", "method") if settings.get(name) is not None}
    fitted = _Models.of(dict(models) if isinstance(models, Mapping) else {"": models}, changed)
    until, quantiles = settings.get("until"), settings.get("quantiles")
    horizon, windows, step, season = check_test(
        fitted.loaded, settings.get("windows", 1), settings.get("step"), settings.get("season")
    )
    for forecaster in fitted.loaded.values():
        levels_of(forecaster, quantiles, several=isinstance(models, Mapping))
    asked = {
        "horizon": horizon,
        "windows": windows,
        "step": step,
        "until": until if isinstance(until, int | None) else str(until),
        "quantiles": None if quantiles is None else [float(level) for level in quantiles],
        "season": season,
        "columns": dict(settings.get("columns", {})),
    }
    places = _Places.of(folder, out, None)
    return _run(_Job("backtest", fitted, {**asked, **changed}, places), jobs, ray, verbose=verbose)


@dataclass(frozen=True)
class _Models:
    """Models by name: as forecasters, and as files without their histories, which no worker needs."""

    loaded: dict[str, Forecaster]
    files: dict[str, bytes]
    checksums: list[str]

    @classmethod
    def of(cls, models: Mapping[str, Forecaster | str | Path], changed: Mapping[str, Any]) -> Self:
        self = cls({}, {}, [])
        for number, (name, model) in enumerate(models.items()):
            with TemporaryDirectory(prefix="logsparse-") as scratch:
                saved, slim = Path(scratch, "saved"), Path(scratch, "slim")
                if isinstance(model, Forecaster):
                    model.save(saved)
                write(slim, replace(opened(saved if isinstance(model, Forecaster) else model), history=None))
                self.loaded[name] = load(slim, **changed)
                self.files.update({f"{number}/{path.name}": path.read_bytes() for path in sorted(slim.iterdir())})
            self.checksums.append(checksum(self.files[f"{number}/{CONFIG}"])["sha256"])
        return self


@dataclass(frozen=True)
class _Places:
    folder: Path
    out: Path
    future: Path | None

    @classmethod
    def of(cls, folder: str | Path, out: str | Path, future: str | Path | None) -> _Places:
        rule = "Parts and results are paths of folders."
        places = [a_path(rule, path, hint='write predict_shards(model, "parts", "out").') for path in (folder, out)]
        data, target = (place.resolve() for place in places)
        if data == target or data in target.parents or target in data.parents:
            raise ConfigError(
                "Results must be written outside of the data.", got=f"{out} and {folder}", hint="give another folder."
            )
        return cls(places[0], places[1], None if future is None else a_path(rule, future, hint='write future="parts".'))

    def read(self, name: str) -> dict[str, bytes | None]:
        """Return the content of a part, and of the future of its covariates."""
        future = None if self.future is None else read_file(self.future / name, DataError.unreadable)
        return {"data": read_file(self.folder / name, DataError.unreadable), "future": future}

    def checksums(self, name: str) -> dict[str, Any]:
        return {kind: None if blob is None else checksum(blob) for kind, blob in self.read(name).items()}


@dataclass(frozen=True)
class _Job:
    """What is to be done to every part."""

    work: str
    models: _Models
    settings: dict[str, Any]
    places: _Places

    def document(self) -> dict[str, Any]:
        names, sums = list(self.models.loaded), self.models.checksums
        return {"work": self.work, "names": names, "model": sums, "settings": self.settings}

    def series(self) -> dict[str, int]:
        """Return the number of series by name of part; raise for a folder that cannot be worked on."""
        fitted = next(iter(self.models.loaded.values()))
        columns: Columns = {**fitted.columns_, **self.settings.get("columns", {})}
        spec = ColumnSpec.of(columns)
        names = series_per_part(self.places.folder, spec.id_col, [name for name in spec.used if name != spec.id_col])
        if (future := self.places.future) is not None:
            there = {str(name) for name in part_names(future)}
            # New series may be in a part of the future that the data do not have.
            if unlike := sorted(there ^ set(names)):
                raise DataError(
                    "The future must have parts of the same names as the data.",
                    got=f"{unlike[0]} in {future if unlike[0] in there else self.places.folder} only",
                    hint=f"shard both into the same number of parts: `logsparse shard FUTURE -o {future} --parts N`; "
                    "fewer, if one of them is without rows.",
                )
        return names

    def most_ends(self, names: Iterable[str]) -> dict[str, Any] | None:
        """Return when most series of all parts end, if bad series are to be found: a late one is behind them."""
        if self.settings.get("on_bad", "warn") == "warn":
            return None
        return most_ends(self.models.loaded[""], (scan_part(self.places.folder / name, Path(name)) for name in names))


def _run(job: _Job, jobs: int | None, ray: bool | str, *, verbose: bool) -> ShardRun:
    """Make the parts that are not done yet."""
    count = None if jobs is None else whole("jobs", jobs, hint="count the workers, one per core.")
    series = job.series()
    document = job.document()
    with Ledger.opened(job.places.out, document) as ledger:
        ledger.check_parts(series)
        sums = job.places.checksums
        done = {name: entry for name in series if (entry := ledger.done(name, sums)) is not None}
        missing = [name for name in series if name not in done]
        if not missing:
            return _summary(series, done, {})
        for name, content in job.models.files.items():
            write_whole(ledger.model / name, content, "The model of a job")
        most = job.most_ends(series)
        # The forecasters of this process are not needed any more.
        job.models.loaded.clear()
        what = "forecasting" if job.work == "predict" else "testing"
        with (
            Progress(f"{what}, {len(series):,} parts, series", sum(series.values()), verbose=verbose) as progress,
            seats(count and min(count, len(missing)), ray, ledger.model, document) as workers,
        ):
            progress.skip_to(sum(series[name] for name in done))
            errand = _Errand(job, ledger, most, lambda name: progress.step(series[name]))
            made = errand.run(missing, workers[: len(missing)])
        return _summary(series, done, made)


def _summary(series: Mapping[str, int], done: Mapping[str, Any], made: Mapping[str, Any]) -> ShardRun:
    entries = {**done, **made}
    counted = {key: sum(entry[key] for entry in entries.values()) for key in ("series", "rows", "left_out")}
    reasons = tuple(reason for entry in made.values() for reason in entry["reasons"])
    return ShardRun(len(series), len(made), **counted, reasons=reasons)


class _Errand:
    """One thread per worker takes parts from a queue; this thread counts, repeats failed parts, and stops them all."""

    def __init__(
        self, job: _Job, ledger: Ledger, most: dict[str, Any] | None, finished: Callable[[str], object]
    ) -> None:
        self.job, self.ledger, self.most, self.finished = job, ledger, most, finished
        self.todo: SimpleQueue[tuple[str, int]] = SimpleQueue()
        self.answers: SimpleQueue[tuple[str, int, Answer | LogsparseError]] = SimpleQueue()
        self.stopped = Event()

    def run(self, names: list[str], workers: Sequence[Seat]) -> dict[str, Answer]:
        """Return the entry of every part; raise if some of them failed."""
        for name in names:
            self.todo.put((name, 1))
        threads = [Thread(target=self._work, args=(seat,), daemon=True) for seat in workers]
        for thread in threads:
            thread.start()
        try:
            return self._collect(len(names))
        finally:
            self.stopped.set()
            # Again and again: a thread may be about to start its worker.
            while any(thread.is_alive() for thread in threads):
                for seat in workers:
                    seat.kill()
                for thread in threads:
                    thread.join(_SECONDS_BETWEEN_LOOKS / len(threads))

    def _collect(self, count: int) -> dict[str, Answer]:
        made: dict[str, Answer] = {}
        failed: dict[str, str] = {}
        while len(made) + len(failed) < count:
            name, attempt, answer = self.answers.get()
            if isinstance(answer, LogsparseError):
                raise answer
            if "failed" not in answer:
                made[name] = answer
                self.finished(name)
            elif answer["final"] or attempt == _ATTEMPTS:
                failed[name] = answer["failed"]
                if answer.get("disk") or len(failed) == _MOST_FAILED:
                    break
            else:
                self.todo.put((name, attempt + 1))
        if failed:
            raise _failure(failed, len(made))
        return made

    def _work(self, seat: Seat) -> None:
        """Work off parts until the job stops."""
        try:
            while seat.open(self.stopped):
                try:
                    name, attempt = self.todo.get(timeout=_SECONDS_BETWEEN_LOOKS)
                except Empty:
                    continue
                self.answers.put((name, attempt, self._part(seat, name, attempt)))
        except LogsparseError as error:
            self.answers.put(("", 0, error))

    def _part(self, seat: Seat, name: str, attempt: int) -> Answer:
        """Return the entry of a part after it is written, or why it is not."""
        began = time.monotonic()
        try:
            contents = self.job.places.read(name)
            answer = seat.ask({"name": name, **contents, "most": self.most})
        except LogsparseError as error:
            return {"failed": str(error), "final": False}
        if answer is None:
            return {"failed": "its worker died, for want of memory perhaps", "final": False}
        if "failed" in answer:
            return answer
        sums = {kind: None if blob is None else checksum(blob) for kind, blob in contents.items()}
        took = {"seconds": round(time.monotonic() - began, 3), "attempt": attempt}
        try:
            return self.ledger.write(name, answer.pop("results"), {**answer, "inputs": sums, **took})
        except LogsparseError as error:
            return {"failed": str(error), "final": False, "disk": True}


def _failure(failed: Mapping[str, str], made: int) -> DataError:
    name, text = next(iter(failed.items()))
    reason, _, hint = text.partition(" Hint: ")
    more = f", and {len(failed) - 1:,} more" if len(failed) > 1 else ""
    own = f"{hint.rstrip('.')}; then " if hint else ""
    return DataError(
        "Every part must be worked off.",
        got=f"{name}{more}, which failed: {reason.rstrip('.')}",
        hint=f"{own}repeat the command: the {made:,} parts that this run has finished stay.",
    )
