"""The name of a data set -> originals -> parquet file, checked against the paper, with a record -> Panel."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import file_digest
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import polars.selectors as cs

from logsparse.data.calendar import Freq
from logsparse.data.columns import TIME
from logsparse.data.files import check_writable, collect, scan, write
from logsparse.data.frame import to_panel
from logsparse.data.panel import Panel
from logsparse.errors import DataError, LogsparseError
from logsparse.paper.catalogue import DataSet, Source, named, step_in_words
from logsparse.paper.download import Files, broken, download, find
from logsparse.storage import write_whole


@dataclass(frozen=True)
class Read:
    """One file of a source, and the archive that contained it."""

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
    """Checksum of every file on disk that was opened: archives, or the originals themselves."""
    read: tuple[Read, ...]
    parquet: str
    """Checksum of the data set's own file."""


def note(dataset: str, source: str, paths: list[Path], files: Files, target: Path) -> Record:
    """Write and return the record of a file that was just made."""
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
    """Return the record beside a file that was made here, or None."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        fields = json.loads(_place(target).read_text())
        return Record(**{**fields, "read": tuple(Read(**entry) for entry in fields["read"])})
    return None


def changes(before: Record | None, now: Record) -> list[str]:
    """Return remarks on originals that differ from those last read."""
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


VARIABLE = "LOGSPARSE_DATA"


def folder() -> Path:
    """Return the folder of data sets: LOGSPARSE_DATA, else the user's cache."""
    if given := os.environ.get(VARIABLE):
        if not Path(given).is_dir():
            raise DataError(
                f"{VARIABLE} must name a folder of data sets.",
                got=f"{given}",
                hint="make the folder, or unset the variable: the user's cache serves then.",
            )
        return Path(given)
    return _cache() / "logsparse" / "data"


def _cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def locate(dataset: DataSet) -> Path | None:
    """Return the path of the set's file if it exists."""
    path = folder() / dataset.file
    return path if path.exists() else None


def load(name: str) -> Panel:
    """Load a data set; days that the source leaves out are missing values."""
    dataset = named(name)
    path = locate(dataset)
    if path is None:
        raise DataError(
            f"The data set {dataset.name} must be on this machine.",
            got=f"no {dataset.file} in {folder()}",
            hint=how_to_get(dataset),
        )
    return read(dataset, path)


def read(dataset: DataSet, path: Path) -> Panel:
    """Read the file as a panel, without rows outside the set's span."""
    try:
        rows = scan(path)
        if dataset.span:
            rows = rows.filter(pl.col(TIME).is_between(dataset.first, dataset.last))
        return to_panel(rows, freq=dataset.step)
    except (LogsparseError, pl.exceptions.PolarsError, OSError) as error:
        # The user did not choose columns or options here: only another file helps.
        raise DataError(
            f"{path} must hold the data set {dataset.name}.",
            got=_reason(error),
            hint=f"move it away: {how_to_get(dataset)}",
        ) from error


def _reason(error: Exception) -> str:
    """What our own error got; of other errors the first line."""
    return error.got if isinstance(error, LogsparseError) else str(error).splitlines()[0].rstrip(".")


def outside(dataset: DataSet, path: Path) -> int:
    """Return the number of rows outside the set's span."""
    if not dataset.span:
        return 0
    times = collect(scan(path), [TIME])[TIME]
    return int((~times.is_between(dataset.first, dataset.last)).sum())


def how_to_get(dataset: DataSet) -> str:
    """Return how to get the set, in terms of the command line."""
    if dataset.source is None:
        return f"there is no source to load it from; put {dataset.file} into the folder that {VARIABLE} names."
    if not dataset.source.urls:
        login = " (it asks for a login)" if dataset.source.login else ""
        return f"download it from {dataset.source.page}{login}, then `logsparse data get {dataset.name} --from FILE`."
    return f"run `logsparse data get {dataset.name}`."


@dataclass(frozen=True)
class Finding:
    """One checked property: what is expected, what is `here`, and whether they agree."""

    what: str
    wanted: str
    here: str
    agrees: bool


@dataclass(frozen=True)
class Report:
    dataset: DataSet
    findings: list[Finding]
    remarks: list[str]
    intact: bool
    """False if the file differs from the one recorded here."""

    @property
    def agrees(self) -> bool:
        return self.intact and all(finding.agrees for finding in self.findings)


def check(name: str) -> Report:
    """Check the set on this machine against what is known of it."""
    dataset = named(name)
    panel, path = load(name), locate(dataset)
    assert path is not None, "it was just loaded"
    record, digest = recall(path), checksum(path)
    intact = record is None or record.parquet == digest
    missing, cut = int(np.isnan(panel.values).sum()), outside(dataset, path)
    remarks = [
        f"missing values {missing:,}",
        f"{path.name}, sha256 {digest}" + ("" if intact else ", which is NOT the file that was made here"),
        "made elsewhere: no record of its originals" if record is None else f"made {record.made} from {record.source}",
    ]
    if cut:
        remarks.insert(0, f"{cut:,} steps of the file outside the span are left out")
    if dataset.note:
        remarks.append(dataset.note)
    return Report(dataset, compare(dataset, panel), remarks, intact)


