"""NREL's 5-minute files, one per plant (LocalTime,Power(MW)) -> means of an hour or 10 minutes, labelled left."""

from __future__ import annotations

import re
from datetime import timedelta

import numpy as np
import polars as pl

from logsparse.data.columns import TIME
from logsparse.paper.catalogue import DataSet
from logsparse.paper.download import Files, Original, broken, unreadable

_PER_BIN = {"10min": 2, "h": 12}
_CLOCK, _POWER = "LocalTime", "Power(MW)"


def table(files: Files, dataset: DataSet) -> pl.DataFrame:
    """Return a wide table, one column per plant, named by place and size, such as 30.55_-87.55_UPV_80MW."""
    per_bin = _PER_BIN[dataset.step]
    (originals,) = files.values()
    first = _rows(originals[0])[_CLOCK]
    columns = [pl.Series(TIME, _times(originals[0].name, first)[::per_bin])]
    for original in originals:
        rows = _rows(original)
        if not rows[_CLOCK].equals(first):
            raise broken(original.name, f"other times than in {originals[0].name}")
        means = rows[_POWER].to_numpy().reshape(-1, per_bin).mean(axis=1).astype(np.float32)
        columns.append(pl.Series(_plant(original.name), means))
    return pl.DataFrame(columns).filter(pl.col(TIME).is_between(dataset.first, dataset.last))


def _rows(original: Original) -> pl.DataFrame:
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
