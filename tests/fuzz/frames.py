"""A random generator -> one hostile frame of any library and any types, with or without a known truth."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from fuzz.case import Case
from fuzz.truth import Truth, some_names, truth
from logsparse.data.frame import to_panel

pa: Any = import_module("pyarrow")
Column = list[Any]
Frame = dict[str, Column]


def case(rng: np.random.Generator, folder: Path) -> Case:  # noqa: ARG001 - frames need no folder
    """Half of the cases compare every value with a known truth; the others must only not crash."""
    make = (long, wide, odd_cells, odd_columns, odd_types, odd_settings)[
        rng.choice(6, p=(0.3, 0.2, 0.2, 0.1, 0.1, 0.1))
    ]
    return make(rng)


# ---- frames with a known truth


def long(rng: np.random.Generator) -> Case:
    """A long frame of any library, with columns of any types that hold the same values."""
    known = truth(rng)
    ids, names, how_ids = _ids(rng, known)
    stamps, how_times = _times(rng, [known.times[step] for _, step, _ in known.rows], known)
    numbers, how_values = _numbers(rng, [value for _, _, value in known.rows])
    columns: dict[str, Any] = {"unique_id": ids, "ds": stamps, "y": numbers}
    if rng.random() < 0.5:
        columns["note"] = _objects(rng, len(known.rows))
    data, how = _framed(rng, columns)
    label = f"{how}, ids {how_ids}, times {how_times}, values {how_values}, step {known.freq}"
    return Case("frame: long", label, lambda: known.check(data, names))


def wide(rng: np.random.Generator) -> Case:
    """A wide frame: the union of all times, one column per series."""
    known = truth(rng)
    names = some_names(rng, known.series)
    steps = sorted({step for _, step, _ in known.rows})
    stamps, how_times = _times(rng, [known.times[step] for step in steps], known)
    cells = {(number, step): value for number, step, value in known.rows}
    columns: dict[str, Any] = {"ds": stamps}
    for number in known.series:
        columns[names[number]], _ = _numbers(rng, [cells.get((number, step)) for step in steps])
    data, how = _framed(rng, columns)
    # With holes in the union of all times, the step cannot be inferred.
    known = Truth(known.rows, known.times, known.zone, known.freq, given=True)
    return Case(
        "frame: wide", f"{how}, times {how_times}, step {known.freq}", lambda: known.check(data, names, wide=True)
    )


def _ids(rng: np.random.Generator, known: Truth) -> tuple[Any, dict[int, str], str]:
    how = str(rng.choice(["text", "integer", "large integer", "uuid", "category", "date", "bytes", "object text"]))
    names: dict[int, Any] = dict(some_names(rng, known.series))
    if how in ("integer", "large integer"):
        names = {n: n + (2**63 if how == "large integer" else -2) for n in known.series}
    elif how == "uuid":
        names = {n: uuid.UUID(int=n) for n in known.series}
    elif how == "date":
        names = {n: date(2024, 1, 1 + n) for n in known.series}
    elif how == "bytes":
        names = {n: f"b{n}".encode() for n in known.series}
    listed: Any = [names[n] for n, _, _ in known.rows]
    if how == "category":
        listed = pd.Series(listed, dtype="category")
    if how in ("uuid", "object text", "large integer", "bytes", "date"):
        listed = pd.Series(listed, dtype=object)
    return listed, {n: name.decode() if isinstance(name, bytes) else str(name) for n, name in names.items()}, how


def _times(rng: np.random.Generator, times: Column, known: Truth) -> tuple[Any, str]:  # noqa: PLR0911 - one per type
    if known.freq.isdigit():
        how = str(rng.choice(["int64", "object", "int32 or more"]))
        fits = how == "int32 or more" and max(map(abs, times)) < 2**31
        return pd.Series(
            [int(t) for t in times], dtype=object if how == "object" else "int32" if fits else "int64"
        ), how
    index = pd.DatetimeIndex(times)
    if known.zone is not None:
        there = index.tz_localize("UTC").tz_convert(known.zone)
        how = str(rng.choice(["zoned", "utc text"]))
        if how == "zoned":
            return pd.Series(there), f"in {known.zone}"
        return pd.Series([t.tz_convert("UTC").isoformat() for t in there], dtype=object), how
    how = str(rng.choice(["s", "ms", "us", "ns", "text", "objects", "dates"]))
    if how in ("s", "ms", "us", "ns"):
        return pd.Series(index.astype(f"datetime64[{how}]")), how
    if how == "text":
        return pd.Series([str(t) for t in index], dtype=object), how
    if how == "dates" and (index == index.normalize()).all():
        return pd.Series([t.date() for t in index], dtype=object), how
    return pd.Series([t.to_pydatetime() for t in index], dtype=object), "objects"


def _numbers(rng: np.random.Generator, values: list[float | None]) -> tuple[Any, str]:
    how = str(rng.choice(["float64", "float32", "Float64", "Decimal", "mixed", "arrow", "longdouble"]))
    if how == "Decimal":
        return pd.Series([None if v is None else Decimal(v) for v in values], dtype=object), how
    if how == "mixed":
        mixed = [None if v is None else int(v) if v == int(v) and rng.random() < 0.5 else v for v in values]
        return pd.Series(
            [np.float64(v) if v is not None and rng.random() < 0.3 else v for v in mixed], dtype=object
        ), how
    if how == "arrow":
        return pd.Series(values, dtype=pd.ArrowDtype(pa.float64())), how
    if how == "Float64":
        return pd.Series(values, dtype="Float64"), how
    plain = np.array([np.nan if v is None else v for v in values])
    return pd.Series(plain.astype({"longdouble": np.longdouble}.get(how, how))), how


def _framed(rng: np.random.Generator, columns: dict[str, Any]) -> tuple[Any, str]:
    """The columns as a frame of some library; as pandas if it cannot hold them."""
    how = str(rng.choice(["pandas", "polars", "lazy", "pyarrow", "polars objects"]))
    frame = pd.DataFrame({name: pd.Series(column).reset_index(drop=True) for name, column in columns.items()})
    if rng.random() < 0.3:
        frame = frame.set_axis(rng.permutation(len(frame)), axis=0)
    with contextlib.suppress(Exception, pl.exceptions.PanicException):
        if how == "pyarrow":
            return pa.Table.from_pandas(frame, preserve_index=False), how
        if how in ("polars", "lazy"):
            table = pl.DataFrame({name: _to_polars(frame[name]) for name in frame})
            return table if how == "polars" else table.lazy(), how
        if how == "polars objects":
            held = [(str(n), frame[n]) for n in frame]
            named = [
                pl.Series(n, c.tolist(), pl.Object) if c.dtype == object else _to_polars(c).alias(n) for n, c in held
            ]
            return pl.DataFrame(named), how
    return frame, "pandas"


def _to_polars(column: Any) -> pl.Series:
    kinds = {type(v) for v in column if v is not None and v == v}  # noqa: PLR0124 - NaN
    if column.dtype == object and (len(kinds) > 1 or kinds == {uuid.UUID}):
        raise TypeError
    series: pl.Series = pl.from_pandas(column, nan_to_null=True)
    return series


# ---- frames without a known truth


NOW = datetime(2024, 1, 1)  # noqa: DTZ001 - naive, as in most frames
CELLS: Column = [
    None, float("nan"), float("inf"), -float("inf"), 1e300, 1e-320, 2**63, 2**64, -(2**63) - 1, 10**40, 10**400,
    10**5000, True, False, np.True_, np.int8(3), np.float16(1.5), np.uint64(2**63), np.longdouble("1e4000"), "", " ",
    "a", "1", "1,5", "1e5", "NaN", "\ud800", "a\ud800", "\x00", "\x1b[2J", "é" * 1000, "2024-01-01", "2024-13-45",
    "2024-01-01T00:00:00+25:00", "9999-12-31", "0000-01-01", "2024-06-30T23:59:60", b"", b"1", b"\xff", NOW,
    NOW.replace(tzinfo=UTC), NOW.replace(tzinfo=timezone(timedelta(minutes=61))), date(2024, 1, 1), date.max,
    date.min, time(1), timedelta(days=1), timedelta.max, timedelta.min, pd.NaT, pd.NA, pd.Timestamp.max,
    pd.Timestamp("2024-01-01", tz="Europe/Berlin"), pd.Timedelta("1D"), pd.Period("2024-01"), pd.Interval(0, 1),
    np.datetime64("NaT"), np.datetime64(2**62, "s"), np.datetime64("2024-01-01"), np.timedelta64(1, "Y"),
    np.timedelta64("NaT"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1e999999"),
    Decimal("0." + "1" * 60), Fraction(1, 3), 1j, uuid.UUID(int=1), [], [1], [[1], "a"], (1, 2), {}, {"a": 1}, {1, 2},
    np.array([1.0]), np.array([[1], [2]]), pl.Series([1]), pd.Series([1]), object(), type, len, ..., NotImplemented,
    slice(1), range(3), memoryview(b"1"), NOW.max, NOW.min,
]  # fmt: skip


class Hostile:
    """An object whose every method raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


