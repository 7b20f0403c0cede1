"""A file, folder or zip archive, as downloaded -> the original files in it, read in blocks, with their checksums."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import IO

from logsparse.errors import DataError

_BLOCK = 1 << 24
# Errors while reading: a truncated or damaged archive, a password, an unknown compression method.
_TROUBLE = (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError)
# Depth of archives inside archives, as UCI has one.
_DEEPEST = 2


class Original:
    """One file of a source. Its size and checksum are known once it has been read to its end."""

    def __init__(self, name: str, archive: str | None, opened: Callable[[], IO[bytes]]) -> None:
        self.name, self.archive, self._open = name, archive, opened
        self.bytes, self.sha256 = 0, ""

    def blocks(self) -> Iterator[bytes]:
        """Yield whole lines in blocks of some megabytes."""
        digest, size, rest = sha256(), 0, b""
        try:
            with self._open() as stream:
                while chunk := stream.read(_BLOCK):
                    digest.update(chunk)
                    size += len(chunk)
                    lines, newline, tail = chunk.rpartition(b"\n")
                    if newline:
                        yield rest + lines + newline
                        rest = tail
                    else:
                        rest += chunk
        except _TROUBLE as error:
            raise broken(self.name, f"a file that cannot be read to its end ({_reason(error)})") from error
        if rest:
            yield rest
        self.bytes, self.sha256 = size, digest.hexdigest()

    def lines(self) -> Iterator[bytes]:
        """Yield lines without line ends; empty lines are skipped."""
        for block in self.blocks():
            yield from filter(None, map(bytes.strip, block.splitlines()))

    def read(self) -> bytes:
        return b"".join(self.blocks())


Files = dict[str, list[Original]]


def broken(name: str, got: str) -> DataError:
    """Return the error of a file that differs from what its source distributes."""
    return DataError(
        f"{name} must be as its source distributes it.",
        got=got,
        hint="download it again (with --again, where there is a download), or give another copy with --from.",
    )


def unreadable(name: str, error: Exception) -> DataError:
    """Return the error of a table that polars cannot read."""
    reason = str(error).splitlines()[0].rstrip(".")
    return broken(name, f"lines that cannot be read like its others ({reason})")


def find(paths: Iterable[Path], patterns: Sequence[str]) -> Files:
    """Return the files that match each pattern, from plain files first, then from archives."""
    plain = [path for given in paths for path in _files(given)]
    found: Files = {pattern: [] for pattern in patterns}
    for path in plain:
        _sort_in(found, Original(path.name, None, _opener(path)))
    for path in plain:
        lacking = [pattern for pattern in patterns if not found[pattern]]
        if lacking and path.suffix.lower() == ".zip":
            for original in _members(path.name, path.absolute, _DEEPEST):
                _sort_in(found, original, lacking)
    for pattern in patterns:
        _check(pattern, found[pattern], plain)
        found[pattern].sort(key=lambda original: original.name)
    return found


def _files(given: Path) -> list[Path]:
    if given.is_dir():
        return sorted(path for path in given.rglob("*") if path.is_file())
    if not given.exists():
        raise DataError(
            "--from must name a file, a folder or a zip archive.", got=f"{given}: no such file", hint="check the path."
        )
    return [given]


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")


def _sort_in(found: Files, original: Original, patterns: Iterable[str] | None = None) -> None:
    for pattern in found if patterns is None else patterns:
        if fnmatch(original.name.lower(), pattern.lower()):
            found[pattern].append(original)


def _members(archive: str, opened: Callable[[], Path | IO[bytes]], depth: int) -> Iterator[Original]:
    """Yield every file of an archive, including nested archives; skip the files that macOS adds."""
    try:
        with zipfile.ZipFile(opened()) as packed:
            entries = [entry.filename for entry in packed.infolist() if not entry.is_dir()]
    except _TROUBLE as error:
        raise broken(archive, f"no whole zip archive ({_reason(error)})") from error
    for entry in entries:
        name = PurePosixPath(entry).name
        if name.startswith("._"):
            continue
        inside = _member_opener(opened, entry)
        if name.lower().endswith(".zip") and depth > 1:
            yield from _members(name, inside, depth - 1)
        else:
            yield Original(name, archive, inside)


def _member_opener(opened: Callable[[], Path | IO[bytes]], member: str) -> Callable[[], IO[bytes]]:
    def act() -> IO[bytes]:
        # The archive stays open until the member is closed.
        with zipfile.ZipFile(opened()) as packed:
            return packed.open(member)

    return act


def _check(pattern: str, found: list[Original], plain: list[Path]) -> None:
    if not found:
        names = ", ".join(path.name for path in plain[:4]) + (", ..." if len(plain) > 4 else "")
        raise DataError(
            f"The originals must have a file {pattern}.",
            got=f"none among {names or 'no files at all'}",
            hint="give the archive, or the folder it was unpacked to, with --from.",
        )
    twice = [original.name for original in found if sum(other.name == original.name for other in found) > 1]
    if twice or ("*" not in pattern and len(found) > 1):
        raise DataError(
            "The originals must have each file once.",
            got=f"{(twice or [pattern])[0]} more than once",
            hint="give one archive or one folder with --from.",
        )


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
