"""A URL -> a complete file, resumed if interrupted; a file, folder or zip archive -> the original files in it."""

from __future__ import annotations

import json
import re
import ssl
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from hashlib import sha256
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlsplit

from logsparse.errors import DataError
from logsparse.process import Progress

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


_CHUNK = 1 << 18
_MEGABYTE = 1_000_000
_SECONDS_OF_SILENCE = 60.0
# Half a gigabyte in that time is 23 kB a second.
_LONGEST = 6 * 3600.0
_DIGITS = "[0-9]{1,18}"
# Status codes worth another try: too many requests, and temporary errors of the server.
_PASSING = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Note:
    """What a partial file belongs to. Without a `mark` it cannot be resumed."""

    url: str
    mark: str | None
    """Identifies the content on the server: a strong ETag, or the Last-Modified time."""
    size: int | None


@dataclass(frozen=True)
class Limits:
    """Limits of one download."""

    most: int
    """Bytes."""
    until: float
    """`time.monotonic()` of its end."""

    def check(self, size: int) -> None:
        """Raise if this size, declared or received, or the time exceeds the limits."""
        if size > self.most:
            raise _RefusedError(f"{size:,} bytes, where at most {self.most:,} are expected")
        if time.monotonic() > self.until:
            raise _TooLongError("the time for this download is over")


class _CutOffError(Exception):
    """The connection ended before the content did."""


class _TooLongError(Exception):
    """The time is over; the partial file can be resumed."""


class _RefusedError(Exception):
    """The response cannot be the original; another try would not help."""


class _WebOnly(urllib.request.HTTPRedirectHandler):
    """Follow redirects to http and https only; urllib would follow ftp too."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        _check_scheme(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_scheme(url: str) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise _RefusedError(f"only http and https are followed, not {url}")


# Network errors, worth another try; errors of the disk are raised at once.
_LOST = (urllib.error.URLError, HTTPException, _CutOffError, ConnectionError, TimeoutError, ssl.SSLError)


def download(
    url: str,
    target: Path,
    *,
    page: str,
    most: int,
    seconds: float = _LONGEST,
    verbose: bool = True,
    tries: int = 5,
    pause: float = 1.0,
) -> None:
    """Download `url` to `target`, at most `most` bytes; errors refer to `page`. Only tries without new bytes count."""
    part = target.with_name(f"{target.name}.part")
    farthest, fruitless = _size(part), 0
    limits = Limits(most, time.monotonic() + seconds)
    while True:
        try:
            _check_scheme(url)
            _attempt(url, part, limits, verbose=verbose)
            break
        except _RefusedError as error:
            _forget(part)
            raise _failed(url, error, page) from error
        except _TooLongError as error:
            raise _failed(url, error, page, _size(part)) from error
        except urllib.error.HTTPError as error:
            error.close()
            reason: object = f"HTTP {error.code} {error.reason}"
            if error.code not in _PASSING:
                raise _failed(url, reason, page) from error
        except _LOST as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            if isinstance(error, urllib.error.URLError) and not _size(part):
                raise _failed(url, reason, page) from error  # the server cannot be reached at all
        reached = _size(part)
        fruitless = 0 if reached > farthest else fruitless + 1
        farthest = max(reached, farthest)
        if fruitless >= tries:
            raise _failed(url, reason, page, reached)
        time.sleep(pause * 2**fruitless)
    if target.suffix == ".zip" and not zipfile.is_zipfile(part):
        begins = part.read_bytes()[:20]
        _forget(part)
        raise _failed(url, f"not a zip archive, but something that begins {begins!r}", page)
    part.replace(target)
    _note_file(part).unlink(missing_ok=True)


def _attempt(url: str, part: Path, limits: Limits, *, verbose: bool) -> None:
    note, have = _read_note(part), _size(part)
    if note is None or note.url != url or note.mark is None:
        note, have = None, 0
    if note and have == note.size:
        return  # complete, but not renamed yet
    # A compressed transfer could not be resumed.
    headers = {"User-Agent": "logsparse", "Accept-Encoding": "identity"}
    if note and have:
        headers |= {"Range": f"bytes={have}-", "If-Range": str(note.mark)}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme is checked
    try:
        response: HTTPResponse = urllib.request.build_opener(_WebOnly).open(request, timeout=_SECONDS_OF_SILENCE)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:
            # The partial file is as long as the content or longer, so it cannot be trusted.
            error.close()
            _forget(part)
            raise _CutOffError("the part on disk did not fit, starting again") from error
        raise
    part.parent.mkdir(parents=True, exist_ok=True)
    with response:
        begin, size = _place(response)
        limits.check(size or 0)
        if begin and note:
            if begin != have or note.size not in (None, size) or note.mark != (_mark(response) or note.mark):
                _forget(part)
                raise _CutOffError("the content has changed, starting again")
        else:
            _write_note(part, Note(url, _mark(response), size))
        got = begin
        with part.open("ab" if begin else "wb") as out:
            for block in _shown(response, part.name.removesuffix(".part"), begin, size, verbose=verbose):
                got += len(block)
                limits.check(got)
                out.write(block)
        if size is not None and got != size:
            raise _CutOffError(f"the connection ended after {got:,} of {size:,} bytes")


def _place(response: HTTPResponse) -> tuple[int, int | None]:
    """Offset at which the response begins, and the size of the whole content."""
    if response.status == 206:
        match = re.fullmatch(rf"bytes ({_DIGITS})-{_DIGITS}/({_DIGITS})", response.headers.get("Content-Range", ""))
        if match is None:
            raise _CutOffError("the server does not say where its part begins")
        return int(match[1]), int(match[2])
    length = response.headers.get("Content-Length")
    if length and not re.fullmatch(_DIGITS, length):
        raise _RefusedError(f"a Content-Length of {length[:40]!r}, which is not a number of bytes")
    return 0, int(length) if length else None


def _mark(response: HTTPResponse) -> str | None:
    tag = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _shown(response: HTTPResponse, name: str, begin: int, size: int | None, *, verbose: bool) -> Iterator[bytes]:
    total = None if size is None else -(-size // _MEGABYTE)
    with Progress(f"downloading {name}, MB", total, verbose=verbose) as progress:
        got = begin
        progress.skip_to(begin // _MEGABYTE)
        # read1 returns what is available: a slow server would take days to fill a block.
        while block := response.read1(_CHUNK):
            yield block
            got += len(block)
            reached = total if got == size and total is not None else got // _MEGABYTE
            if reached > progress.done:
                progress.step(reached - progress.done)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _note_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_note(part: Path) -> Note | None:
    with suppress(OSError, ValueError, TypeError):
        return Note(**json.loads(_note_file(part).read_text()))
    return None


def _write_note(part: Path, note: Note) -> None:
    if _read_note(part) != note:
        # The old partial file must never be paired with the new note.
        _forget(part)
        _note_file(part).write_text(json.dumps(asdict(note)))


def _forget(part: Path) -> None:
    _note_file(part).unlink(missing_ok=True)
    part.unlink(missing_ok=True)


def _failed(url: str, reason: object, page: str, reached: int = 0) -> DataError:
    again = f"run the command again, which resumes after {reached:,} bytes if the server can; or " if reached else ""
    return DataError(
        "An original must be available for download.",
        got=f"{url}: {reason}",
        hint=f"{again}download it by hand from {page} and give the file with --from.",
    )
