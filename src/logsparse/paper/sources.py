"""Original files of a source, a data set -> its table. One reader per source; paper/catalogue.py names it.

| source | originals | becomes |
|---|---|---|
| electricity | LD2011_2014.txt: semicolons, decimal commas, 15-minute kW | quarters as they are, or sums of four |
| traffic | PEMS-SF: shuffled days of 10-minute occupancy, bracketed matrices | days in order, means of 20 or 60 min |
| solar | NREL's 5-minute files, one per plant (LocalTime,Power(MW)) | means of an hour or 10 minutes, labelled left |
| wind | the country file of 30 years of European wind: hourly shares, no times | daily means by country |
| m4 | Hourly-train.csv, Hourly-test.csv, M4-info.csv | a long table; `split` marks the given test part |
"""

from __future__ import annotations

import csv
import logging
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.calendar import Ints
from logsparse.data.columns import ID, TARGET, TIME
from logsparse.paper.catalogue import DataSet
from logsparse.paper.download import Files, Original, broken, unreadable

_FILE = "LD2011_2014.txt"
_QUARTERS = "quarters"
# Each quarter of an hour counts in three digits of its own: a duplicate cannot hide a missing one.
_EACH_ONCE = 1_001_001_001


def read_electricity(files: Files, dataset: DataSet) -> pl.DataFrame:
    """Return a wide table, one column per customer. Zeros before a customer's first day are kept, as in the paper."""
    (original,) = files[_FILE]
    blocks = original.blocks()
    header, _, first = next(blocks, b"").removeprefix(BOM_UTF8).partition(b"\n")
    names = [name.strip('"') for name in header.decode(errors="replace").strip().split(";")]
    if names[0] or len(names) < 2 or not all(re.fullmatch(r"MT_\d{3}", name) for name in names[1:]):
        raise broken(_FILE, f"a first line that begins {header[:40]!r} instead of the customers MT_001, MT_002, ...")
    schema = {TIME: pl.String(), **dict.fromkeys(names[1:], pl.Float64())}
    rows = (_block_rows(block, schema) for block in chain([first], blocks) if block.strip())
    within = pl.col(TIME).is_between(dataset.first, dataset.last)
    # The file may exceed the memory: every block is filtered and shrunk, or summed, before the next is read.
    if dataset.step == "15min":
        return _joined(part.filter(within).with_columns(pl.exclude(TIME).cast(pl.Float32)) for part in rows)
    hours = _joined(map(_sums, rows)).group_by(TIME, maintain_order=True).sum().filter(within).sort(TIME)
    if (uneven := hours.filter(pl.col(_QUARTERS) != _EACH_ONCE)).height:
        raise broken(_FILE, f"other than four quarters, each once, in the hour from {uneven[0, TIME]}")
    return hours.drop(_QUARTERS).with_columns(pl.exclude(TIME).cast(pl.Float32))