def _odd(rng: np.random.Generator) -> Any:
    return Hostile() if rng.random() < 0.02 else CELLS[int(rng.integers(len(CELLS)))]


def _objects(rng: np.random.Generator, size: int) -> Any:
    alike = rng.random() < 0.5
    one = _odd(rng)
    return _series([one if alike else _odd(rng) for _ in range(size)])


def _series(values: Column) -> Any:
    column = np.empty(len(values), object)
    column[:] = (
        values if all(not isinstance(v, (list, tuple, np.ndarray, pl.Series, pd.Series)) for v in values) else None
    )
    for i, each in enumerate(values):
        column[i] = each
    return pd.Series(column, dtype=object)


def _plain(rng: np.random.Generator, size: int) -> dict[str, Any]:
    ids = [int(i) for i in rng.integers(0, 3, size)]
    times: Any = list(range(size)) if rng.random() < 0.5 else [NOW + timedelta(hours=i) for i in range(size)]
    return {"unique_id": ids, "ds": times, "y": rng.normal(size=size).tolist()}


def _runs(data: Any, **settings: Any) -> Callable[[], None]:
    def run() -> None:
        panel = to_panel(data, **settings)
        assert not np.isinf(panel.values).any(), "an infinite value"
        assert len(set(panel.ids)) == len(panel.ids), "one id twice"
        assert all(not np.isnan(panel[i]).all() for i in range(len(panel))), "a series without a value"
        assert repr(panel).isprintable(), "a repr of several lines"

    return run


