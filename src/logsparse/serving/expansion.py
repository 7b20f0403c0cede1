"""Bytes of a parquet or feather file -> bytes that its pages take once they are decompressed, by their own headers.

A few kilobytes can decompress to many gigabytes. The readers trust the sizes in these headers, so their sum is known
before anything is decompressed. Only what is needed of the two formats is read here: structures of Thrift's compact
protocol (parquet), and tables of flatbuffers (feather). Whatever does not parse raises ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

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


def expanded(blob: bytes, kind: str) -> int:
    """Return how many bytes the pages of a parquet or feather file have, decompressed."""
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
