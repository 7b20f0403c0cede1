"""PEMS-SF (shuffled days of 10-minute occupancy as bracketed matrices) -> days in order, means of 20 or 60 minutes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.calendar import Ints
from logsparse.data.columns import TIME
from logsparse.paper.catalogue import DataSet
from logsparse.paper.download import Files, Original, broken

# S stations, T times and B bins of a day

FIRST_DAY = date(2008, 1, 2)
# Holidays, and the change of the clock. The archive leaves out more days, all after the paper's span.
MISSING_DAYS = (date(2008, 1, 21), date(2008, 2, 18), date(2008, 3, 9), date(2008, 5, 26))
_A_DAY = 144
_DAYS = ("PEMS_train", "PEMS_test")
_PER_BIN = {"20min": 2, "h": 6}


def table(files: Files, dataset: DataSet) -> pl.DataFrame:
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
    for number, (name, line) in enumerate(_lines(one)):
        counts[name] += 1
        if number in day_of_line:
            bins[day_of_line[number]] = _bins(name, line, stations.size, _PER_BIN[dataset.step])
    for name, found in labelled.items():
        if counts[name] != found.size:
            raise broken(name, f"{counts[name]} days for the {found.size} of {name}labels")
    width = timedelta(minutes=10 * _PER_BIN[dataset.step])
    times = [datetime.combine(day, time()) + i * width for day in days for i in range(bins[day].shape[0])]
    values = np.concatenate([bins[day] for day in days])
    wide = pl.DataFrame(values, schema=_names(stations), orient="row").insert_column(0, pl.Series(TIME, times))
    return wide.filter(pl.col(TIME).is_between(dataset.first, dataset.last))


def _lines(one: dict[str, Original]) -> Iterator[tuple[str, bytes]]:
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