def odd_cells(rng: np.random.Generator) -> Case:
    """One used column holds unusual objects, alone or among usual values."""
    size = int(rng.integers(1, 12))
    columns = _plain(rng, size)
    name = str(rng.choice(["unique_id", "ds", "y", "x", "s"]))
    usual, odd = columns.get(name, [1.0] * size), _objects(rng, size)
    share = rng.random()
    columns[name] = _series([odd[i] if rng.random() < share else usual[i] for i in range(size)])
    data = pd.DataFrame(columns)
    if rng.random() < 0.3:
        data_polars = {
            n: pl.Series(n, list(c), dtype=pl.Object) if n == name else pl.Series(n, c) for n, c in columns.items()
        }
        return Case("frame: odd cells", f"polars objects in {name}", _runs(pl.DataFrame(data_polars), freq=_step(rng)))
    settings = {"covariates": ["x"]} if name == "x" else {"static": ["s"]} if name == "s" else {}
    return Case(
        "frame: odd cells", f"in {name}: {columns[name].map(type).tolist()}", _runs(data, freq=_step(rng), **settings)
    )


def odd_columns(rng: np.random.Generator) -> Case:
    """Unusual names and shapes."""
    columns = _plain(rng, int(rng.integers(0, 6)))
    frame = pd.DataFrame(columns)
    names = [
        "",
        "ds",
        "y",
        "unique_id",
        "\x1b[2J",
        "a\nb",
        "\ud800",
        0,
        1.5,
        None,
        ("a", 1),
        float("nan"),
        NOW,
        True,
        "x" * 10**5,
        "y\0again",
        "Unnamed: 0",
    ]
    called: Column = list(frame.columns)
    for _ in range(int(rng.integers(1, 4))):
        extra = _objects(rng, len(frame)) if rng.random() < 0.5 else pd.Series(np.arange(len(frame)))
        frame = pd.concat([frame, extra], axis=1)
        called.append(names[int(rng.integers(len(names)))])
    frame.columns = pd.Index(called, dtype=object)
    frame = frame.iloc[:, rng.permutation(frame.shape[1])[: int(rng.integers(0, frame.shape[1] + 1))]]
    return Case("frame: odd columns", f"{[str(n)[:20].encode('unicode_escape') for n in frame.columns]}", _runs(frame))


