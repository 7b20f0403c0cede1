"""Hourly-train.csv, Hourly-test.csv and M4-info.csv -> a long table; `split` marks the given test part."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta

import polars as pl

from logsparse.data.columns import ID, TARGET, TIME
from logsparse.paper.catalogue import DataSet
from logsparse.paper.download import Files, Original, broken

HORIZON = 48


def table(files: Files, dataset: DataSet) -> pl.DataFrame:
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


def _lines(original: Original) -> list[list[str]]:
    return [row for row in csv.reader(original.read().decode("utf-8-sig", errors="replace").splitlines()) if row]


def _series(original: Original) -> dict[str, list[float]]:
    """`"H1","605","586",...`; shorter series are followed by empty fields."""
    found: dict[str, list[float]] = {}
    for name, *fields in _lines(original)[1:]:
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
    header, *rows = _lines(original) or [[]]
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
