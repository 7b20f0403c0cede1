"""Body of a request (csv, parquet, feather, JSON) -> table or Panel, all in memory; Forecast -> body of the answer."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any

import numpy as np
import polars as pl
from pydantic_core import from_json

from logsparse.data.calendar import Freq
from logsparse.data.columns import ColumnSpec, from_objects, unique_names
from logsparse.data.files import count_rows, encode, scan_bytes, schema_of
from logsparse.data.panel import Panel
from logsparse.data.times import stamps
from logsparse.errors import ConfigError, DataError, LogsparseError, shown
from logsparse.forecast import Forecast, Forecaster
from logsparse.serving.expansion import expanded
from logsparse.serving.schema import STEPS, ForecastRequest, SeriesInput

MEDIA = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "feather": "application/vnd.apache.arrow.file",
    "json": "application/json",
}
"""Format -> media type of answers."""
_KINDS = {
    "text/csv": "csv",
    "text/plain": "csv",
    "text/tab-separated-values": "csv",
    "application/csv": "csv",
    "application/vnd.ms-excel": "csv",  # what browsers on Windows call a csv file
    "application/vnd.apache.parquet": "parquet",
    "application/x-parquet": "parquet",
    "application/parquet": "parquet",
    "application/vnd.apache.arrow.file": "feather",
    "application/x-feather": "feather",
    "application/json": "json",
}
# Media types that say nothing: the first bytes decide.
_UNNAMED = ("", "application/octet-stream", "application/x-www-form-urlencoded")
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "feather", b"[": "json", b"{": "json"}
_BODY = "the body of the request"
_BYTES_PER_CELL = 16
_LONGEST_ID = 1000
_FARTHEST = 2**62
# Rows of an example, about.
_EXAMPLE_ROWS = 100_000


class MediaError(LogsparseError):
    """The body has a media type that is not read (415)."""


class TooLargeError(LogsparseError):
    """The request asks for more than the server allows (413)."""


@dataclass(frozen=True)
class Limits:
    """What one request may hold."""

    series: int
    cells: int
    """Rows times columns of a table: a small file can hold a very large one."""


def kind_of(media: str | None, body: bytes) -> str:
    """Return the format of a body by its Content-Type, or by its first bytes if that says nothing."""
    named = (media or "").partition(";")[0].strip().lower()
    if named in _UNNAMED:
        start = body.lstrip()[:6]
        return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "csv")
    if named not in _KINDS:
        raise MediaError(
            "The Content-Type must be that of a csv, parquet, feather or JSON body.",
            got=repr(named),
            hint=f"send one of {', '.join(media.partition(';')[0] for media in MEDIA.values())}.",
        )
    return _KINDS[named]


def read_table(body: bytes, kind: str, ids: str, limits: Limits) -> pl.LazyFrame:
    """Open the body; the column `ids` of csv and JSON stays as written."""
    if not body.strip():
        raise DataError(
            "The body of the request must be a table.",
            got="an empty body",
            hint="send the file with --data-binary @FILE.",
        )
    if kind == "json":
        return _from_json(body, ids).lazy()
    if kind in ("parquet", "feather"):
        _check_expansion(body, kind, limits)
    try:
        table = scan_bytes(body, kind, _BODY, ids=ids)
        height, width = count_rows(table), len(schema_of(table))
    except DataError as error:
        raise DataError(
            f"The body must be a readable {kind} file.",
            got=error.got.removeprefix(f"{_BODY}: "),
            hint="check the file and the Content-Type.",
        ) from error
    if height * width > limits.cells:
        raise TooLargeError(
            f"A table must have at most {limits.cells:,} cells.",
            got=f"{height:,} rows of {width:,} columns",
            hint="send fewer series or a shorter past; --max-body of the server sets the limit.",
        )
    return table


def _check_expansion(body: bytes, kind: str, limits: Limits) -> None:
    """Raise if a compressed file would take more memory than its table may."""
    try:
        size = expanded(body, kind)
    except ValueError as error:
        raise DataError(
            f"The body must be a readable {kind} file.", got=str(error), hint="check the file and the Content-Type."
        ) from error
    if size > _BYTES_PER_CELL * limits.cells:
        raise TooLargeError(
            f"A table must take at most {_BYTES_PER_CELL * limits.cells:,} bytes.",
            got=f"{size:,} bytes when it is decompressed",
            hint="send fewer series or a shorter past; --max-body of the server sets the limit.",
        )


def _from_json(body: bytes, ids: str) -> pl.DataFrame:
    """Read a list of records, or a mapping from columns to lists."""
    hint = (
        'send [{"unique_id": "a", "ds": "2024-01-01", "y": 1.0}, ...] or {"unique_id": [...], "ds": [...], "y": [...]}.'
    )
    rule = "A JSON body must be a list of rows or a mapping from columns to lists of one length."
    try:
        content = from_json(body)
    except ValueError as error:
        raise DataError("The body must be JSON.", got=str(error).rstrip("."), hint=hint) from error
    if isinstance(content, list):
        wrong = next((row for row in content if not isinstance(row, dict)), None)
        if wrong is not None:
            raise DataError(rule, got=f"a list with {shown(wrong)}", hint=hint)
        names = list(dict.fromkeys(name for row in content for name in row))
        columns: Mapping[str, Any] = {name: [row.get(name) for row in content] for name in names}
    elif isinstance(content, dict):
        columns = content
    else:
        raise DataError(rule, got=shown(content), hint=hint)
    lengths = {len(column) if isinstance(column, list) else -1 for column in columns.values()}
    if len(lengths) != 1 or lengths == {-1}:
        raise DataError(rule, got=f"columns of different lengths, or none: {shown(columns)[:200]}", hint=hint)
    titles = unique_names(columns)
    return pl.DataFrame([from_objects(n, c, ids=n == ids) for n, c in zip(titles, columns.values(), strict=True)])


def names_of(model: Forecaster, columns: Mapping[str, Any]) -> ColumnSpec:
    """Return the columns of a request: those that it names, or else those that the model was fitted with."""
    return ColumnSpec.of({**model.columns_, **columns})  # type: ignore[typeddict-item]


def check_series(panel: Panel, limits: Limits) -> Panel:
    """Return the panel, or raise if it has more series than the server allows."""
    if len(panel) > limits.series:
        raise TooLargeError(
            f"A request may have at most {limits.series:,} series.",
            got=f"{len(panel):,}",
            hint="send them in several requests; --max-series of the server sets the limit.",
        )
    longest = max(len(name) if isinstance(name, str) else 1 for name in panel.ids)
    if longest > _LONGEST_ID:
        raise DataError(
            f"Ids must have at most {_LONGEST_ID:,} characters.", got=f"one of {longest:,}", hint="shorten them."
        )
    return panel


def past_of(model: Forecaster, panel: Panel, steps: int) -> Panel:
    """Return the panel to forecast from; for a model with covariates, rows after the last value are its future."""
    if not panel.covariates:
        return model.history(panel)
    past = panel.to_last_value()
    for name, flat in past.covariates.items():
        cells_SH = (past.indptr[:-1] + past.lengths)[:, None] + np.arange(steps)
        inside_SH = cells_SH < past.indptr[1:, None]
        known_SH = inside_SH & ~np.isnan(flat[np.minimum(cells_SH, flat.size - 1)])
        if not known_SH.all():
            short = int(np.argmin(known_SH.all(axis=1)))
            raise DataError(
                f"The covariate {name!r} must be known for all {steps} steps to forecast.",
                got=f"series {past.ids[short]!r} with {int(known_SH[short].sum())} of them",
                hint="add rows after the last value of each series, with the covariates and without a value.",
            )
    return model.history(past, None, steps)


def from_request(model: Forecaster, request: ForecastRequest, limits: Limits) -> Panel:
    """Return the histories of a KServe request as a panel, read by the rules of the model's own data."""
    if len(request.inputs) > limits.series:
        raise TooLargeError(
            f"A request may have at most {limits.series:,} series.",
            got=f"{len(request.inputs):,}",
            hint="send them in several requests; --max-series of the server sets the limit.",
        )
    spec = names_of(model, {})
    twice = [name for name, count in Counter(entry.name for entry in request.inputs).items() if count > 1]
    if twice:
        raise DataError(
            "Every input must have a name of its own.", got=f"{twice[0]!r} twice", hint="rename one of them."
        )
    freq = model.panel_.freq
    for number, entry in enumerate(request.inputs):
        _check_input(entry, number, freq)
    covariates = {name: [_covariate(name, e, n) for n, e in enumerate(request.inputs)] for name in spec.covariates}
    lengths = [len(entry.series) for entry in request.inputs]
    for columns in covariates.values():
        lengths = [max(length, len(column)) for length, column in zip(lengths, columns, strict=True)]
    if sum(lengths) * (3 + len(covariates)) > limits.cells:
        raise TooLargeError(
            f"A request may have at most {limits.cells:,} values, times and ids.",
            got=f"{sum(lengths):,} times",
            hint="send fewer series or a shorter past; --max-body of the server sets the limit.",
        )
    rows = np.repeat(np.arange(len(lengths)), lengths)
    known = {str(name): name for name in model.panel_.ids}
    ids = [known.get(entry.name, entry.name) for entry in request.inputs]
    if not all(isinstance(name, int) for name in ids):
        ids = [entry.name for entry in request.inputs]
    static = {name: [(entry.static or {}).get(name) for entry in request.inputs] for name in spec.static}
    table = pl.DataFrame(
        {
            spec.id_col: pl.Series(ids).gather(rows),
            spec.time_col: _times(request.inputs, lengths, freq),
            spec.target_col: _flat([entry.series for entry in request.inputs], lengths),
            **{name: _flat(columns, lengths) for name, columns in covariates.items()},
            **{name: pl.Series(categories, dtype=pl.String).gather(rows) for name, categories in static.items()},
        }
    )
    return model._read(table, freq=str(freq))  # noqa: SLF001


