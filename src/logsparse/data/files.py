"""A path (csv, parquet, feather, a folder of parts) -> polars table, read on demand; a polars table -> a whole file."""

from __future__ import annotations

import csv
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import polars as pl

from logsparse.data.columns import unique_names
from logsparse.data.times import READER_ERRORS
from logsparse.errors import DataError, LogsparseError
from logsparse.storage import unwritable, whole_file

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
_RESULT = "The result"
# Measured peaks while a table is read (docs/data.md): ids, times, order and values of a row; a column beside them.
BYTES_PER_LONG_ROW, BYTES_PER_EXTRA_CELL = 120, 16
# A cell of the panel, and one of a wide table's columns that are read at once.
BYTES_PER_CELL, BYTES_PER_CELL_READ = 4, 16
# Of the size of a csv file: its text and the table made of it.
CSV_FACTOR = 3
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_NO_VALUE = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
# A whole field such as 3,14: where something else separates, the comma is a decimal point.
_DECIMAL_COMMA = r"[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?"
_LINES_TO_LOOK_AT = 100
_LONGEST_LINE = 2**24
# Types come from the whole file; it is read a second time only where these rows do not tell.
_ROWS_TO_INFER = 10_000
# zip, gzip, bzip2, xz, zstandard, zlib: polars would unpack some of them, to any size.
_PACKED = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"x\x01", b"x\x9c", b"x\xda")


@dataclass(frozen=True)
class _Part:
    path: Path
    lazy: pl.LazyFrame
    schema: pl.Schema


def scan(path: Path, *, ids: str | None = None, needed: Sequence[str] = ()) -> pl.LazyFrame:
    """A parquet, csv or feather file, or a folder of parquet parts; parquet columns stay on disk until asked for.

    `ids` names the column that a csv file must give as it is written, `needed` those that all parts must have.
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


def collect(lazy: pl.LazyFrame, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """These columns of a table, or all."""
    with reading():
        return (lazy if columns is None else lazy.select(columns)).collect()


def schema_of(lazy: pl.LazyFrame) -> pl.Schema:
    """Names and types, without reading."""
    with reading():
        return lazy.collect_schema()


def count_rows(lazy: pl.LazyFrame) -> int:
    """The number of rows; of a parquet or feather file by what it says of itself, without reading."""
    return int(collect(lazy.select(pl.len())).item())


def collect_whole(lazy: pl.LazyFrame) -> pl.DataFrame:
    """All columns, if they fit into memory."""
    height, width = count_rows(lazy), len(schema_of(lazy))
    check_memory(height * width * BYTES_PER_EXTRA_CELL, f"{height} rows of {width} columns")
    return collect(lazy)


def read(path: Path, *, ids: str | None = None) -> pl.DataFrame:
    """The whole file."""
    return collect_whole(scan(path, ids=ids))


def read_csv(path: Path, ids: str | None) -> pl.DataFrame:
    """The whole file; the column named `ids` stays exactly as written, 007 and NA included. Times stay text."""
    check_memory(CSV_FACTOR * path.stat().st_size, f"the rows of {path}")
    try:
        head = _head(path)
        separator = max(",;\t", key=(head or [""])[0].count)
        names = unique_names(next(csv.reader(head, delimiter=separator), []))
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


def scan_folder(folder: Path, needed: Sequence[str]) -> pl.LazyFrame:
    """All parts below the folder, hidden ones left out; the columns `needed` must agree, others may differ."""
    inside = [path.relative_to(folder) for path in sorted(folder.rglob("*.parquet")) if not path.is_dir()]
    # Names that begin so are other programs' notes and unfinished work, as for Spark and pyarrow.
    visible = [path for path in inside if not any(part.startswith((".", "_")) for part in path.parts)]
    if not visible:
        raise DataError.unreadable(folder, "a folder without parquet files in it")
    parts = [_scan_part(folder, path) for path in visible]
    if all(part.schema == parts[0].schema for part in parts) and not any("=" in str(path.parent) for path in visible):
        return pl.scan_parquet([part.path for part in parts], hive_partitioning=False, glob=False)
    names = dict.fromkeys(name for part in parts for name in part.schema)
    kinds = {name: _kind(name, parts, needed) for name in names}
    return pl.concat(
        [
            part.lazy.select(pl.col(name).cast(kind) for name in part.schema if (kind := kinds[name]) is not None)
            for part in parts
        ],
        how="diagonal",
    )


def _scan_part(folder: Path, path: Path) -> _Part:
    check_path(folder / path)
    lazy = pl.scan_parquet(folder / path, hive_partitioning=False, glob=False)
    schema = lazy.collect_schema()
    for part in path.parent.parts:
        name, equals, value = part.partition("=")
        if equals and name not in schema:
            text = None if value == _NO_PARTITION else unquote(value)
            lazy = lazy.with_columns(pl.lit(text, pl.String).alias(name))
    return _Part(folder / path, lazy, lazy.collect_schema())


def _kind(name: str, parts: list[_Part], needed: Sequence[str]) -> pl.DataType | type[pl.DataType] | None:
    """The type that holds the column in every part; None for a column that has none and that nobody asked for."""
    first = next(part for part in parts if name in part.schema)
    lacking = next((part for part in parts if name not in part.schema), None)
    if lacking and name in needed:
        raise _disagree(name, f"it in {first.path.name}, but not in {lacking.path.name}")
    found = {part.schema[name]: part for part in parts if name in part.schema}
    kinds = [kind for kind in found if kind != pl.Null]
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
        raise _disagree(name, f"{one} in {found[one].path.name}, {other} in {found[other].path.name}")
    return None if any(kind.is_nested() for kind in kinds) else pl.String()


def _disagree(name: str, got: str) -> DataError:
    return DataError(
        f"The parts of a folder must agree on the column {name!r}.",
        got=got,
        hint="write the parts alike, or leave out those that do not belong.",
    )


def check_writable(path: Path, *, folder: bool = False) -> None:
    """Refuse, before the work begins, a path that could not be written after it; a `folder` is one to write into."""
    if not folder and path.suffix.lower() not in _FILE_KINDS:
        raise DataError(
            "Results are written as parquet, csv or feather.",
            got=f"{path}",
            hint="end the name in .parquet, .csv or .feather.",
        )
    try:
        if not folder and path.is_dir():
            raise unwritable(_RESULT, path, "a folder of that name is there")
        into = path.absolute() if folder else path.absolute().parent
        there = next(parent for parent in (into, *into.parents) if parent.exists())
        if not there.is_dir():
            raise unwritable(_RESULT, path, f"{there} is no folder")
        # Permissions alone do not tell: root may write anywhere, but not in /proc.
        probe = there / f".logsparse.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise unwritable(_RESULT, path, error.strerror or str(error)) from error


def write(table: pl.DataFrame, path: Path) -> None:
    """To parquet, csv or feather by the ending of the name; the old table or the new is there, never half of one."""
    check_writable(path)
    kind = _FILE_KINDS[path.suffix.lower()]
    try:
        with whole_file(path, _RESULT) as file:
            if kind == "parquet":
                table.write_parquet(file)
            elif kind == "csv":
                table.write_csv(file)
            else:
                table.write_ipc(file)
    except pl.exceptions.PolarsError as error:
        raise unwritable(_RESULT, path, str(error)) from error


def check_memory(needed: float, of: str) -> None:
    """Refuse what would not fit into the memory that is free now."""
    free = available()
    if needed > free:
        raise DataError(
            "A table must fit into memory.",
            got=f"{of}, which take about {needed / 2**30:.1f} GiB where {free / 2**30:.1f} GiB are free",
            hint="read fewer series, a shorter span or fewer columns at a time, or use a machine with more memory.",
        )


def available() -> int:
    """Bytes that this process may still take: what the machine, the container and the shell's limit leave."""
    return min(_of_machine(), _of_container(), _of_limit())


