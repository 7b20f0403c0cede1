"""Body of a request (csv, parquet, feather, JSON) -> table and its panel, all in memory; table -> body of an answer.

A few kilobytes of parquet or feather can decompress to many gigabytes. The readers trust the sizes in the headers of
the pages, so their sum is known before anything is decompressed (`expanded`). Only what is needed of the two formats is
read here: structures of Thrift's compact protocol (parquet), and tables of flatbuffers (feather).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from pydantic_core import from_json

from logsparse.data.columns import ColumnSpec, from_objects, unique_names
from logsparse.data.files import count_rows, encode, scan_bytes, schema_of
from logsparse.data.health import OnBad
from logsparse.data.later import NewSeries
from logsparse.data.panel import Panel
from logsparse.data.times import stamps
from logsparse.errors import ConfigError, DataError, LogsparseError, shown
from logsparse.forecast import Forecaster

MEDIA = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "feather": "application/vnd.apache.arrow.file",
    "json": "application/json",
}
"""Format -> media type of answers."""
_KINDS = {
    "text/csv": "csv",
    "text/plain": "csv",
    "text/tab-separated-values": "csv",
    "application/csv": "csv",
    "application/vnd.ms-excel": "csv",  # what browsers on Windows call a csv file
    "application/vnd.apache.parquet": "parquet",
    "application/x-parquet": "parquet",
    "application/parquet": "parquet",
    "application/vnd.apache.arrow.file": "feather",
    "application/x-feather": "feather",
    "application/json": "json",
}
# Media types that say nothing: the first bytes decide.
_UNNAMED = ("", "application/octet-stream", "application/x-www-form-urlencoded")
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "feather", b"[": "json", b"{": "json"}
# Headers that are read of one file, in bytes and in number: each costs time here.
_LARGEST_FOOTER = 2**23
_MOST_HEADERS = 50_000
_DEEPEST = 16
# Fields of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and PageHeader in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _META = 4, 1, 3
_COMPRESSED, _DATA_AT, _DICTIONARY_AT = 7, 9, 11
_PAGE_SIZE, _PAGE_COMPRESSED = 2, 3
# Header types of Arrow's Message.
_DICTIONARY_BATCH = 2
_BODY = "the body of the request"
_BYTES_PER_CELL = 16
_LONGEST_ID = 1000
# Columns of a wide table beside those of its series; reading one takes a tenth of a millisecond.
_OTHER_COLUMNS = 1000


class MediaError(LogsparseError):
    """The body has a media type that is not read (415)."""


class TooLargeError(LogsparseError):
    """The request asks for more than the server allows (413)."""


@dataclass(frozen=True)
class Limits:
    """What one request may hold."""

    series: int
    cells: int
    """Rows times columns of a table: a small file can hold a very large one."""


def kind_of(media: str | None, body: bytes) -> str:
    """Return the format of a body by its Content-Type, or by its first bytes if that says nothing."""
    named = (media or "").partition(";")[0].strip().lower()
    if named in _UNNAMED:
        start = body.lstrip()[:6]
        return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "csv")
    if named not in _KINDS:
        raise MediaError(
            "The Content-Type must be that of a csv, parquet, feather or JSON body.",
            got=repr(named),
            hint=f"send one of {', '.join(media.partition(';')[0] for media in MEDIA.values())}.",
        )
    return _KINDS[named]


def read_table(body: bytes, kind: str, ids: str, limits: Limits) -> pl.LazyFrame:
    """Open the body; the column `ids` of csv and JSON stays as written."""
    if not body.strip():
        raise DataError(
            "The body of the request must be a table.",
            got="an empty body",
            hint="choose a file with rows; curl sends one with --data-binary @FILE.",
        )
    if kind == "json":
        return _from_json(body, ids).lazy()
    if kind in ("parquet", "feather"):
        _check_expansion(body, kind, limits)
    try:
        table = scan_bytes(body, kind, _BODY, ids=ids)
        height, width = count_rows(table), len(schema_of(table))
    except DataError as error:
        raise DataError(
            f"The body must be a readable {kind} file.",
            got=error.got.removeprefix(f"{_BODY}: "),
            hint="save a table of Excel as csv in UTF-8." if kind == "csv" else "check the file and the Content-Type.",
        ) from error
    if width > limits.series + _OTHER_COLUMNS:
        raise TooLargeError(
            f"A table must have at most {limits.series + _OTHER_COLUMNS:,} columns.",
            got=f"{width:,}",
            hint="send fewer series; --max-series of the server sets the limit.",
        )
    if height * width > limits.cells:
        raise TooLargeError(
            f"A table must have at most {limits.cells:,} cells.",
            got=f"{height:,} rows of {width:,} columns",
            hint="send fewer series or a shorter past; --max-body of the server sets the limit.",
        )
    return table


def _check_expansion(body: bytes, kind: str, limits: Limits) -> None:
    """Raise if a compressed file would take more memory than its table may."""
    try:
        size = expanded(body, kind)
    except ValueError as error:
        raise DataError(
            f"The body must be a readable {kind} file.", got=str(error), hint="check the file and the Content-Type."
        ) from error
    if size > _BYTES_PER_CELL * limits.cells:
        raise TooLargeError(
            f"A table must take at most {_BYTES_PER_CELL * limits.cells:,} bytes.",
            got=f"{size:,} bytes when it is decompressed",
            hint="send fewer series or a shorter past; --max-body of the server sets the limit.",
        )


def _from_json(body: bytes, ids: str) -> pl.DataFrame:
    """Read a list of records, or a mapping from columns to lists."""
    hint = (
        'send [{"unique_id": "a", "ds": "2024-01-01", "y": 1.0}, ...] or {"unique_id": [...], "ds": [...], "y": [...]}.'
    )
    rule = "A JSON body must be a list of rows or a mapping from columns to lists of one length."
    try:
        content = from_json(body)
    except ValueError as error:
        raise DataError("The body must be JSON.", got=str(error).rstrip("."), hint=hint) from error
    if isinstance(content, list):
        wrong = next((row for row in content if not isinstance(row, dict)), None)
        if wrong is not None:
            raise DataError(rule, got=f"a list with {shown(wrong)}", hint=hint)
        names = list(dict.fromkeys(name for row in content for name in row))
        columns: Mapping[str, Any] = {name: [row.get(name) for row in content] for name in names}
    elif isinstance(content, dict):
        columns = content
    else:
        raise DataError(rule, got=shown(content), hint=hint)
    lengths = {len(column) if isinstance(column, list) else -1 for column in columns.values()}
    if len(lengths) != 1 or lengths == {-1}:
        raise DataError(rule, got=f"columns of different lengths, or none: {shown(columns)[:200]}", hint=hint)
    titles = unique_names(columns)
    return pl.DataFrame([from_objects(n, c, ids=n == ids) for n, c in zip(titles, columns.values(), strict=True)])


def names_of(model: Forecaster, columns: Mapping[str, Any]) -> ColumnSpec:
    """Return the columns of a request: those that it names, or else those that the model was fitted with."""
    return ColumnSpec.of({**model.columns_, **columns})  # type: ignore[typeddict-item]


def check_series(panel: Panel, limits: Limits) -> Panel:
    """Return the panel, or raise if it has more series than the server allows."""
    if len(panel) > limits.series:
        raise TooLargeError(
            f"A request may have at most {limits.series:,} series.",
            got=f"{len(panel):,}",
            hint="send them in several requests; --max-series of the server sets the limit.",
        )
    longest = max(len(name) if isinstance(name, str) else 1 for name in panel.ids)
    if longest > _LONGEST_ID:
        raise DataError(
            f"Ids must have at most {_LONGEST_ID:,} characters.", got=f"one of {longest:,}", hint="shorten them."
        )
    return panel


def past_of(model: Forecaster, panel: Panel, steps: int, on_bad: OnBad = "warn") -> Panel:
    """Return the panel to forecast from; for a model with covariates, rows after the last value are its future.

    A series that the model does not know, without any value, is forecast from its first row on. Others with a bad
    finding are left out or refused as `on_bad` says.
    """
    starting = np.isnan(panel.values[panel.indptr[:-1]])
    blank_S = np.array([one and bool(np.isnan(panel[i]).all()) for i, one in enumerate(starting.tolist())])
    if blank_S.any():
        known = model.learned_until()
        blank_S &= [name not in known for name in panel.ids]
    if not blank_S.any():
        return _past_of(model, panel, steps, on_bad)
    new = panel.keep(blank_S)
    model._check_new(NewSeries(new.ids, np.arange(len(new)), pl.DataFrame(), None))  # noqa: SLF001
    new = replace(new, lengths=np.zeros(len(new), np.int64))
    _check_ahead(new, steps)
    parts = [] if blank_S.all() else [_past_of(model, panel.keep(~blank_S), steps, on_bad)]
    return Panel.joined([*parts, new.reaching(model.horizon)])


def _past_of(model: Forecaster, panel: Panel, steps: int, on_bad: OnBad) -> Panel:
    if on_bad != "warn":
        panel, _ = model.screened(panel, on_bad)
    if not panel.ahead:
        return model.history(panel)
    past = panel.to_last_value()
    _check_ahead(past, steps)
    return model.history(past, None, steps)


def _check_ahead(past: Panel, steps: int) -> None:
    """Raise for the first series without a covariate in one of the steps to forecast."""
    for name in past.ahead:
        flat = past.covariates[name]
        cells_SH = (past.indptr[:-1] + past.lengths)[:, None] + np.arange(steps)
        inside_SH = cells_SH < past.indptr[1:, None]
        known_SH = inside_SH & ~np.isnan(flat[np.minimum(cells_SH, flat.size - 1)])
        if not known_SH.all():
            short = int(np.argmin(known_SH.all(axis=1)))
            raise DataError(
                f"The covariate {name!r} must be known for all {steps} steps to forecast.",
                got=f"series {past.ids[short]!r} with {int(known_SH[short].sum())} of them",
                hint="add rows after the last value of each series, with the covariates and without a value.",
            )


def texts(panel: Panel, times: Any) -> list[str | int]:
    """Return times on the panel's clock as JSON has them: ISO 8601, or whole numbers."""
    return as_json(stamps(panel, times))


