"""What was read and what came of it -> a JSON file beside the parquet file. Checksums are of bytes seen here only."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import file_digest
from importlib.metadata import version
from pathlib import Path

from logsparse.datasets.originals import Files
from logsparse.storage import write_whole


@dataclass(frozen=True)
class Read:
    """One file of a source, and the archive it lay in."""

    file: str
    archive: str | None
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Record:
    dataset: str
    source: str
    made: str
    by: str
    given: dict[str, str]
    """The checksum of every file on disk that was opened: archives, or the originals themselves."""
    read: tuple[Read, ...]
    parquet: str
    """The checksum of the data set's own file."""


def note(dataset: str, source: str, paths: list[Path], files: Files, target: Path) -> Record:
    """Write the record of a file that was just made, and give it."""
    read = [Read(o.name, o.archive, o.bytes, o.sha256) for found in files.values() for o in found]
    record = Record(
        dataset=dataset,
        source=source,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        by=f"logsparse {version('logsparse')}",
        given={path.name: checksum(path) for path in paths if path.is_file()},
        read=tuple(read),
        parquet=checksum(target),
    )
    write_whole(_place(target), json.dumps(asdict(record), indent=1).encode(), "The record of a data set")
    return record


def recall(target: Path) -> Record | None:
    """The record beside a file that was made here; one that came ready-made has none."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        fields = json.loads(_place(target).read_text())
        return Record(**{**fields, "read": tuple(Read(**entry) for entry in fields["read"])})
    return None


def changes(before: Record | None, now: Record) -> list[str]:
    """Originals of the same name that were different when they were last read."""
    if before is None:
        return []
    old = {entry.file: entry.sha256 for entry in before.read}
    changed = [entry.file for entry in now.read if old.get(entry.file, entry.sha256) != entry.sha256]
    return [f"{name} differs from the one read at {before.made}" for name in changed]


def checksum(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def _place(target: Path) -> Path:
    return target.with_suffix(".json")
