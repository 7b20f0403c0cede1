"""A path (csv, parquet, feather, folder of parquet files) -> lazy polars table; a polars table -> a file.

Reading starts at `scan`: it picks the reader by the ending of the name. csv is read at once, since ids must stay as
written (`read_csv`); parquet and feather are read column by column on demand. Whatever a reader raises becomes a
DataError (`reading`), and a table that does not fit into memory is refused before it is read (`check_memory`).
"""

from __future__ import annotations

import csv
import logging
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from urllib.parse import unquote

import polars as pl

from logsparse.data.columns import unique_names
from logsparse.data.times import READER_ERRORS
from logsparse.errors import DataError, LogsparseError
from logsparse.process import check_memory
from logsparse.storage import unwritable, whole_file

log = logging.getLogger("logsparse")

_FILE_KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".feather": "feather",
    ".arrow": "feather",
    ".ipc": "feather",
}
_WRITTEN = {**_FILE_KINDS, ".json": "json"}
_RESULT = "The result"
# Measured peak memory while a table is read (docs/data.md): per row of a long table; per cell of an extra column.
BYTES_PER_LONG_ROW, BYTES_PER_EXTRA_CELL = 120, 16
# Per cell of the panel; per cell of the columns of a wide table that are read at once.
BYTES_PER_CELL, BYTES_PER_CELL_READ = 4, 16
# Relative to the size of a csv file: its text and the resulting table.
CSV_FACTOR = 3
# Subfolder of a folder of parts while they are written.
SHARDING = ".logsparse-sharding"
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_NO_VALUE = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None"]
# A field such as 3,14: if fields are not separated by commas, the comma is a decimal point.
_DECIMAL_COMMA = r"[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?"
# Numbers of spreadsheets, with or without separators of thousands: 1,234.5 and 1.234,5; spaces and apostrophes too.
_NUMBERS = {
    ".": r"^[+-]?(?:[0-9]{1,3}(?:[,\s'\u2019][0-9]{3})+|[0-9]+)(?:\.[0-9]+)?$",
    ",": r"^[+-]?(?:[0-9]{1,3}(?:[.\s'\u2019][0-9]{3})+|[0-9]+)(?:,[0-9]+)?$",
}
_CURRENCY = r"^\s*(?:[$€£¥]|EUR|USD|CHF|GBP)?\s*(.*?)\s*(?:[$€£¥]|EUR|USD|CHF|GBP)?\s*$"
# All numbers of a column have this form: 10.897 is either about eleven or about eleven thousand.
_THREE_DECIMALS = r"^[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})?$"
_HEAD_LINES = 100
_LONGEST_LINE = 2**24
# Types are inferred from these rows; the file is read a second time if later rows contradict them.
_ROWS_TO_INFER = 10_000
# zip, gzip, bzip2, xz, zstandard, zlib: polars would decompress some of them, to any size.
_COMPRESSED = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"x\x01", b"x\x9c", b"x\xda")


@dataclass(frozen=True)
class _Part:
    path: Path
    lazy: pl.LazyFrame
    schema: pl.Schema


def scan(path: Path, *, ids: str | None = None, needed: Sequence[str] = ()) -> pl.LazyFrame:
    """Open a parquet, csv or feather file, or a folder of parquet files; parquet columns are read on demand.

    The column `ids` of a csv file is read as text. The columns `needed` must be in all files of a folder.
    """
    with reading(path=path):
        lazy = _scan(path, ids, needed)
        lazy.collect_schema()
    return lazy


def _scan(path: Path, ids: str | None, needed: Sequence[str]) -> pl.LazyFrame:
    check_path(path)
    if path.is_dir():
        return scan_folder(path, needed)
    kind = _FILE_KINDS.get(path.suffix.lower())
    if kind is None:
        raise DataError.unreadable(path, f"a file that ends in {path.suffix or 'nothing'}")
    if kind == "parquet":
        return pl.scan_parquet(path, glob=False)
    if kind == "csv":
        return read_csv(path, ids).lazy()
    return pl.scan_ipc(path, glob=False)