def as_json(column: pl.Series) -> list[Any]:
    """Return a column as JSON has it: times as ISO 8601, NaN as null."""
    if column.dtype == pl.Datetime("us") and not column.null_count():
        times = column.to_numpy()
        if not (times.astype(np.int64) % 1_000_000).any():
            # Every answer has times: this takes a tenth of the time of an expression.
            return list(np.datetime_as_string(times, unit="s").tolist())
    if column.dtype == pl.Datetime:
        return column.dt.to_string("iso:strict").str.replace(".000000", "", literal=True).to_list()
    if column.dtype.is_temporal():
        return column.cast(pl.String).to_list()
    return column.fill_nan(None).to_list() if column.dtype.is_float() else column.to_list()


def written(table: pl.DataFrame, kind: str) -> bytes:
    """Return the table as the body of an answer."""
    try:
        return encode(table, kind)
    except pl.exceptions.PolarsError as error:
        raise ConfigError(
            f"The forecast must be writable as {kind}.", got=str(error).splitlines()[0], hint="ask for another format."
        ) from error


def expanded(blob: bytes, kind: str) -> int:
    """Return how many bytes the pages of a parquet or feather file have, decompressed; raise ValueError if unknown."""
    try:
        return sum(_of_parquet(blob) if kind == "parquet" else _of_feather(blob))
    except (struct.error, IndexError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("headers that cannot be read") from error


def _of_parquet(blob: bytes) -> Iterator[int]:
    size = int.from_bytes(blob[-8:-4], "little")
    if size > min(_LARGEST_FOOTER, len(blob) - 8):
        raise ValueError("a footer that is too large")
    footer, _ = _Thrift(blob, len(blob) - 8 - size).structure()
    count = 0
    for group in footer[_ROW_GROUPS]:
        for column in group[_COLUMNS]:
            meta = column[_META]
            at = min(meta[_DATA_AT], meta.get(_DICTIONARY_AT) or meta[_DATA_AT])
            end = at + meta[_COMPRESSED]
            if not 0 <= at <= end <= len(blob):
                raise ValueError("a column outside the file")
            while at < end:
                header, at = _Thrift(blob, at).structure()
                at += header[_PAGE_COMPRESSED]
                count += 1
                if count > _MOST_HEADERS or header[_PAGE_COMPRESSED] < 0 or header[_PAGE_SIZE] < 0:
                    raise ValueError("too many pages, or pages of a negative size")
                yield header[_PAGE_SIZE]


class _Thrift:
    """Reads structures of Thrift's compact protocol as dictionaries from field numbers to values."""

    def __init__(self, blob: bytes, at: int) -> None:
        self.blob, self.at = blob, at

    def structure(self, depth: int = 0) -> tuple[dict[int, Any], int]:
        found: dict[int, Any] = {}
        field = 0
        while (head := self._byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self._signed()
            found[field] = self._value(head & 15, depth)
        return found, self.at

    def _byte(self) -> int:
        self.at += 1
        return self.blob[self.at - 1]

    def _varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._byte()
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return result
            if shift > 63:
                raise ValueError("a number that is too long")

    def _signed(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("structures that are nested too deeply")
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind in (7, 8):
            length = 8 if kind == 7 else self._varint()
            self.at += length
            return None
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            if count > len(self.blob):
                raise ValueError("a list that is longer than the file")
            # In a list, a boolean takes a byte.
            return [self._value(max(head & 15, 3), depth + 1) for _ in range(count)]
        if kind == 12:
            return self.structure(depth + 1)[0]
        raise ValueError("a type that parquet does not use")


def _of_feather(blob: bytes) -> Iterator[int]:
    size = int.from_bytes(blob[-10:-6], "little")
    if size > min(_LARGEST_FOOTER, len(blob) - 10):
        raise ValueError("a footer that is too large")
    footer = _Table.root(blob, len(blob) - 10 - size)
    count = 0
    for field in (2, 3):
        begin, blocks = footer.vector(field)
        for block in range(blocks):
            at, head = struct.unpack_from("<qi", blob, begin + 24 * block)
            marked = blob[at : at + 4] == b"\xff\xff\xff\xff"
            message = _Table.root(blob, at + (8 if marked else 4))
            batch = message.table(2)
            if message.number(1, "B") == _DICTIONARY_BATCH:
                batch = batch.table(1)
            if not batch.place(3):  # not compressed
                continue
            buffers, number = batch.vector(2)
            count += number
            if count > _MOST_HEADERS:
                raise ValueError("too many buffers")
            for i in range(number):
                start, length = struct.unpack_from("<qq", blob, buffers + 16 * i)
                if length >= 8:
                    (full,) = struct.unpack_from("<q", blob, at + head + start)
                    yield length if full == -1 else full


class _Table:
    """A table of flatbuffers."""

    def __init__(self, blob: bytes, at: int) -> None:
        self.blob, self.at = blob, at

    @classmethod
    def root(cls, blob: bytes, at: int) -> _Table:
        return cls(blob, at + struct.unpack_from("<I", blob, at)[0])

    def place(self, field: int) -> int:
        """Return where a field is; 0 if it is left out."""
        layout = self.at - struct.unpack_from("<i", self.blob, self.at)[0]
        entry = 4 + 2 * field
        if layout < 0 or entry >= struct.unpack_from("<H", self.blob, layout)[0]:
            return 0
        offset = struct.unpack_from("<H", self.blob, layout + entry)[0]
        return self.at + offset if offset else 0

    def number(self, field: int, kind: str) -> int:
        place = self.place(field)
        return int(struct.unpack_from(f"<{kind}", self.blob, place)[0]) if place else 0

    def table(self, field: int) -> _Table:
        return _Table.root(self.blob, self.place(field))

    def vector(self, field: int) -> tuple[int, int]:
        """Return where the entries of a vector begin, and their number."""
        place = self.place(field)
        if not place:
            return 0, 0
        begin = place + struct.unpack_from("<I", self.blob, place)[0]
        return begin + 4, struct.unpack_from("<I", self.blob, begin)[0]
