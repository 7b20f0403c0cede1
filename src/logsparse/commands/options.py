"""What commands share: lines and tables on the terminal, options, `--set`, and the folder of a training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from logsparse.errors import DataError, escaped

if TYPE_CHECKING:
    import polars as pl

# What a person reads of a table of scores; the file has all columns.
SHOWN = ("count", "R0.5", "R0.9", "wql", "coverage_80", "mase", "nd", "rmse")


def say(text: str) -> None:
    """What a person wants to know, on one line beside the output proper."""
    typer.echo(escaped(text), err=True)


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def print_rows(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        typer.echo(escaped(f"{label:<{width}}  {value}"))


def print_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first column and notes of many words to the left, numbers to the right, each as wide as it needs."""
    lines = [[escaped(cell) for cell in row] for row in (names, *rows)]
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    left = [not i or any(cell.count(" ") > 1 for cell in column[1:]) for i, column in enumerate(columns)]
    for row in lines:
        shown = zip(row, widths, left, strict=True)
        cells = [cell.ljust(width) if begins else cell.rjust(width) for cell, width, begins in shown]
        typer.echo("  ".join(cells).rstrip())


def check_out(path: Path | None) -> None:
    """A result that could not be written is refused before hours of work, not after."""
    if path is not None:
        from logsparse.data.files import check_writable

        check_writable(path)


def write_table(table: pl.DataFrame, path: Path | None) -> None:
    if path is not None:
        from logsparse.data.files import write

        write(table, path)
        say(f"wrote {path}")


def print_scores(results: Any, *, by: str | None = None, out: Path | None = None) -> None:
    from logsparse.evaluation.metrics import score

    scores = score(results, by=by)
    write_table(scores, out)
    if by is None:
        print_rows([(name, number(value)) for name, value in scores.row(0, named=True).items()])
    else:
        names = [by, *(name for name in SHOWN if name in scores.columns)]
        print_table(names, [[_cell(value) for value in row] for row in scores.select(names).iter_rows()])


def _cell(value: Any) -> str:
    return number(value) if value is None or isinstance(value, float) else str(value)


if TYPE_CHECKING:
    from logsparse.config import Method
    from logsparse.data.columns import Columns
    from logsparse.forecast import Forecaster

_FILE = "parquet, csv or feather file, or folder of parquets"

Data = Annotated[Path, typer.Argument(metavar="DATA", help=_FILE)]
History = Annotated[
    Path | None, typer.Argument(metavar="[DATA]", help=f"{_FILE} [the last steps that the model was fitted on]")
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="folder of a fitted model")]
Future = Annotated[Path | None, typer.Option(help="file of the covariates' values in the steps to forecast")]
Until = Annotated[str | None, typer.Option(help="time of the last step used [each series' end]")]
Preset = Annotated[
    str | None, typer.Option(help="settings of a run of the paper, such as electricity-f, or paper for any set")
]
Minutes = Annotated[float | None, typer.Option(help="stop training after so many [no limit]")]
MethodName = Annotated[
    str | None, typer.Option("--method", help="how a network forecasts, such as direct [as it was fitted to]")
]
IdCol = Annotated[str | None, typer.Option(help="column that names the series [unique_id]")]
TimeCol = Annotated[str | None, typer.Option(help="column of times [ds]")]
TargetCol = Annotated[str | None, typer.Option(help="column of values [y]")]
FreqText = Annotated[str | None, typer.Option("--freq", help="step of the times, such as 15min, h, D, ME [inferred]")]


def columns(**given: Any) -> Columns:
    """Those that were given; the rest keep their usual names."""
    return cast("Columns", {name: value for name, value in given.items() if value is not None})


def set_method(forecaster: Forecaster, method: str) -> None:
    """Another way to forecast, of a network that was fitted for it."""
    from logsparse.errors import ConfigError
    from logsparse.forecaster import LogSparse

    if not isinstance(forecaster, LogSparse):
        raise ConfigError("--method is for networks.", got=type(forecaster).__name__, hint="leave it out.")
    forecaster.method = cast("Method", method)


def listed(text: str | None) -> list[str] | None:
    """a,b -> a and b."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def claim(folder: Path, seeds: Iterable[int]) -> bool:
    """Make the folder; whether one of these seeds left a checkpoint there before.

    A checkpoint knows its own settings and data; but the folder is removed in the end, so nothing else may be in it.
    """
    if folder.exists() and not folder.is_dir():
        raise _foreign(folder, "something that no training wrote")
    folder.mkdir(parents=True, exist_ok=True)
    there = {path.name for path in folder.iterdir()}
    if not all(re.fullmatch(r"seed-\d+", name) for name in there):
        raise _foreign(folder, "something that no training wrote")
    if there - {f"seed-{seed}" for seed in seeds}:
        raise _foreign(folder, "a training with other seed")
    return any(any(path.iterdir()) for path in folder.iterdir())


def _foreign(folder: Path, what: str) -> DataError:
    return DataError(
        f"Checkpoints of this training go to {folder}, which must be new or its own.",
        got=what,
        hint=f"give the same command as before to go on, or remove {folder} to begin anew.",
    )