def _flat(columns: Sequence[Sequence[float | None]], lengths: Sequence[int]) -> pl.Series:
    """Return the columns one after the other, each filled up to its length."""
    missing = chain.from_iterable(
        chain(column, repeat(None, length - len(column))) for column, length in zip(columns, lengths, strict=True)
    )
    return pl.Series(list(missing), dtype=pl.Float64)


def _check_input(entry: SeriesInput, number: int, freq: Freq) -> None:
    where = f"inputs[{number}]"
    if entry.type != "univariate_time_series":
        raise DataError(
            "Every input must be one univariate series.",
            got=f"{entry.type} in {where}",
            hint="send one input per series.",
        )
    asked = Freq.parse(STEPS.get(entry.frequency, entry.frequency))
    # KServe has one word for the first and for the last day of a month.
    same = replace(asked, month_end=freq.month_end) if entry.frequency in STEPS else asked
    if (
        same != freq
        and not (freq.kind == "index" and entry.start_timestamp is None)
        and not (freq.kind == "business" and str(asked) == "d")
    ):
        raise DataError(
            "New data must have the step that was fitted.",
            got=f"frequency {entry.frequency!r} in {where}, after {freq}",
            hint=f"resample it to {freq}, or fit another model.",
        )


def _covariate(name: str, entry: SeriesInput, number: int) -> Sequence[float | None]:
    values = (entry.covariates or {}).get(name)
    if values is None:
        raise DataError(
            f"Every input must have the covariate {name!r} of the model.",
            got=f"none in inputs[{number}]",
            hint="add covariates with the values of the history and of the horizon.",
        )
    return values


