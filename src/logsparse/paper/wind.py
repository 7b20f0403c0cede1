"""The country file of 30 years of European wind (hourly shares of full power, no times) -> daily means by country."""

from __future__ import annotations

import logging
import re
from datetime import timedelta

import numpy as np
import polars as pl

from logsparse.data.columns import TIME
from logsparse.paper.catalogue import DataSet
from logsparse.paper.download import Files, broken, unreadable

# First column of some copies: row numbers.
_ROW_NUMBERS = ("", "Unnamed: 0", "time_step")

log = logging.getLogger("logsparse")


def table(files: Files, dataset: DataSet) -> pl.DataFrame:
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