def odd_types(rng: np.random.Generator) -> Case:
    """Columns of types of polars or pyarrow that are not numbers; times and ids out of range."""
    size = int(rng.integers(1, 8))
    numbers = pa.array(range(size), pa.int64())
    far = pa.array([int(n) for n in rng.integers(-(2**62), 2**62, size)], pa.int64())
    unit = str(rng.choice(["s", "ms", "us", "ns"]))
    zone = str(rng.choice(["UTC", "+05:30", "Europe/Berlin", "Nowhere/Land", "+99:00"]))
    kinds: list[Callable[[], Any]] = [
        lambda: pa.array([Decimal(i) for i in range(size)], pa.decimal256(60, 3)),
        lambda: pa.array([Decimal(i) for i in range(size)], pa.decimal128(38, 20)),
        lambda: pa.array([[i] for i in range(size)]),
        lambda: pa.array([{"a": i} for i in range(size)]),
        lambda: pa.array([[("k", i)] for i in range(size)], pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([str(i) for i in range(size)]).dictionary_encode(),
        lambda: pa.array([str(i) for i in range(size)], pa.string_view()),
        lambda: pa.array([b"\xff"] * size, pa.binary(1)),
        lambda: pa.nulls(size),
        lambda: pa.nulls(size, pa.float64()),
        lambda: numbers.cast(pa.duration("us")),
        lambda: numbers.cast(pa.int32()).cast(pa.time32("s")),
        lambda: pa.array([1.5] * size, pa.float16()),
        lambda: pa.array([True] * size),
        lambda: far.cast(pa.timestamp(unit, zone)),
        lambda: far.cast(pa.timestamp(unit)),
        lambda: pa.array([int(n) for n in rng.integers(-(2**31), 2**31, size)], pa.int32()).cast(pa.date32()),
        lambda: pa.RunEndEncodedArray.from_arrays([size], [1.0]),
        lambda: pa.UnionArray.from_dense(pa.array([0] * size, pa.int8()), pa.array(range(size), pa.int32()), [numbers]),
        lambda: pa.array([float("nan"), float("inf")] * size)[:size],
        lambda: pa.array(rng.integers(0, 2**64, size, dtype=np.uint64)),
    ]  # fmt: skip
    columns: dict[str, Any] = {"unique_id": ["a"] * size, "ds": list(range(size)), "y": [1.0] * size}
    name, kind = str(rng.choice(["unique_id", "ds", "y", "z"])), int(rng.integers(len(kinds)))
    columns[name] = kinds[kind]()
    table = pa.table(columns)
    how, data = str(rng.choice(["pyarrow", "polars", "pandas"])), table
    with contextlib.suppress(Exception, pl.exceptions.PanicException):  # columns that they cannot hold stay in pyarrow
        data = pl.from_arrow(table) if how == "polars" else data
        data = table.to_pandas(types_mapper=pd.ArrowDtype) if how == "pandas" else data
    label = f"{type(data).__module__}: {table.schema.field(name).type} in {name}"
    return Case("frame: odd types", label, _runs(data))


STEPS: Column = [
    None, 1, 0, -1, 2**62, 2**63, 10**5000, "h", "D", "", "-", "1", "9" * 5000, "4611686018427387904MS", "119988MS",
    "ms", "M", "B", "2B", "\ud800", "W-SUN", "5-SUN", timedelta(0), timedelta.max, timedelta(hours=1),
    np.timedelta64(1, "Y"), np.timedelta64("NaT"), np.timedelta64(2**60, "D"), pd.offsets.MonthEnd(),
    pd.offsets.CustomBusinessDay(), b"h", 1.5, float("nan"), True, [1], {}, object(), Hostile(),
]  # fmt: skip


def _step(rng: np.random.Generator) -> Any:
    return None if rng.random() < 0.7 else STEPS[int(rng.integers(len(STEPS)))]


def odd_settings(rng: np.random.Generator) -> Case:
    """A usual frame, whose times may repeat or have gaps, with keywords of any kind."""
    size = int(rng.integers(1, 30))
    columns = _plain(rng, size)
    spread = int(rng.choice([1, 10, 10**6, 2**40]))
    if rng.random() < 0.6:
        columns["ds"] = [int(t) for t in rng.integers(-spread, spread, size)]
    elif rng.random() < 0.5:
        days = rng.integers(-(10**6), 10**6, size) if rng.random() < 0.3 else rng.integers(0, 40, size)
        columns["ds"] = pd.Series(np.datetime64("2024-01-01", "s") + days.astype("timedelta64[D]"))
    step = STEPS[int(rng.integers(len(STEPS)))]
    words = ["y", "x", "\ud800", "", 0, None, ["y"], 1.5, Hostile]
    settings: dict[str, Any] = {} if rng.random() < 0.5 else {"freq": step}
    for name in ("id_col", "time_col", "target_col", "covariates", "static"):
        if rng.random() < 0.15:
            settings[name] = words[int(rng.integers(len(words)))]
    label = f"step of type {type(step).__name__}, {sorted(settings)}, times within {spread}"
    return Case("frame: odd settings", label, _runs(pd.DataFrame(columns), **settings))
