"""A csv file -> polars table: numbers by column, ids and times as the text that was written."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import polars as pl

from logsparse.data.columns import names_once
from logsparse.data.memory import CSV_TIMES, check_memory
from logsparse.errors import DataError

_NO_VALUE = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
# A whole field such as 3,14: where something else separates, the comma is a decimal point.
_DECIMAL_COMMA = r"[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?"
_LINES_TO_LOOK_AT = 100
_LONGEST_LINE = 2**24
# Types come from the whole file; it is read a second time only where these rows do not tell.
_ROWS_TO_INFER = 10_000
# zip, gzip, bzip2, xz, zstandard, zlib: polars would unpack some of them, to any size.
_PACKED = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"x\x01", b"x\x9c", b"x\xda")


def read_csv(path: Path, ids: str | None) -> pl.DataFrame:
    """The whole file; the column named `ids` stays exactly as written, 007 and NA included. Times stay text."""
    check_memory(CSV_TIMES * path.stat().st_size, f"the rows of {path}")
    try:
        head = _head(path)
        separator = max(",;\t", key=(head or [""])[0].count)
        names = names_once(next(csv.reader(head, delimiter=separator), []))
        return _without_blank_lines(_read(path, separator, names, ids, head[1:]))
    except csv.Error as error:
        raise DataError.unreadable(path, f"a first line that is no header ({error})") from error
    except (UnicodeDecodeError, pl.exceptions.ComputeError) as error:
        if isinstance(error, UnicodeDecodeError) or "utf-8" in str(error).lower() or "utf8" in str(error).lower():
            raise DataError.unreadable(path, "text that is not UTF-8", "save it as UTF-8.") from error
        raise


def _head(path: Path) -> list[str]:
    """The first lines, as far as they are text in lines: what is packed, or has no line end, is not read further."""
    with path.open("rb") as file:
        if file.read(6).startswith(_PACKED):
            raise DataError.unreadable(path, "a packed file", "unpack it first.")
    head: list[str] = []
    with path.open(encoding="utf-8-sig", newline="") as lines:
        while len(head) < _LINES_TO_LOOK_AT and (line := lines.readline(_LONGEST_LINE)):
            if len(line) == _LONGEST_LINE:
                raise DataError.unreadable(path, f"a line of {_LONGEST_LINE:,} characters or more")
            head.append(line)
    return head


def _read(path: Path, separator: str, names: list[str], ids: str | None, first: list[str]) -> pl.DataFrame:
    field = re.compile(rf'(?:^|{separator})"?{_DECIMAL_COMMA}"?(?:{separator}|\s*$)')
    comma = separator != "," and any(field.search(line) for line in first)
    table = _typed(path, separator, names, comma=comma)
    texts = [name for name, kind in table.schema.items() if kind == pl.String and name != ids]
    if separator != "," and not comma and any(table[name].str.contains(f"^{_DECIMAL_COMMA}$").any() for name in texts):
        table = _typed(path, separator, names, comma=True)
    if ids in table.columns:
        column = pl.read_csv(path, separator=separator, columns=[table.columns.index(ids)], infer_schema=False)
        table = table.with_columns(column.to_series().alias(ids))
    # A column without any value would be taken for text.
    return table.with_columns(pl.lit(None).alias(c.name) for c in table if c.null_count() == len(c) and c.name != ids)


def _typed(path: Path, separator: str, names: list[str], *, comma: bool) -> pl.DataFrame:
    def infer(rows: int | None) -> pl.DataFrame:
        return pl.read_csv(
            path, separator=separator, decimal_comma=comma, infer_schema_length=rows, null_values=_NO_VALUE
        )

    try:
        table = infer(_ROWS_TO_INFER)
        # A column that begins empty is taken for text; any other type that later rows contradict is an error.
        guessed = any(c.dtype == pl.String and c[:_ROWS_TO_INFER].count() == 0 < c.count() for c in table)
    except pl.exceptions.ComputeError:
        guessed = True
    if guessed:
        table = infer(None)
    if len(names) == table.width:
        table.columns = names  # polars gives doubles names of its own
    return table


def _without_blank_lines(table: pl.DataFrame) -> pl.DataFrame:
    blank = table.select(pl.all_horizontal(pl.all().is_null())).to_series()
    return table.filter(~blank) if blank.any() else table
