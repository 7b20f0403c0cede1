"""A frame or file -> Panel.

The way of a frame, each step in one file:

1. columns: names and roles of the columns (`ColumnSpec`).
2. files: a path -> a lazy polars table. grid: a pandas, polars or pyarrow frame -> a lazy polars table (`scan_native`).
3. here: long or wide?
4. localtime, times: text, dates and zones -> int64. grid: rows in order, their step (`place_on_grid`), values.
5. panel: the flat arrays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, Unpack, cast

import numpy as np
import polars as pl

from logsparse.data.columns import TARGET, Columns, ColumnSpec, refuse_duplicates, require, validate_columns
from logsparse.data.files import (
    BYTES_PER_CELL,
    BYTES_PER_CELL_READ,
    BYTES_PER_EXTRA_CELL,
    BYTES_PER_LONG_ROW,
    collect,
    count_rows,
    disagreement,
    scan_parts,
    schema_of,
)
from logsparse.data.grid import (
    Library,
    TimeKind,
    check_size,
    check_words,
    number_series,
    place_on_grid,
    read_category,
    read_covariate,
    read_numbers,
    scan_native,
)
from logsparse.data.localtime import looks_like, looks_like_period, read_times
from logsparse.data.mapped import Spool
from logsparse.data.mapped import place as temporary_place
from logsparse.data.panel import Floats, Origin, Panel, SeriesId, in_common_categories
from logsparse.data.times import NAIVE, When, clock_time
from logsparse.errors import DataError, SplitSeriesError, StepUnknownError
from logsparse.process import available, check_memory

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

# S series, L steps of a wide table

_COLUMNS_AT_ONCE = 512
# A folder that takes more than this share of the free memory to read stays on disk: a model needs memory too.
_MOST_MEMORY = 0.5
# Names that pandas' to_csv and read_csv give to an unnamed index.
_UNNAMED = ("", "Unnamed: 0")

log = logging.getLogger("logsparse")

Data: TypeAlias = "IntoDataFrame | pl.LazyFrame | str | Path | Panel"
"""What `fit`, `backtest` and `to_panel` accept: a frame, the path of a file or folder, or a panel."""


def to_panel(data: Data, **columns: Unpack[Columns]) -> Panel:
    """Read a long or wide frame or file into a Panel.

    A long table has one row per series and time; a wide table has a time column and one numeric column per series.

    Parameters
    ----------
    data : frame, str, Path or Panel
        A pandas, polars or pyarrow frame, or the path of a parquet, csv or feather file or of a folder of parquet
        files. A Panel is returned unchanged.
    id_col, time_col, target_col : str, default "unique_id", "ds", "y"
        Names of the columns of ids, times and values.
    freq : str, int, timedelta or pandas offset, optional
        The step between two times, such as "15min", "D", "ME", or 1 for integer times. Default: inferred.
    covariates : list of str, optional
        Columns of numbers or words that are known in the future.
    past_covariates : list of str, optional
        Columns of numbers or words that are known up to the cutoff only.
    static : list of str, optional
        Columns of one category per series (long tables only).
    tz : str, optional
        Zone whose clock counts days and hours, such as "Europe/Berlin": times without a zone are its local times, and
        others are converted.
    time_format : str, optional
        How times are written in text, as for strftime: "%d.%m.%Y %H:%M".
    dayfirst : bool, optional
        True reads 01.02.2024 and 1/2/2024 as the first of February, False as the second of January.

    Returns
    -------
    Panel
        All series on one regular grid; missing rows and values are NaN. Each series begins at its first value.

    Raises
    ------
    DataError
        If the data cannot be read, a column is missing, a time is off the grid or repeated, a value is not a finite
        number, or the panel does not fit into memory.
    ConfigError
        If `freq` or another keyword is not valid.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> long = pl.DataFrame({"unique_id": ["a", "a", "b", "b"], "ds": [1, 2, 1, 2], "y": [1.0, 2.0, 3.0, 4.0]})
    >>> ls.to_panel(long)
    Panel(2 series, 4 values, 1, 1 to 2)
    >>> wide = pl.DataFrame({"day": ["2024-01-01", "2024-01-02"], "a": [1.0, 2.0], "b": [3.0, 4.0]})
    >>> ls.to_panel(wide)
    Panel(2 series from a wide table, 4 values, d, 2024-01-01 to 2024-01-02)
    >>> ls.to_panel(long.rename({"y": "sales"}), target_col="sales").ids
    ('a', 'b')
    >>> ls.to_panel(pl.DataFrame({"day": ["01.02.2024", "02.02.2024"], "a": [1.0, 2.0]}), dayfirst=True)
    Panel(1 series from a wide table, 2 values, d, 2024-02-01 to 2024-02-02)

    """
    panel = with_empty(data, **columns)
    if not isinstance(data, Panel):
        refuse_empty(panel)
    return panel


def with_empty(data: Data, **columns: Unpack[Columns]) -> Panel:
    """Read as `to_panel` does, but keep series without any value, as all NaN."""
    return read_as(data, ColumnSpec.of(columns))


def read_as(data: Data, spec: ColumnSpec) -> Panel:
    """Read a frame or file whose columns are described by `spec`, empty series included; a Panel stays itself."""
    if isinstance(data, Panel):
        return data
    table, library = scan_native(data, ids=spec.id_col, needed=spec.used)
    if not schema_of(table) or (height := count_rows(table)) == 0:
        got = f"{data}, which has none" if isinstance(data, str | Path) else "an empty frame"
        raise DataError("A frame must have rows.", got=got, hint="check how it was read or filtered.")
    table = _only_target(_without_row_numbers(table, spec), spec)
    time_col = _wide_time_column(table, spec)
    if time_col is None:
        require(list(schema_of(table)), spec.used)
        needed = height * (BYTES_PER_LONG_ROW + BYTES_PER_EXTRA_CELL * (len(spec.timed) + len(spec.static)))
        if isinstance(data, (str, Path)) and Path(data).is_dir() and needed > _MOST_MEMORY * available():
            return _from_parts(Path(data), spec)
        check_memory(needed, f"{height} rows")
        return _from_long(collect(table, spec.used), spec, library)
    log.info("recognised a wide table: time column %r, one column per series", time_col)
    width = len(schema_of(table))
    check_memory(
        height * (BYTES_PER_CELL * width + BYTES_PER_CELL_READ * min(width, _COLUMNS_AT_ONCE)),
        f"{height} rows of {width} columns",
    )
    return _from_wide(table, spec, time_col, library)


def _without_row_numbers(table: pl.LazyFrame, spec: ColumnSpec) -> pl.LazyFrame:
    """Drop an unnamed first column that only numbers the rows."""
    schema = schema_of(table)
    name = next(iter(schema))
    if name not in _UNNAMED or name in spec.used or not schema[name].is_integer():
        return table
    numbers = collect(table, [name])[name]
    counts = [pl.Series(np.arange(first, first + len(numbers))) for first in (0, 1)]
    # Rows filtered from a longer table keep their numbers there; these are not times if there is a time column.
    filtered = spec.time_col in schema and numbers.n_unique() == len(numbers)
    if not filtered and not any((numbers == count).all() for count in counts):
        return table
    log.info("dropped the unnamed first column: row numbers")
    return table.drop(name)


def _only_target(table: pl.LazyFrame, spec: ColumnSpec) -> pl.LazyFrame:
    """Drop the numbers beside a target that was named, if there are no ids: the table is one series then."""
    schema = schema_of(table)
    if spec.target_col == TARGET or spec.target_col not in schema or spec.id_col in schema or spec.static:
        return table
    used = [spec.target_col, *spec.timed]
    time_col = time_column(table, spec)
    others = [name for name in schema if name not in (time_col, *used)]
    if time_col is None or not all(schema[name].is_numeric() for name in others):
        return table
    return table.select(name for name in schema if name not in others)


def time_column(table: pl.LazyFrame, spec: ColumnSpec) -> str | None:
    """Return the column named `time_col`, or else the only column of dates (or of text that looks like dates)."""
    schema = schema_of(table)
    if spec.time_col in schema:
        return spec.time_col
    texts = [name for name, kind in schema.items() if kind == pl.String]
    first = collect(table.head(100), texts)
    dated = [n for n, kind in schema.items() if kind.is_temporal() or (n in texts and looks_like(first[n], spec))]
    if not dated and spec.time_format is None:
        dated = [name for name in texts if name not in spec.used and looks_like_period(first[name])]
    return dated[0] if len(dated) == 1 else None


def _wide_time_column(table: pl.LazyFrame, spec: ColumnSpec) -> str | None:
    """Return the time column of a wide table, or None for a long table."""
    schema, wanted = schema_of(table), [*spec.timed, *spec.static]
    if spec.id_col in schema or spec.static:
        return None
    time_col = time_column(table, spec)
    # Times and a target alone are one series, whatever the times are called.
    if spec.target_col in schema and {time_col, spec.target_col, *wanted} != set(schema):
        return None
    rest = {name: kind for name, kind in schema.items() if name not in (time_col, *wanted)}
    if time_col is not None and len(rest) == 1 and pl.String in rest.values():
        return time_col  # one series, whose text an error names
    if time_col is None or not any(kind.is_numeric() for kind in rest.values()):
        return None
    require(list(schema), spec.timed)
    others = [name for name, kind in rest.items() if not (kind.is_numeric() or kind == pl.Null)]
    if others:
        raise DataError(
            f"A wide table must hold only numbers besides its time column {time_col!r}.",
            got=f"{'text' if schema[others[0]] == pl.String else schema[others[0]]} in {others[0]!r}",
            hint="drop that column; if the table is long, name its columns with id_col= and target_col=.",
        )
    refuse_duplicates(schema, schema)
    return time_col


def _from_long(table: pl.DataFrame, spec: ColumnSpec, library: Library) -> Panel:
    ids, codes = number_series(table, spec.id_col)
    stamps, written = read_times(table[spec.time_col], codes, spec)
    rows, freq, times = place_on_grid(ids, codes, stamps, spec.freq, spec.step)
    begins = rows.begins
    steps = freq.steps(rows.times[begins][rows.codes], rows.times)
    lengths = steps[np.append(begins[1:], rows.times.size) - 1] + 1
    check_size(rows, freq, lengths, 1 + len(spec.timed))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    cells = indptr[rows.codes] + steps

    def spread(numbers: Floats) -> Floats:
        flat = np.full(indptr[-1], np.nan, np.float32)
        flat[cells] = numbers
        return flat

    read = {name: read_covariate(table[name], rows, freq) for name in spec.timed}
    panel = Panel(
        values=spread(read_numbers(table[spec.target_col], rows, freq)),
        indptr=indptr,
        lengths=lengths,
        ids=ids,
        starts=rows.times[begins],
        freq=freq,
        covariates={name: spread(numbers) for name, (numbers, _) in read.items()},
        static={name: read_category(table[name], rows) for name in spec.static},
        origin=_origin(library, "long", times, written, spec),
        past=tuple(spec.past_covariates),
        words={name: words for name, (_, words) in read.items() if words},
    )
    return _trim_leading_gaps(panel)


def _from_parts(folder: Path, spec: ColumnSpec) -> Panel:
    """Read a folder part by part; values and covariates go to temporary files. Each series must lie in one part."""
    log.info("%s is large: its values are kept in temporary files in %s", folder, temporary_place())
    lazies = scan_parts(folder, spec.used)
    part_of: dict[SeriesId, Path] = {}
    outlines: list[Panel] = []
    with ExitStack() as files:
        spools = {name: files.enter_context(Spool()) for name in (spec.target_col, *spec.timed)}
        for path, lazy in lazies.items():
            panel = _like_first(lazy, spec, outlines, path)
            for name in panel.ids:
                if name in part_of:
                    raise SplitSeriesError.of(name, part_of[name], path, folder, len(lazies))
            part_of.update(dict.fromkeys(panel.ids, path))
            for name, flat in ((spec.target_col, panel.values), *panel.covariates.items()):
                spools[name].add(flat)
            outlines.append(replace(panel, values=np.empty(0, np.float32), covariates={}))
        values, *covariates = (spool.array() for spool in spools.values())
    panel = Panel.joined(in_common_categories(outlines))
    panel = replace(panel, values=values, covariates=dict(zip(spec.timed, covariates, strict=True)))
    words = {name: _common_words(name, flat, outlines) for name, flat in panel.covariates.items()}
    return replace(panel, words={name: found for name, found in words.items() if found})


def _like_first(part: pl.LazyFrame, spec: ColumnSpec, before: list[Panel], path: Path) -> Panel:
    """Read a part, whose step must be that of the parts before it."""
    try:
        panel = read_as(part, spec)
    except StepUnknownError:
        if not before:
            raise
        panel = read_as(part, replace(spec, freq=str(before[0].freq)))
    if before and (panel.freq, panel.origin) != (before[0].freq, before[0].origin):
        raise DataError(
            "The parts of a folder must have the same step.",
            got=f"{before[0].freq}, and {panel.freq} in {path}",
            hint="pass it with freq=, or remove the parts that do not belong.",
        )
    return panel


def _common_words(name: str, flat: Floats, parts: list[Panel]) -> tuple[str, ...]:
    """Return the words of a covariate in all parts, and write their indices in the place of those of each part."""
    found = tuple(sorted({word for part in parts for word in part.words.get(name, ())}))
    check_words(name, found)
    places, begin = {word: place for place, word in enumerate(found)}, 0
    for part in parts if found else ():
        own, end = part.words.get(name, ()), begin + int(part.indptr[-1])
        if own != found:
            seen = ~np.isnan(flat[begin:end])
            if seen.any() and not own:
                raise disagreement(name, "words in some of them, numbers in others")
            code = np.array([places[word] for word in own], np.float32)
            flat[begin:end][seen] = code[flat[begin:end][seen].astype(np.int64)]
        begin = end
    return found


def _from_wide(table: pl.LazyFrame, spec: ColumnSpec, time_col: str, library: Library) -> Panel:
    names = [name for name in schema_of(table) if name not in (time_col, *spec.timed)]
    # Times are read together with the first columns: a separate read would double the cost.
    first = collect(table, [time_col, *names[:_COLUMNS_AT_ONCE]])
    codes = np.zeros(len(first), np.int64)
    stamps, written = read_times(first.drop_in_place(time_col), codes, spec)
    rows, freq, times = place_on_grid((), codes, stamps, spec.freq)
    cells = freq.steps(np.full_like(rows.times, rows.times[0]), rows.times)
    length = int(cells[-1]) + 1
    check_size(rows, freq, np.array([length]), len(names) + len(spec.timed))
    in_order = length == len(stamps) and bool((rows.order[1:] > rows.order[:-1]).all())

    def spread(numbers: Floats, into: Floats) -> None:
        if in_order:
            into[:] = numbers
        else:
            into[:] = np.nan
            into[cells] = numbers

    shared, words = {name: np.empty(length, np.float32) for name in spec.timed}, {}
    for name, into in shared.items():
        numbers, words[name] = read_covariate(
            collect(table, [name])[name], replace(rows, ids=(name,)), freq, in_order=in_order
        )
        spread(numbers, into)
    values_SL = np.empty((len(names), length), np.float32)
    for column, into in zip(chain(first, _columns(table, names[_COLUMNS_AT_ONCE:])), values_SL, strict=True):
        spread(read_numbers(column, replace(rows, ids=(column.name,)), freq, in_order=in_order), into)
    panel = Panel(
        values=values_SL.reshape(-1),
        indptr=np.arange(len(names) + 1) * length,
        lengths=np.full(len(names), length),
        ids=tuple(names),
        starts=np.full(len(names), rows.times[0]),
        freq=freq,
        covariates={name: np.tile(into, len(names)) for name, into in shared.items()},
        origin=_origin(library, "wide", times, written, spec),
        past=tuple(spec.past_covariates),
        words={name: found for name, found in words.items() if found},
    )
    return _trim_leading_gaps(panel)


def _origin(
    library: Library, layout: Literal["long", "wide"], times: TimeKind, written: str | None, spec: ColumnSpec
) -> Origin:
    kind, zone = times
    # Dates have no zone of their own.
    zone = spec.tz if written == NAIVE else zone
    return Origin(library, layout, kind, zone, written, spec.names if layout == "long" else None)


def _columns(table: pl.LazyFrame, names: list[str]) -> Iterator[pl.Series]:
    """Yield the columns one by one, reading many at a time: a very wide file is never in memory as a whole.

    Each read costs about 50 ms regardless of its size, so few large reads beat many small ones (docs/LOG.md).
    """
    for begin in range(0, len(names), _COLUMNS_AT_ONCE):
        yield from collect(table, names[begin : begin + _COLUMNS_AT_ONCE])


def _trim_leading_gaps(panel: Panel) -> Panel:
    """Drop the missing steps before the first value of each series.

    A wide table has to contain them and a long one does not, so the age of a series must not depend on them.
    """
    late_S = np.zeros(len(panel), np.int64)
    for series in np.flatnonzero(np.isnan(panel.values[panel.indptr[:-1]])).tolist():
        seen = ~np.isnan(panel[series])
        if seen.any():
            late_S[series] = panel.freq.restart(int(panel.starts[series]), int(np.argmax(seen)))
    if not late_S.any():
        return panel
    indptr = np.concatenate([[0], np.cumsum(panel.lengths - late_S)])

    def trim(flat: Floats) -> Floats:
        # In place, from the first series on: a second copy of a large panel may not fit into memory.
        for begin, end, old in zip(indptr, indptr[1:], panel.indptr[:-1] + late_S, strict=False):
            flat[begin:end] = flat[old : old + end - begin]
        return flat[: indptr[-1]]

    return replace(
        panel,
        values=trim(panel.values),
        indptr=indptr,
        lengths=panel.lengths - late_S,
        starts=panel.freq.add(panel.starts, late_S),
        covariates={name: trim(flat) for name, flat in panel.covariates.items()},
    )


def refuse_empty(panel: Panel) -> None:
    """Raise for the first series without any value."""
    for series in np.flatnonzero(np.isnan(panel.values[panel.indptr[:-1]])).tolist():
        if np.isnan(panel[series]).all():
            raise DataError(
                "Every series must have at least one value.",
                got=f"none in series {panel.ids[series]!r}",
                hint="drop that series.",
            )


def read_panel(data: Data, until: When | None, columns: Columns) -> tuple[Panel, Columns]:
    """Return the data up to `until` as a panel, and the columns that were named, checked; a panel names its own."""
    given = validate_columns(columns)
    panel = to_panel(data, **given)
    if isinstance(data, Panel):
        own = {"covariates": panel.ahead, "past_covariates": panel.past, "static": tuple(panel.static)}
        given = cast("Columns", {**given, **{role: list(names) for role, names in own.items() if names}})
    return (panel if until is None else panel.until(clock_time(panel, until))), given
