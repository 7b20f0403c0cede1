"""A data set's name -> its parquet file in the folder of data sets -> Panel, cut to the paper's span."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import polars as pl

from logsparse.data.columns import TIME
from logsparse.data.files import collect, scan
from logsparse.data.frame import to_panel
from logsparse.data.panel import Panel
from logsparse.datasets.catalogue import DataSet, named
from logsparse.errors import DataError, LogsparseError

VARIABLE = "LOGSPARSE_DATA"


def folder() -> Path:
    """Where data sets are kept: what LOGSPARSE_DATA names, else the user's own cache."""
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
    """The set's file, if it is there."""
    path = folder() / dataset.file
    return path if path.exists() else None


def load(name: str) -> Panel:
    """The data set of that name; days that the source leaves out are missing values."""
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
    """The file as a panel, without what lies outside the set's span."""
    try:
        rows = scan(path)
        if dataset.span:
            rows = rows.filter(pl.col(TIME).is_between(dataset.first, dataset.last))
        return to_panel(rows, freq=dataset.step)
    except (LogsparseError, pl.exceptions.PolarsError, OSError) as error:
        # Its columns, times and options are not the user's here: what helps is another file.
        raise DataError(
            f"{path} must hold the data set {dataset.name}.",
            got=_reason(error),
            hint=f"move it away: {how_to_get(dataset)}",
        ) from error


def _reason(error: Exception) -> str:
    """Of an error of ours what came, of others their first line."""
    return error.got if isinstance(error, LogsparseError) else str(error).splitlines()[0].rstrip(".")


def outside(dataset: DataSet, path: Path) -> int:
    """Rows of the file that lie outside the set's span."""
    if not dataset.span:
        return 0
    times = collect(scan(path), [TIME])[TIME]
    return int((~times.is_between(dataset.first, dataset.last)).sum())


def how_to_get(dataset: DataSet) -> str:
    """In words of the command line."""
    if dataset.source is None:
        return f"there is no source to load it from; put {dataset.file} into the folder that {VARIABLE} names."
    if not dataset.source.urls:
        login = " (it asks for a login)" if dataset.source.login else ""
        return f"download it from {dataset.source.page}{login}, then `logsparse data get {dataset.name} --from FILE`."
    return f"run `logsparse data get {dataset.name}`."