def _of_machine() -> int:
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_container() -> int:
    """By the limits of control groups as they are seen from within, of either version; files count as free."""
    left = [2**63]
    for folder, most, taken in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            stat = dict(line.split() for line in (Path(folder) / "memory.stat").read_text().splitlines())
            cached = int(stat.get("inactive_file", stat.get("total_inactive_file", 0)))
            left.append(int((Path(folder) / most).read_text()) - int((Path(folder) / taken).read_text()) + cached)
    return max(min(left), 0)


def _of_limit() -> int:
    """By `ulimit -v`, where there is one."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            return max(most - taken, 0)
    return 2**63


@contextmanager
def reading(*, path: Path | None = None, column: str | None = None) -> Iterator[None]:
    """Turn whatever a reader raises into a DataError; our own errors, MemoryError and Ctrl-C pass."""
    try:
        yield
    except (LogsparseError, MemoryError):
        raise
    except READER_ERRORS as error:
        if path is not None:
            raise DataError.unreadable(path, _reported(error)) from error
        raise DataError(
            "A table must be readable to its end." if column is None else f"The column {column!r} must be readable.",
            got=_reported(error),
            hint="collect or open it with polars alone to see what is wrong."
            if column is None
            else "write it as numbers, text or times first.",
        ) from error


def _reported(error: BaseException) -> str:
    polars = isinstance(error, (pl.exceptions.PolarsError, pl.exceptions.PanicException))
    said = getattr(error, "strerror", None) or str(error)
    text = next((line for line in said.splitlines() if line.strip()), type(error).__name__)
    return f"what {'polars' if polars else 'the reader'} reports as: {text.rstrip('.')}"


def check_path(path: Path) -> None:
    """Refuse, before anything is opened, what is no regular file or folder, and names that polars cannot open."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise DataError.unreadable(path, "a name that is not UTF-8", "rename it.") from error
    try:
        mode = path.stat().st_mode  # of what a link leads to
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise DataError.unreadable(path, "no such file") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        # A pipe blocks until someone writes, and some devices never end.
        raise DataError.unreadable(path, "a pipe, socket or device", "write its content to a file first.")
