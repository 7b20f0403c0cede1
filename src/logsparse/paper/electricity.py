"""LD2011_2014.txt (semicolons, decimal commas, 15-minute kW) -> quarters as they are, or hours as sums of four."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable
from itertools import chain

import polars as pl

from logsparse.data.columns import TIME
from logsparse.paper.catalogue import DataSet
from logsparse.paper.download import Files, broken, unreadable

_FILE = "LD2011_2014.txt"
_QUARTERS = "quarters"
# Each quarter of an hour counts in three digits of its own: a duplicate cannot hide a missing one.
_EACH_ONCE = 1_001_001_001


def table(files: Files, dataset: DataSet) -> pl.DataFrame:
    """Return a wide table, one column per customer. Zeros before a customer's first day are kept, as in the paper."""
    (original,) = files[_FILE]
    blocks = original.blocks()
    header, _, first = next(blocks, b"").removeprefix(BOM_UTF8).partition(b"\n")
    names = [name.strip('"') for name in header.decode(errors="replace").strip().split(";")]
    if names[0] or len(names) < 2 or not all(re.fullmatch(r"MT_\d{3}", name) for name in names[1:]):
        raise broken(_FILE, f"a first line that begins {header[:40]!r} instead of the customers MT_001, MT_002, ...")
    schema = {TIME: pl.String(), **dict.fromkeys(names[1:], pl.Float64())}
    rows = (_rows(block, schema) for block in chain([first], blocks) if block.strip())
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


def _rows(block: bytes, schema: dict[str, pl.DataType]) -> pl.DataFrame:
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