def checked(name: str) -> Panel:
    """Load the set on this machine; raise if it is not what its name says."""
    dataset, panel = named(name), load(name)
    if odd := [finding for finding in compare(dataset, panel) if not finding.agrees]:
        raise DataError(
            f"{locate(dataset)} must be the data set {dataset.name}.",
            got=", ".join(f"{one.what} = {one.here} where {one.wanted} is known" for one in odd),
            hint=f"`logsparse data check {dataset.name}` shows more; move it away: {how_to_get(dataset)}",
        )
    return panel


def compare(dataset: DataSet, panel: Panel) -> list[Finding]:
    """Compare T, M, S and the span with what is known of the set; T may count calendar steps or observed ones.

    The paper counts sometimes the one, sometimes the other. The number of missing values is known for every set: a file
    with more or fewer is a different one.
    """
    observed = np.array([(~np.isnan(panel[i])).sum() for i in range(len(panel))], np.int64)
    steps, seen = _distinct(panel.lengths.tolist()), _distinct(observed.tolist())
    lacking = panel.lengths - observed
    # Where single values are missing, their number per series is not known, only the sum.
    whole = bool((lacking >= dataset.gaps).all() and (lacking - dataset.gaps).sum() == dataset.missing)
    here = _words(steps) if steps == seen else f"{_words(steps)} on the calendar, {_words(seen)} observed"
    step = Freq.parse(dataset.step)
    findings = [
        Finding("T", _words(dataset.lengths), here, whole and dataset.lengths in (steps, seen)),
        Finding("M", str(dataset.series), str(len(panel)), len(panel) == dataset.series),
        Finding("S", step_in_words(str(step)), step_in_words(str(panel.freq)), panel.freq == step),
    ]
    if dataset.span:
        span = [panel.freq.show(time) for time in (int(panel.starts.min()), int(panel.ends().max()))]
        wanted = [text.removesuffix(" 00:00") for text in dataset.span]
        findings.append(Finding("span", " to ".join(wanted), " to ".join(span), span == wanted))
    return findings


def _distinct(numbers: list[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))


def _words(numbers: tuple[int, ...]) -> str:
    """748/1008, as the paper writes two lengths; of more than three, the first and the last."""
    return "/".join(map(str, numbers)) if len(numbers) <= 3 else f"{numbers[0]} to {numbers[-1]}"


ORIGINALS = "originals"


class Made(NamedTuple):
    path: Path
    remarks: list[str]


def get(name: str, given: Path | None = None, *, again: bool = False, verbose: bool = True) -> Made:
    """Return the set's parquet file: the existing one, or one made from `given` or from a download."""
    dataset = named(name)
    target = folder() / dataset.file
    if given is None and not again and target.exists():
        return Made(target, ["exists already; --again makes it again"])
    source = dataset.source
    if source is None or (given is None and not source.urls):
        raise DataError(
            f"{dataset.name} must be downloaded by hand.",
            got="no --from" if source else "a set without a source",
            hint=how_to_get(dataset),
        )
    _check_writable(target)
    paths = [given] if given else [_fetched(url, source, again=again, verbose=verbose) for url in source.urls]
    files = find(paths, source.files)
    table = _table(files, dataset, source)
    _check(dataset, table)
    before = recall(target)
    write(table, target)
    return Made(target, changes(before, note(dataset.name, source.title, paths, files, target)))


def _fetched(url: str, source: Source, *, again: bool, verbose: bool) -> Path:
    """Download an original; it is kept beside the sets, as two sets may come from one archive."""
    path = folder() / ORIGINALS / url.rpartition("/")[2]
    if again or not path.exists():
        download(url, path, page=source.page, most=source.most, verbose=verbose)
    return path


def _table(files: Files, dataset: DataSet, source: Source) -> pl.DataFrame:
    module, _, function = source.reader.partition(":")
    table: pl.DataFrame = getattr(import_module(module), function)(files, dataset)
    return table


def _check(dataset: DataSet, table: pl.DataFrame) -> None:
    if not table.height:
        raise broken(dataset.name, f"nothing in the span {' to '.join(dataset.span or ())}")
    # A nan in an original parses as a number and propagates through sums and means: all of them show here.
    odd = table.filter(pl.any_horizontal(~cs.float().is_finite()))
    if odd.height:
        raise broken(dataset.name, f"a value at {odd[0, TIME]} that is not a finite number")
    for finding in compare(dataset, to_panel(table, freq=dataset.step)):
        if not finding.agrees:
            raise broken(dataset.name, f"{finding.what} = {finding.here} where {finding.wanted} is known")


def _check_writable(target: Path) -> None:
    refusal = DataError(
        "The folder of data sets must be writable.",
        got=str(target.parent),
        hint=f"name another with the variable {VARIABLE}, or unset it: the user's cache serves then.",
    )
    # A read-only folder is meant to stay as it is, even for root.
    if target.parent.exists() and not target.parent.stat().st_mode & 0o222:
        raise refusal
    try:
        check_writable(target)
    except DataError as error:
        raise refusal from error
