"""KServe request -> histories as a panel; forecast -> KServe answer."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any

import numpy as np
import polars as pl

from logsparse.data.calendar import Freq, Ints
from logsparse.data.panel import Origin, Panel
from logsparse.errors import DataError, shown
from logsparse.forecast import Forecast, Forecaster
from logsparse.serving.schema import STEPS, ForecastRequest, SeriesInput
from logsparse.serving.tables import Limits, TooLargeError, names_of, texts

_FARTHEST = 2**62
# Times from the year 9999 on are left to the reader of tables, in microseconds.
_LATEST = int(np.datetime64("9999-01-01", "us").astype(np.int64))


def from_request(model: Forecaster, request: ForecastRequest, limits: Limits) -> Panel:
    """Return the histories of a KServe request as a panel, read by the rules of the model's own data."""
    if len(request.inputs) > limits.series:
        raise TooLargeError(
            f"A request may have at most {limits.series:,} series.",
            got=f"{len(request.inputs):,}",
            hint="send them in several requests; --max-series of the server sets the limit.",
        )
    twice = [name for name, count in Counter(entry.name for entry in request.inputs).items() if count > 1]
    if twice:
        raise DataError(
            "Every input must have a name of its own.", got=f"{twice[0]!r} twice", hint="rename one of them."
        )
    spec, freq = names_of(model, {}), model.panel_.freq
    for number, entry in enumerate(request.inputs):
        _check_input(entry, number, freq)
    covariates = {name: [_covariate(name, e, n) for n, e in enumerate(request.inputs)] for name in spec.timed}
    # A series without a history has one row at least, which says where its forecast begins.
    lengths = [max(1, len(entry.series)) for entry in request.inputs]
    for columns in covariates.values():
        lengths = [max(length, len(column)) for length, column in zip(lengths, columns, strict=True)]
    if sum(lengths) * (3 + len(covariates)) > limits.cells:
        raise TooLargeError(
            f"A request may have at most {limits.cells:,} values, times and ids.",
            got=f"{sum(lengths):,} times",
            hint="send fewer series or a shorter past; --max-body of the server sets the limit.",
        )
    starts, zoned = _starts(request.inputs, freq)
    plain = not (spec.timed or spec.static or spec.tz or zoned or model.panel_.origin.zone)
    if plain and (panel := _on_grid(request.inputs, np.array(lengths), starts, freq)) is not None:
        return replace(panel, origin=replace(panel.origin, names=spec.names))
    rows = np.repeat(np.arange(len(lengths)), lengths)
    static = {name: [(entry.static or {}).get(name) for entry in request.inputs] for name in spec.static}
    table = pl.DataFrame(
        {
            spec.id_col: pl.Series([entry.name for entry in request.inputs]).gather(rows),
            spec.time_col: _times(starts, lengths, freq, zoned=zoned),
            spec.target_col: _flat([entry.series for entry in request.inputs], lengths),
            **{name: _flat(columns, lengths) for name, columns in covariates.items()},
            **{name: pl.Series(categories, dtype=pl.String).gather(rows) for name, categories in static.items()},
        }
    )
    return model._read(table, freq=str(freq))  # noqa: SLF001


def _on_grid(inputs: Sequence[SeriesInput], lengths: Ints, starts: Ints, freq: Freq) -> Panel | None:
    """Return the panel that the table of these inputs would be read as, in a tenth of the time; None if unsure.

    What is wrong, or begins with a missing value, is left to the table and its messages.
    """
    if freq.kind not in ("tick", "index") or min(len(entry.series) for entry in inputs) == 0:
        return None
    with np.errstate(over="ignore"):
        values = np.array([*chain.from_iterable(entry.series for entry in inputs)], np.float64).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    late = freq.kind == "tick" and freq.add(starts, lengths).max() >= _LATEST
    if late or np.isnan(values[indptr[:-1]]).any() or np.isinf(values).any():
        return None
    origin = Origin(time_type="integer" if freq.kind == "index" else "datetime")
    return Panel(values, indptr, lengths, tuple(entry.name for entry in inputs), starts, freq, origin=origin)


def _flat(columns: Sequence[Sequence[float | str | None]], lengths: Sequence[int]) -> pl.Series:
    """Return the columns one after the other, each filled up to its length; numbers beside text become text."""
    filled = [
        *chain.from_iterable(
            chain(column, repeat(None, length - len(column))) for column, length in zip(columns, lengths, strict=True)
        )
    ]
    text = any(isinstance(value, str) for value in filled)
    return pl.Series([None if v is None else str(v) for v in filled]) if text else pl.Series(filled, dtype=pl.Float64)


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


def _covariate(name: str, entry: SeriesInput, number: int) -> Sequence[float | str | None]:
    values = (entry.covariates or {}).get(name)
    if values is None:
        raise DataError(
            f"Every input must have the covariate {name!r} of the model.",
            got=f"none in inputs[{number}]",
            hint="add covariates with the values of the history and of the horizon.",
        )
    return values


def _starts(inputs: Sequence[SeriesInput], freq: Freq) -> tuple[Ints, bool]:
    """Return the time of the first value of each input on the clock of the model, and whether they have a zone."""
    starts = [_start(entry, number, freq) for number, entry in enumerate(inputs)]
    if len({zoned for _, zoned in starts}) > 1:
        raise DataError(
            "All start_timestamps of a request must have a time zone, or none.",
            got="both",
            hint="write all of them like 2024-01-01T00:00:00 or like 2024-01-01T00:00:00Z.",
        )
    return np.array([start for start, _ in starts], np.int64), starts[0][1]


def _times(starts: Ints, lengths: Sequence[int], freq: Freq, *, zoned: bool) -> pl.Series:
    """Return the times of the values of all inputs."""
    times = freq.add(np.repeat(starts, lengths), np.concatenate([np.arange(length) for length in lengths]))
    if freq.kind == "index":
        return pl.Series(times)
    column = pl.Series(times.astype("datetime64[us]"))
    return column.dt.replace_time_zone("UTC") if zoned else column


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


def kserve_answer(name: str, forecast: Forecast, order: Sequence[str], steps: str) -> dict[str, Any]:
    """Return the answer to a KServe request, in the order of its inputs; `ForecastAnswer` describes it."""
    panel, horizon = forecast.panel, forecast.mean.shape[1]
    place = {str(series): row for row, series in enumerate(panel.ids)}
    rows = [place[series] for series in order]
    ahead = (panel.lengths[rows, None] + np.arange(horizon)).ravel()
    times = texts(panel, panel.freq.add(np.repeat(panel.starts[rows], horizon), ahead))
    levels = [f"{level:g}" for level in forecast.levels]
    content = []
    for number, (series, row) in enumerate(zip(order, rows, strict=True)):
        own = times[number * horizon : (number + 1) * horizon]
        content.append(
            {
                "type": "univariate_time_series",
                "name": series,
                "mean_forecast": forecast.mean[row].tolist(),
                "frequency": steps,
                "start_timestamp": own[0],
                "timestamps": own,
                "quantiles": dict(zip(levels, forecast.quantiles[row].tolist(), strict=True)),
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