def scan_bytes(blob: bytes, kind: str, name: str, *, ids: str | None = None) -> pl.LazyFrame:
    """Open the bytes of a parquet, csv or feather file as `scan` opens a file; errors call it `name`."""
    with reading(path=name):
        if kind == "parquet":
            lazy = pl.scan_parquet(BytesIO(blob), glob=False)
        elif kind == "csv":
            lazy = read_csv(blob, ids, name).lazy()
        else:
            lazy = pl.scan_ipc(BytesIO(blob), glob=False)
        lazy.collect_schema()
    return lazy


def collect(lazy: pl.LazyFrame, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read these columns of a table, or all."""
    with reading():
        return (lazy if columns is None else lazy.select(columns)).collect()


def schema_of(lazy: pl.LazyFrame) -> pl.Schema:
    """Return names and types without reading values."""
    with reading():
        return lazy.collect_schema()


def count_rows(lazy: pl.LazyFrame) -> int:
    """Return the number of rows; for parquet and feather from the metadata of the file."""
    return int(collect(lazy.select(pl.len())).item())


def collect_whole(lazy: pl.LazyFrame) -> pl.DataFrame:
    """Read all columns, if they fit into memory."""
    height, width = count_rows(lazy), len(schema_of(lazy))
    check_memory(height * width * BYTES_PER_EXTRA_CELL, f"{height} rows of {width} columns")
    return collect(lazy)


def read(path: Path, *, ids: str | None = None) -> pl.DataFrame:
    """Read a whole file."""
    return collect_whole(scan(path, ids=ids))


def read_csv(source: Path | bytes, ids: str | None, name: str = "") -> pl.DataFrame:
    """Read a csv file or its bytes; the column `ids` stays as written, including 007 and NA. Times stay text."""
    path, size = (source, source.stat().st_size) if isinstance(source, Path) else (name, len(source))
    check_memory(CSV_FACTOR * size, f"the rows of {path}")
    try:
        if not (head := _head(source, path)):
            raise DataError.unreadable(path, "an empty file", "check what should have written it.")
        separator = max(",;\t", key=head[0].count)
        names = unique_names(next(csv.reader(head, delimiter=separator), []))
        return _without_blank_lines(_read(source, separator, names, ids, head[1:]))
    except csv.Error as error:
        raise DataError.unreadable(path, f"a first line that is not a header ({error})") from error
    except (UnicodeDecodeError, pl.exceptions.ComputeError) as error:
        if isinstance(error, UnicodeDecodeError) or "utf-8" in str(error).lower() or "utf8" in str(error).lower():
            raise DataError.unreadable(
                path, "text that is not UTF-8", "save it as UTF-8, in Excel as 'CSV UTF-8'."
            ) from error
        raise


def _head(source: Path | bytes, path: Path | str) -> list[str]:
    """Return the first lines; refuse compressed files and files without line ends before more is read."""
    head: list[str] = []
    with BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        if file.read(6).startswith(_COMPRESSED):
            raise DataError.unreadable(path, "a compressed file", "decompress it first.")
        file.seek(0)
        lines = TextIOWrapper(file, encoding="utf-8-sig", newline="")
        while len(head) < _HEAD_LINES and (line := lines.readline(_LONGEST_LINE)):
            if len(line) == _LONGEST_LINE:
                raise DataError.unreadable(path, f"a line of {_LONGEST_LINE:,} characters or more")
            head.append(line)
    return head


def _read(path: Path | bytes, separator: str, names: list[str], ids: str | None, first: list[str]) -> pl.DataFrame:
    field = re.compile(rf'(?:^|{separator})"?{_DECIMAL_COMMA}"?(?:{separator}|\s*$)')
    comma = separator != "," and any(field.search(line) for line in first)
    table = _typed(path, separator, names, comma=comma)
    texts = [name for name, kind in table.schema.items() if kind == pl.String and name != ids]
    if separator != "," and not comma and any(table[name].str.contains(f"^{_DECIMAL_COMMA}$").any() for name in texts):
        table = _typed(path, separator, names, comma=True)
    if ids in table.columns:
        column = pl.read_csv(path, separator=separator, columns=[table.columns.index(ids)], infer_schema=False)
        table = table.with_columns(column.to_series().alias(ids))
    table = _without_thousands(path, separator, table, ids)
    # polars takes a column without any value for text.
    return table.with_columns(pl.lit(None).alias(c.name) for c in table if c.null_count() == len(c) and c.name != ids)


def _without_thousands(path: Path | bytes, separator: str, table: pl.DataFrame, ids: str | None) -> pl.DataFrame:
    """Read numbers with separators of thousands and a currency: `1,234.50`, `1.234,50 €`, `1 234`.

    A number that can be read in two ways, such as 1,234, has the decimal sign of its file (docs/data.md).
    """
    for place, column in enumerate(table):
        if column.name == ids or column.count() == 0:
            continue
        if column.dtype == pl.String:
            plain = column.str.extract(_CURRENCY)
            signs = ".," if separator == "," else ",."
            sign = next((sign for sign in signs if plain.str.contains(_NUMBERS[sign]).all()), None)
            if sign is not None:
                digits = plain.str.replace_all(f"[^0-9{sign}+-]", "").str.replace(sign, ".", literal=True)
                table = table.with_columns(digits.cast(pl.Float64).alias(column.name))
        elif column.dtype == pl.Float64 and separator != "," and _in_thousandths(column):
            text = pl.read_csv(path, separator=separator, columns=[place], infer_schema=False).to_series()
            text = text.set(text.is_in(_NO_VALUE), None)
            if not text.str.contains(_THREE_DECIMALS).all():
                continue
            pointed = text.str.contains(".", literal=True)
            way = "thousands, since others have no point" if not pointed.all() else "decimals"
            log.warning("%r: the point in %s is read as that of %s", column.name, text.filter(pointed)[0], way)
            if not pointed.all():
                whole = text.str.replace(".", "", literal=True).cast(pl.Float64)
                table = table.with_columns(whole.alias(column.name))
    return table


def _in_thousandths(column: pl.Series) -> bool:
    """Return True if all numbers have at most three decimals, and those that have some lie between 1 and 1,000."""
    some = column.filter((column % 1 != 0).fill_null(value=False)).abs() * 1000
    return len(some) > 0 and bool(((some > 1000) & (some < 1e6) & ((some.round() - some).abs() < 1e-6)).all())


def _typed(path: Path | bytes, separator: str, names: list[str], *, comma: bool) -> pl.DataFrame:
    def infer(rows: int | None) -> pl.DataFrame:
        return pl.read_csv(
            path, separator=separator, decimal_comma=comma, infer_schema_length=rows, null_values=_NO_VALUE
        )

    try:
        table = infer(_ROWS_TO_INFER)
        # A column that begins empty is inferred as text; for other types, a contradiction raises.
        guessed = any(c.dtype == pl.String and c[:_ROWS_TO_INFER].count() == 0 < c.count() for c in table)
    except pl.exceptions.ComputeError:
        guessed = True
    if guessed:
        table = infer(None)
    if len(names) == table.width:
        table.columns = names  # polars renames duplicates
    return table


def _without_blank_lines(table: pl.DataFrame) -> pl.DataFrame:
    blank = table.select(pl.all_horizontal(pl.all().is_null())).to_series()
    return table.filter(~blank) if blank.any() else table


def part_names(folder: Path) -> list[Path]:
    """Return the visible parquet files below a folder, relative to it, in order; raise if there are none."""
    if (folder / SHARDING).exists():
        raise DataError.unreadable(
            folder, "parts that `logsparse shard` has not finished", "repeat that command, or remove the folder."
        )
    found = (path for path in sorted(folder.rglob("*")) if path.suffix.lower() == ".parquet" and not path.is_dir())
    inside = [path.relative_to(folder) for path in found]
    # Names with these prefixes are metadata or unfinished files, as for Spark and pyarrow.
    visible = [path for path in inside if not any(part.startswith((".", "_")) for part in path.parts)]
    if not visible:
        raise DataError.unreadable(folder, "a folder without parquet files in it")
    return visible


def scan_folder(folder: Path, needed: Sequence[str]) -> pl.LazyFrame:
    """Open all visible parquet files below the folder as one table; the columns `needed` must agree."""
    parts = [_open_part(folder, path) for path in part_names(folder)]
    if _alike(parts) and not any("=" in str(part.path.relative_to(folder).parent) for part in parts):
        return pl.scan_parquet([part.path for part in parts], hive_partitioning=False, glob=False)
    return pl.concat(_in_common_types(parts, needed), how="diagonal")


def scan_parts(folder: Path, needed: Sequence[str]) -> dict[Path, pl.LazyFrame]:
    """Open the files that `scan_folder` opens one by one, as tables of the same types."""
    parts = [_open_part(folder, path) for path in part_names(folder)]
    tables = [part.lazy for part in parts] if _alike(parts) else _in_common_types(parts, needed)
    return {part.path.relative_to(folder): table for part, table in zip(parts, tables, strict=True)}


def _alike(parts: list[_Part]) -> bool:
    return all(part.schema == parts[0].schema for part in parts)


def _in_common_types(parts: list[_Part], needed: Sequence[str]) -> list[pl.LazyFrame]:
    names = dict.fromkeys(name for part in parts for name in part.schema)
    kinds = {name: _kind(name, parts, needed) for name in names}
    return [
        part.lazy.select(pl.col(name).cast(kind) for name in part.schema if (kind := kinds[name]) is not None)
        for part in parts
    ]


def _open_part(folder: Path, path: Path) -> _Part:
    check_path(folder / path)
    with reading(path=folder / path):
        lazy = scan_part(folder / path, path)
        return _Part(folder / path, lazy, lazy.collect_schema())


def scan_part(source: Path | bytes, path: Path) -> pl.LazyFrame:
    """Open one parquet file, or its content, with the partitions in its `path` below the folder as columns of text."""
    lazy = pl.scan_parquet(source, hive_partitioning=False, glob=False)
    schema = lazy.collect_schema()
    for part in path.parent.parts:
        name, equals, value = part.partition("=")
        if equals and name not in schema:
            text = None if value == _NO_PARTITION else unquote(value)
            lazy = lazy.with_columns(pl.lit(text, pl.String).alias(name))
    return lazy


def _kind(name: str, parts: list[_Part], needed: Sequence[str]) -> pl.DataType | type[pl.DataType] | None:
    """Return a type that fits the column in every part, or None to drop an unneeded column that has none."""
    first = next(part for part in parts if name in part.schema)
    without = next((part for part in parts if name not in part.schema), None)
    if without and name in needed:
        raise disagreement(name, f"it in {first.path.name}, but not in {without.path.name}")
    part_of = {part.schema[name]: part for part in parts if name in part.schema}
    kinds = [kind for kind in part_of if kind != pl.Null]
    if len(kinds) <= 1:
        return kinds[0] if kinds else pl.Null()
    if all(kind.is_integer() for kind in kinds):
        return pl.Int64()
    if all(kind.is_numeric() for kind in kinds):
        return pl.Float64()
    if all(kind in (pl.Date, pl.Datetime) for kind in kinds):
        zones = {getattr(kind, "time_zone", None) for kind in kinds}
        if len(zones) == 1:
            finest = any(getattr(kind, "time_unit", "us") == "ns" for kind in kinds)
            return pl.Datetime("ns" if finest else "us", zones.pop())
    if all(kind in (pl.String, pl.Categorical, pl.Enum) for kind in kinds):
        return pl.String()
    if name in needed:
        one = kinds[0]
        other = next((kind for kind in kinds if type(kind) is not type(one)), kinds[-1])
        raise disagreement(name, f"{one} in {part_of[one].path.name}, {other} in {part_of[other].path.name}")
    return None if any(kind.is_nested() for kind in kinds) else pl.String()


def disagreement(name: str, got: str) -> DataError:
    """Return the error for parts of a folder with different kinds of the same column."""
    return DataError(
        f"The parts of a folder must agree on the column {name!r}.",
        got=got,
        hint="write all parts with the same columns and types, or remove those that do not belong.",
    )


def is_file_name(path: Path) -> bool:
    """Return True if the name has an ending that results are written with."""
    return path.suffix.lower() in _WRITTEN


def check_writable(path: Path, *, folder: bool = False) -> None:
    """Raise before long work if its result could not be written to `path` (into `path` if it is a `folder`)."""
    if not folder and not is_file_name(path):
        raise DataError(
            "Results are written as parquet, csv, feather or json.",
            got=f"{path}",
            hint="end the name in .parquet, .csv, .feather or .json.",
        )
    try:
        if not folder and path.is_dir():
            raise unwritable(_RESULT, path, "a folder of that name exists")
        into = path.absolute() if folder else path.absolute().parent
        existing = next(parent for parent in (into, *into.parents) if parent.exists())
        if not existing.is_dir():
            raise unwritable(_RESULT, path, f"{existing} is not a folder")
        # Permissions are not enough: root may write anywhere, but not in /proc.
        probe = existing / f".logsparse.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise unwritable(_RESULT, path, error.strerror or str(error)) from error


def write(table: pl.DataFrame, path: Path) -> None:
    """Write to parquet, csv, feather or json by the ending of the name, atomically."""
    check_writable(path)
    try:
        blob = encode(table, _WRITTEN[path.suffix.lower()])
    except pl.exceptions.PolarsError as error:
        raise unwritable(_RESULT, path, str(error)) from error
    with whole_file(path, _RESULT) as file:
        file.write(blob)


def encode(table: pl.DataFrame, kind: str) -> bytes:
    """Return the bytes of a parquet, csv, feather or json file; json is a list of records with ISO times."""
    buffer = BytesIO()
    match kind:
        case "parquet":
            table.write_parquet(buffer)
        case "csv":
            table.write_csv(buffer)
        case "feather":
            table.write_ipc(buffer)
        case _:
            times = [name for name, dtype in table.schema.items() if dtype == pl.Datetime]
            table.with_columns(pl.col(times).dt.to_string("iso:strict")).write_json(buffer)
            buffer.write(b"\n")
    return buffer.getvalue()


@contextmanager
def reading(*, path: Path | str | None = None, column: str | None = None) -> Iterator[None]:
    """Turn whatever a reader raises into a DataError, except our own errors, MemoryError and Ctrl-C."""
    try:
        yield
    except (LogsparseError, MemoryError):
        raise
    except READER_ERRORS as error:
        if path is not None:
            raise DataError.unreadable(path, _reported(error)) from error
        raise DataError(
            "The table must be readable." if column is None else f"The column {column!r} must be readable.",
            got=_reported(error),
            hint="read it with polars directly to see what is wrong."
            if column is None
            else "convert it to numbers, text or times first.",
        ) from error


def _reported(error: BaseException) -> str:
    polars = isinstance(error, (pl.exceptions.PolarsError, pl.exceptions.PanicException))
    message = getattr(error, "strerror", None) or str(error)
    text = next((line for line in message.splitlines() if line.strip()), type(error).__name__)
    return f"a {'polars' if polars else 'reader'} error: {text.rstrip('.')}"


def check_path(path: Path) -> None:
    """Raise, before anything is opened, unless `path` is a regular file or folder whose name polars can open."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise DataError.unreadable(path, "a name that is not UTF-8", "rename it.") from error
    try:
        mode = path.stat().st_mode  # follows links
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise DataError.unreadable(path, "no such file") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        # A pipe blocks until something is written, and some devices never end.
        raise DataError.unreadable(path, "a pipe, socket or device", "write its content to a file first.")