def _times(inputs: Sequence[SeriesInput], lengths: Sequence[int], freq: Freq) -> pl.Series:
    """Return the times of the values of all inputs."""
    starts = [_start(entry, number, freq) for number, entry in enumerate(inputs)]
    if len({zoned for _, zoned in starts}) > 1:
        raise DataError(
            "All start_timestamps of a request must have a time zone, or none.",
            got="both",
            hint="write all of them like 2024-01-01T00:00:00 or like 2024-01-01T00:00:00Z.",
        )
    steps = np.concatenate([np.arange(length) for length in lengths])
    times = freq.add(np.repeat(np.array([start for start, _ in starts], np.int64), lengths), steps)
    if freq.kind == "index":
        return pl.Series(times)
    column = pl.Series(times.astype("datetime64[us]"))
    return column.dt.replace_time_zone("UTC") if starts[0][1] else column


def _start(entry: SeriesInput, number: int, freq: Freq) -> tuple[int, bool]:
    """Return the time of the first value on the clock of the model, and whether it has a zone."""
    start = entry.start_timestamp
    if freq.kind == "index":
        try:
            first = int(start or 0)
        except ValueError:
            raise _no_start(entry, number, "a whole number, as the times of the model are") from None
        if abs(first) >= _FARTHEST:
            raise _no_start(entry, number, "a whole number of at most 62 bits")
        return first, False
    try:
        begin = datetime.fromisoformat(start if isinstance(start, str) else "")
        # Days have the clock of their place.
        zoned = begin.tzinfo is not None and not freq.counts_days
        plain = begin.astimezone(UTC) if zoned else begin
    except ValueError:
        raise _no_start(entry, number, "a time in ISO 8601") from None
    except OverflowError:
        raise _no_start(entry, number, "a time in the years 1 to 9999") from None
    return int(np.datetime64(plain.replace(tzinfo=None), "us").astype(np.int64)), zoned