def _joined(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    if not (found := list(parts)):
        raise broken(_FILE, "no row below the customers")
    return pl.concat(found)


def _block_rows(block: bytes, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    try:
        # Blank lines at the end are not rows.
        rows = pl.read_csv(block.rstrip(), has_header=False, separator=";", decimal_comma=True, schema=schema)
        rows = rows.with_columns(pl.col(TIME).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us"))
    except pl.exceptions.PolarsError as error:
        raise unreadable(_FILE, error) from error
    empty = rows.filter(pl.any_horizontal(pl.all().is_null()))
    if empty.height:
        raise broken(_FILE, f"an empty cell in the row of {empty[0, TIME]}")
    return rows


def _sums(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum by hour, closed right, labelled left: 00:00 is 00:15 + 00:30 + 00:45 + 01:00. Hours may span two blocks."""
    inside = pl.col(TIME).dt.offset_by("-1us")
    quarter = pl.lit(1000, pl.Int64).pow(inside.dt.minute().cast(pl.Int64) // 15)
    parts = rows.with_columns(inside.dt.truncate("1h"), quarter.alias(_QUARTERS))
    return parts.group_by(TIME, maintain_order=True).sum()


# S stations, T times and B bins of a day

FIRST_DAY = date(2008, 1, 2)
# Holidays, and the change of the clock. The archive leaves out more days, all after the paper's span.
MISSING_DAYS = (date(2008, 1, 21), date(2008, 2, 18), date(2008, 3, 9), date(2008, 5, 26))
_A_DAY = 144
_DAYS = ("PEMS_train", "PEMS_test")
_TENS_PER_BIN = {"20min": 2, "h": 6}


def read_traffic(files: Files, dataset: DataSet) -> pl.DataFrame:
    """Return a wide table, one column per lane. Bins are closed left: 17:00 has 17:00, 17:10, ...

    Missing days have no rows.
    """
    one = {pattern: found[0] for pattern, found in files.items()}
    stations = _integers(one["stations_list"])
    permutation = _integers(one["randperm"])
    labelled = {name: _integers(one[f"{name}labels"]) for name in _DAYS}
    labels = np.concatenate(list(labelled.values()))
    if not np.array_equal(np.sort(permutation), np.arange(1, labels.size + 1)):
        raise broken("randperm", f"{permutation.size} numbers that do not count the {labels.size} labelled days")
    # Line k holds day permutation[k], counted from 1; so this is the line of each day.
    line_of_day = np.argsort(permutation)
    days = _dates(labels[line_of_day], dataset.last.date())
    day_of_line = dict(zip(line_of_day.tolist(), days, strict=False))
    bins: dict[date, NDArray[np.float32]] = {}
    counts = dict.fromkeys(_DAYS, 0)
    for number, (name, line) in enumerate(_day_lines(one)):
        counts[name] += 1
        if number in day_of_line:
            bins[day_of_line[number]] = _bins(name, line, stations.size, _TENS_PER_BIN[dataset.step])
    for name, found in labelled.items():
        if counts[name] != found.size:
            raise broken(name, f"{counts[name]} days for the {found.size} of {name}labels")
    width = timedelta(minutes=10 * _TENS_PER_BIN[dataset.step])
    times = [datetime.combine(day, time()) + i * width for day in days for i in range(bins[day].shape[0])]
    values = np.concatenate([bins[day] for day in days])
    wide = pl.DataFrame(values, schema=_names(stations), orient="row").insert_column(0, pl.Series(TIME, times))
    return wide.filter(pl.col(TIME).is_between(dataset.first, dataset.last))


def _day_lines(one: dict[str, Original]) -> Iterator[tuple[str, bytes]]:
    for name in _DAYS:
        yield from ((name, line) for line in one[name].lines())


def _integers(original: Original) -> Ints:
    """Parse a file that is one vector in brackets: [3 1 2]."""
    text = original.read().strip()
    # Days and stations: no number has more digits.
    if not re.fullmatch(rb"\[\s*\d{1,9}(\s+\d{1,9})*\s*\]", text):
        raise broken(original.name, f"{text[:30]!r} instead of whole numbers in brackets")
    return np.array(text[1:-1].split(), dtype=np.int64)


def _dates(labels: Ints, last: date) -> list[date]:
    """Return the days in order, from the weekday steps between them; only the known days may be missing.

    Steps between weekdays are enough, and do not depend on which day of the week counts as the first.
    """
    days = [FIRST_DAY]
    for step in (np.diff(labels) % 7).tolist():
        if days[-1] >= last:
            break
        days.append(days[-1] + timedelta(days=step or 7))
    calendar = [FIRST_DAY + timedelta(days=i) for i in range((last - FIRST_DAY).days + 1)]
    missing = tuple(day for day in calendar if day not in set(days))
    if missing != MISSING_DAYS:
        odd = sorted(set(missing) ^ set(MISSING_DAYS))
        raise broken(
            "randperm with the labels",
            f"an order of days whose weekdays disagree with the calendar from {FIRST_DAY} on, first at {odd[0]}",
        )
    return days


def _bins(name: str, line: bytes, stations: int, per_bin: int) -> NDArray[np.float32]:
    """Parse one day, [a b ...;c d ...], one row per station with 144 columns, into (B, S) means."""
    rows = [row.split() for row in line.removeprefix(b"[").removesuffix(b"]").split(b";")]
    sizes = {len(row) for row in rows}
    if len(rows) != stations or sizes != {_A_DAY}:
        raise broken(name, f"a day of {len(rows)} rows with {min(sizes)} to {max(sizes)} numbers, not {stations} x 144")
    try:
        day_ST = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise broken(name, f"a day with something that is not a number ({error})") from error
    means_SB = day_ST.reshape(stations, -1, per_bin).mean(axis=2)
    return np.ascontiguousarray(means_SB.T, dtype=np.float32)


def _names(stations: Ints) -> list[str]:
    """Station numbers as names; with their positions where a number occurs twice."""
    names = [str(station) for station in stations.tolist()]
    return names if len(set(names)) == len(names) else [f"{name}_{place}" for place, name in enumerate(names)]


_FIVES_PER_BIN = {"10min": 2, "h": 12}
_CLOCK, _POWER = "LocalTime", "Power(MW)"


def read_solar(files: Files, dataset: DataSet) -> pl.DataFrame:
    """Return a wide table, one column per plant, named by place and size, such as 30.55_-87.55_UPV_80MW."""
    per_bin = _FIVES_PER_BIN[dataset.step]
    (originals,) = files.values()
    first = _plant_rows(originals[0])[_CLOCK]
    columns = [pl.Series(TIME, _times(originals[0].name, first)[::per_bin])]
    for original in originals:
        rows = _plant_rows(original)
        if not rows[_CLOCK].equals(first):
            raise broken(original.name, f"other times than in {originals[0].name}")
        means = rows[_POWER].to_numpy().reshape(-1, per_bin).mean(axis=1).astype(np.float32)
        columns.append(pl.Series(_plant(original.name), means))
    return pl.DataFrame(columns).filter(pl.col(TIME).is_between(dataset.first, dataset.last))


def _plant_rows(original: Original) -> pl.DataFrame:
    try:
        rows = pl.read_csv(original.read().rstrip(), schema={_CLOCK: pl.String(), _POWER: pl.Float64()})
    except pl.exceptions.PolarsError as error:
        raise unreadable(original.name, error) from error
    if rows[_POWER].null_count() or not rows.height:
        raise broken(original.name, "rows without a value" if rows.height else "no rows")
    return rows


def _times(name: str, clock: pl.Series) -> pl.Series:
    """Parse month, day, year, such as 01/31/06 23:55: five minutes apart, whole days from midnight."""
    times = clock.str.to_datetime("%m/%d/%y %H:%M", time_unit="us", strict=False)
    if times.null_count():
        raise broken(name, f"the time {clock.filter(times.is_null())[0]!r} instead of one like 01/31/06 23:55")
    even = (times.diff().drop_nulls() == timedelta(minutes=5)).all()
    if len(times) % 288 or not even or times[0] != times.dt.truncate("1d")[0]:
        raise broken(name, f"{len(times)} times that are not whole days of 5 minutes")
    return times


def _plant(name: str) -> str:
    match = re.fullmatch(r"Actual_(.+)_2006_(.+)_5_Min\.csv", name, flags=re.IGNORECASE)
    assert match is not None, "the pattern of the source"
    return f"{match[1]}_{match[2]}"


# First column of some copies: row numbers.
_ROW_NUMBERS = ("", "Unnamed: 0", "time_step")

log = logging.getLogger("logsparse")


def read_wind(files: Files, dataset: DataSet) -> pl.DataFrame:
    """Return a wide table, one column per country; countries that are all zero have no data and are dropped.

    The rows of the file are the hours of the span.
    """
    (name, (original,)) = next(iter(files.items()))
    try:
        rows = pl.read_csv(original.read().rstrip(), infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        raise unreadable(name, error) from error
    countries = [column for column in rows.columns if column not in _ROW_NUMBERS]
    odd = [column for column in countries if not re.fullmatch(r"[A-Z]{2}", column)]
    if odd or not countries:
        raise broken(name, f"a column {odd[0]!r}" if odd else "no columns of countries")
    days = (dataset.last - dataset.first).days + 1
    if rows.height != 24 * days:
        raise broken(name, f"{rows.height} rows instead of the {24 * days} hours of {days} days")
    columns = [pl.Series(TIME, [dataset.first + timedelta(days=i) for i in range(days)])]
    dark = True
    for country in countries:
        if not rows[country].dtype.is_numeric() or rows[country].null_count():
            raise broken(name, f"cells of {country} without a number")
        hours = rows[country].to_numpy().astype(np.float64).reshape(days, 24)
        dark = dark and not hours[:, :2].any()
        if hours.any():
            columns.append(pl.Series(country, hours.mean(axis=1).astype(np.float32)))
    if dark:
        log.warning("%s is zero after every midnight: it seems to hold solar power, not wind power", name)
    return pl.DataFrame(columns)


HORIZON = 48


def read_m4(files: Files, dataset: DataSet) -> pl.DataFrame:
    """Return a long table; each series starts at its own date, in the order of the training file."""
    train, test = (_series(files[f"Hourly-{part}.csv"][0]) for part in ("train", "test"))
    starts = _starts(files["M4-info.csv"][0])
    for part, mine, other in (("train", train, test), ("test", test, train)):
        if lacking := sorted(other.keys() - mine.keys()):
            raise broken(f"Hourly-{part}.csv", f"{len(mine)} series, without {lacking[0]} of the other file")
    frames = []
    for name, values in train.items():
        if len(test[name]) != HORIZON:
            raise broken("Hourly-test.csv", f"{len(test[name])} values of {name} instead of {HORIZON}")
        if name not in starts:
            raise broken("M4-info.csv", f"no starting date of {name}")
        split = ["train"] * len(values) + ["test"] * HORIZON
        times = [starts[name] + timedelta(hours=i) for i in range(len(split))]
        frames.append(pl.DataFrame({ID: name, TIME: times, TARGET: values + test[name], "split": split}))
    if not frames:
        raise broken("Hourly-train.csv", f"no series; {dataset.name} has {dataset.series}")
    return pl.concat(frames).with_columns(pl.col(TARGET).cast(pl.Float32))


def _csv_lines(original: Original) -> list[list[str]]:
    return [row for row in csv.reader(original.read().decode("utf-8-sig", errors="replace").splitlines()) if row]


def _series(original: Original) -> dict[str, list[float]]:
    """`"H1","605","586",...`; shorter series are followed by empty fields."""
    found: dict[str, list[float]] = {}
    for name, *fields in _csv_lines(original)[1:]:
        while fields and not fields[-1]:
            fields.pop()
        if name in found:
            raise broken(original.name, f"series {name} twice")
        try:
            found[name] = [float(field) for field in fields]
        except ValueError as error:
            raise broken(original.name, f"a field of {name} that is not a number ({error})") from error
    return found


def _starts(original: Original) -> dict[str, datetime]:
    """Starting dates of the hourly series: 01-07-15 12:00 is the first of July 2015."""
    header, *rows = _csv_lines(original) or [[]]
    if not {"M4id", "SP", "StartingDate"} <= set(header):
        raise broken(original.name, f"the columns {', '.join(header)[:60] or 'none'}")
    name, period, start = (header.index(column) for column in ("M4id", "SP", "StartingDate"))
    try:
        return {
            row[name]: datetime.strptime(row[start], "%d-%m-%y %H:%M")  # noqa: DTZ007 - the file has no zone
            for row in rows
            if row[period] == "Hourly"
        }
    except (ValueError, IndexError) as error:
        raise broken(original.name, f"a starting date that is not a date ({error})") from error
