"""Ids, times and numbers of a table -> rows on one regular grid, each checked and every offender named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.calendar import Freq, Ints, infer
from logsparse.data.panel import Floats, SeriesId, Static
from logsparse.data.table import moments, to_wall
from logsparse.errors import DataError

TimeKind = tuple[Literal["integer", "date", "datetime"], str | None]


@dataclass(frozen=True)
class Rows:
    """Rows sorted by series, then time: `order` sorts the table's own rows, the rest is sorted already."""

    ids: tuple[SeriesId, ...]
    order: Ints
    codes: Ints
    times: Ints

    def first(self, where: NDArray[np.bool_], freq: Freq) -> str:
        """The first row that `where` marks, in words."""
        row = int(np.argmax(where))
        return f"series {self.ids[self.codes[row]]!r} at {freq.show(int(self.times[row]))}"


def number_series(table: pl.DataFrame, id_col: str) -> tuple[tuple[SeriesId, ...], Ints]:
    """Series numbered in the order in which they first appear."""
    column = table[id_col].alias("id")
    if column.null_count():
        raise DataError(f"Every row needs an id in {id_col!r}.", got="empty ids", hint="fill or drop those rows.")
    column = column if column.dtype.is_integer() else column.cast(pl.String)
    unique = column.unique(maintain_order=True)
    numbered = pl.DataFrame({"id": unique, "code": np.arange(len(unique))})
    codes = column.to_frame().join(numbered, on="id", how="left", maintain_order="left")["code"]
    return tuple(unique.to_list()), codes.to_numpy()


def lay_out(
    ids: tuple[SeriesId, ...], codes: Ints, stamps: pl.Series, asked: str | int | None
) -> tuple[Rows, Freq, TimeKind]:
    """Rows in order, the step they share, and what kind of time it was; every time is checked to lie on the grid."""
    column, zone = moments(stamps)
    dates = column.dtype.is_temporal()
    times = column.cast(pl.Datetime("us")).to_numpy() if dates else column.to_numpy()
    times = times.astype(np.int64)
    order = np.arange(times.size)
    ahead = (np.diff(codes) > 0) | ((np.diff(codes) == 0) & (np.diff(times) > 0))
    if not ahead.all():
        order = pl.DataFrame({"c": codes, "t": times}).select(pl.arg_sort_by("c", "t")).to_series().to_numpy()
        codes, times = codes[order], times[order]
    freq = Freq.parse(asked) if asked is not None else infer(times, codes, dates=dates)
    if zone and (freq is None or freq.counts_days or (asked is None and _astray(freq, times, codes).any())):
        times = to_wall(times, zone)  # whole days are counted on the wall, where none has 23 or 25 hours
        freq = freq if asked is not None else infer(times, codes, dates=dates)
    freq = freq or (Freq("index", 1) if not dates else None)
    if freq is None or (freq.kind == "index") == dates:
        raise DataError(
            "The step must follow from the times, or be given.",
            got="no series with two times" if freq is None else f"freq={asked!r} for {column.dtype} times",
            hint="give it with freq=, such as freq='h' for dates or freq=1 for integers.",
        )
    rows = Rows(ids, order, codes, times)
    same = (np.diff(times) == 0) & (np.diff(codes) == 0)
    if same.any():
        raise DataError(
            f"A series must have one row a time; {stamps.name!r} repeats.",
            got=f"two rows for {rows.first(np.append(False, same), freq)}",
            hint="drop or aggregate the doubles, or name the column that tells the series apart with id_col=.",
        )
    if (astray := _astray(freq, times, codes)).any() or (asked is None and (astray := _own_step(freq, rows)).any()):
        raise DataError(
            "All series must share one step.",
            got=f"most steps are {freq}, but not in {rows.first(astray, freq)}",
            hint="give the step with freq= (what lies between becomes missing), or resample that series.",
        )
    kind: Literal["integer", "date", "datetime"] = (
        "integer" if not dates else "date" if column.dtype == pl.Date else "datetime"
    )
    return rows, freq, (kind, zone)


def _astray(freq: Freq, times: Ints, codes: Ints) -> NDArray[np.bool_]:
    starts = times[np.flatnonzero(np.diff(codes, prepend=-1))][codes]
    return np.asarray(freq.add(starts, freq.steps(starts, times)) != times)


def _own_step(freq: Freq, rows: Rows) -> NDArray[np.bool_]:
    """Marks series that keep a coarser step of their own: three equal gaps or more, and none as small as the step."""
    begins = np.flatnonzero(np.diff(rows.codes, prepend=-1))
    steps = freq.steps(rows.times[begins][rows.codes], rows.times)
    gaps = np.diff(steps, append=steps[-1])
    gaps[np.append(begins[1:], rows.times.size) - 1] = 0
    largest = np.maximum.reduceat(gaps, begins)
    counts = np.diff(np.append(begins, rows.times.size)) - 1
    total = np.add.reduceat(gaps, begins)
    return np.asarray((largest > 1) & (counts >= 3) & (total == largest * counts))[rows.codes]


def read_numbers(column: pl.Series, rows: Rows, freq: Freq, *, straight: bool = False) -> Floats:
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean or column.null_count() == len(column)):
        text = column.cast(pl.String)
        wrong = (text.is_not_null() & text.cast(pl.Float64, strict=False).is_null()).to_numpy()
        row = int(np.argmax(wrong if wrong.any() else text.is_not_null().to_numpy()))
        at = rows.first(rows.order == row, freq)
        raise DataError(
            f"The column {column.name!r} must hold numbers.",
            got=f"{text[row]!r} in {at}",
            hint="convert the column to numbers; leave missing values empty.",
        )
    numbers = column.cast(pl.Float32, strict=False).to_numpy()
    numbers = numbers if straight else numbers[rows.order]
    if (endless := np.isinf(numbers)).any():
        raise DataError(
            f"The column {column.name!r} must hold finite numbers.",
            got=f"an infinite value in {rows.first(endless, freq)}",
            hint="replace it by a number, or by nothing: missing values are allowed.",
        )
    return np.asarray(numbers, np.float32)


def read_category(column: pl.Series, rows: Rows, begins: Ints) -> Static:
    text = column.cast(pl.String).fill_null("")
    categories = text.unique().sort()
    codes = text.cast(pl.Enum(categories)).to_physical().to_numpy().astype(np.int64)[rows.order]
    changes = codes != codes[begins][rows.codes]
    if changes.any():
        raise DataError(
            f"The static column {column.name!r} must keep one value a series.",
            got=f"two in series {rows.ids[rows.codes[int(np.argmax(changes))]]!r}",
            hint="name it in covariates= if it changes with time.",
        )
    return Static(codes[begins], tuple(categories.to_list()))