def _no_start(entry: SeriesInput, number: int, what: str) -> DataError:
    return DataError(
        f"start_timestamp must be {what}.",
        got=f"{shown(entry.start_timestamp)} in inputs[{number}]",
        hint="write the time of the first value, such as 2024-01-01T00:00:00.",
    )


def example(model: Forecaster) -> pl.DataFrame:
    """Return made-up values that a model can forecast: its columns, ids and step, waves of one season and of seven."""
    panel, spec, season = model.panel_, names_of(model, {}), model.panel_.freq.season
    steps = min(int(panel.lengths.max()), 1000) + 4 * (season + model.horizon)
    ids = panel.ids[: max(1, _EXAMPLE_ROWS // steps)]
    # For a model with covariates, rows without a value are the future.
    future = model.horizon if spec.covariates else 0
    offsets = np.arange(1 - steps, future + 1)
    # The last three windows lie after the training.
    clock = panel.freq.add(np.full(len(offsets), max(model.learned_until().values())), offsets + 3 * model.horizon)
    times = stamps(panel, clock)
    parts, rng = [], np.random.default_rng(0)
    for number, name in enumerate(ids):
        turns = 2 * np.pi * (offsets / max(season, 2) + number / 7)
        noise = rng.normal(size=len(offsets))
        shape = 1 + 0.45 * np.sin(turns) + 0.15 * np.sin(2 * turns) + 0.12 * np.sin(turns / 7) + 0.07 * noise
        # Whole numbers above zero have a density under every likelihood.
        values = np.maximum(np.round((60 + 40 * (number % 5)) * shape), 1.0)
        columns = {spec.id_col: name, spec.time_col: times, spec.target_col: np.where(offsets > 0, np.nan, values)}
        extra = {covariate: np.sin(turns).round(3) for covariate in spec.covariates}
        static = {key: panel.static[key].categories[0] for key in spec.static}
        parts.append(pl.DataFrame({**columns, **extra, **static}).with_columns(pl.col(spec.target_col).fill_nan(None)))
    return pl.concat(parts)


def texts(panel: Panel, times: Any) -> list[str | int]:
    """Return times on the panel's clock as JSON has them: ISO 8601, or whole numbers."""
    return as_json(stamps(panel, times))


def as_json(column: pl.Series) -> list[Any]:
    """Return a column as JSON has it: times as ISO 8601, NaN as null."""
    if column.dtype == pl.Datetime:
        return column.dt.to_string("iso:strict").str.replace(".000000", "", literal=True).to_list()
    if column.dtype.is_temporal():
        return column.cast(pl.String).to_list()
    return column.fill_nan(None).to_list() if column.dtype.is_float() else column.to_list()


def kserve_answer(name: str, forecast: Forecast, order: Sequence[str], steps: str) -> dict[str, Any]:
    """Return the answer to a KServe request, in the order of its inputs; `ForecastAnswer` describes it."""
    panel, horizon = forecast.panel, forecast.mean.shape[1]
    place = {str(series): row for row, series in enumerate(panel.ids)}
    content = []
    for series in order:
        row = place[series]
        times = texts(
            panel, panel.freq.add(np.full(horizon, panel.starts[row]), panel.lengths[row] + np.arange(horizon))
        )
        content.append(
            {
                "type": "univariate_time_series",
                "name": series,
                "mean_forecast": forecast.mean[row].tolist(),
                "frequency": steps,
                "start_timestamp": times[0],
                "timestamps": times,
                "quantiles": {
                    f"{level:g}": forecast.quantiles[row, i].tolist() for i, level in enumerate(forecast.levels)
                },
            }
        )
    output = {
        "type": "time_series_forecast",
        "id": uuid.uuid4().hex,
        "status": "completed",
        "content": content,
        "error": None,
    }
    return {
        "id": uuid.uuid4().hex,
        "created_at": int(time.time()),
        "status": "completed",
        "error": None,
        "model": name,
        "outputs": [output],
        "usage": None,
    }


def written(table: pl.DataFrame, kind: str) -> bytes:
    """Return the table as the body of an answer."""
    try:
        return encode(table, kind)
    except pl.exceptions.PolarsError as error:
        raise ConfigError(
            f"The forecast must be writable as {kind}.", got=str(error).splitlines()[0], hint="ask for another format."
        ) from error
