"""A data set's name, and its originals on disk or on the network -> its parquet file and a record of what was read."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import polars as pl
import polars.selectors as cs

from logsparse.data.columns import TIME
from logsparse.data.files import check_writable, write
from logsparse.data.frame import to_panel
from logsparse.datasets.catalogue import DataSet, Source, named
from logsparse.datasets.compare import compare
from logsparse.datasets.download import download
from logsparse.datasets.originals import Files, broken, find
from logsparse.datasets.ready import VARIABLE, folder, how_to_get
from logsparse.datasets.record import changes, note, recall
from logsparse.errors import DataError

ORIGINALS = "originals"


class Made(NamedTuple):
    path: Path
    remarks: list[str]


def get(name: str, given: Path | None = None, *, again: bool = False, verbose: bool = True) -> Made:
    """The set's parquet file: the one that is here, or one made from `given`, or from what is downloaded."""
    dataset = named(name)
    target = folder() / dataset.file
    if given is None and not again and target.exists():
        return Made(target, ["was here already; --again makes it anew"])
    source = dataset.source
    if source is None or (given is None and not source.urls):
        raise DataError(
            f"{dataset.name} must be fetched by a person.",
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
    """Kept beside the sets: two of them may come from one archive."""
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
    # A nan in an original reads as a number, and sums and means carry it on: here all of them show.
    odd = table.filter(pl.any_horizontal(~cs.float().is_finite()))
    if odd.height:
        raise broken(dataset.name, f"a value at {odd[0, TIME]} that is no finite number")
    for finding in compare(dataset, to_panel(table, freq=dataset.step)):
        if not finding.agrees:
            raise broken(dataset.name, f"{finding.what} = {finding.here} where {finding.wanted} is known")


def _check_writable(target: Path) -> None:
    refusal = DataError(
        "The folder of data sets must be writable.",
        got=str(target.parent),
        hint=f"name another with the variable {VARIABLE}, or unset it: the user's cache serves then.",
    )
    # A folder that nobody may write to is meant to stay as it is, even where root could.
    if target.parent.exists() and not target.parent.stat().st_mode & 0o222:
        raise refusal
    try:
        check_writable(target)
    except DataError as error:
        raise refusal from error
