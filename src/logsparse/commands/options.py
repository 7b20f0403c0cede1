"""Shared parts of the commands: options, lines and tables on the terminal, the folder of checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from logsparse.errors import DataError, escaped

if TYPE_CHECKING:
    import polars as pl

    from logsparse.data.columns import Columns

# Columns of scores that are printed; a file has all of them.
SHOWN = ("count", "R0.5", "R0.9", "wql", "coverage_80", "mase", "nd", "rmse")


def say(text: str) -> None:
    """Print a message on the error stream, which leaves the output stream to results."""
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
    """Print rows under a header: text and the first column aligned left, numbers right."""
    lines = [[escaped(cell) for cell in row] for row in (names, *rows)]
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    left = [not i or any(cell.count(" ") > 1 for cell in column[1:]) for i, column in enumerate(columns)]
    for row in lines:
        cells = [
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(row, widths, left, strict=True)
        ]
        typer.echo("  ".join(cells).rstrip())


def check_out(path: Path | None) -> None:
    """Refuse a file that cannot be written, before the work starts."""
    if path is not None:
        from logsparse.data.files import check_writable

        check_writable(path)


def write_table(table: pl.DataFrame, path: Path | None) -> None:
    if path is not None:
        from logsparse.data.files import write

        write(table, path)
        say(f"wrote {path}")


def print_scores(results: Any, *, by: str | None = None, out: Path | None = None) -> None:
    """Score the results, write all scores to `out` if given, and print them."""
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


_FILE = "parquet, csv or feather file, or folder of parquet files"

Data = Annotated[Path, typer.Argument(metavar="DATA", help=_FILE)]
History = Annotated[Path | None, typer.Argument(metavar="DATA", help=f"{_FILE} [the data MODEL was fitted on]")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="folder of a fitted model")]
ResultFile = Annotated[Path, typer.Argument(metavar="RESULTS", help="result file of a backtest")]
Future = Annotated[Path | None, typer.Option(help="file with the covariates over the horizon, and new series")]
Until = Annotated[str | None, typer.Option(help="time of the last step to train on [the end of each series]")]
Preset = Annotated[
    str | None, typer.Option(help="settings of the paper: a data set, such as electricity-f, or `paper` for any other")
]
Minutes = Annotated[float | None, typer.Option(help="time limit of the training in minutes [no limit]")]
MethodName = Annotated[
    str | None,
    typer.Option("--method", help="how a network forecasts: ancestral, mean-path, two-way or direct [as fitted]"),
]
IdCol = Annotated[str | None, typer.Option(help="column of series ids [unique_id]")]
TimeCol = Annotated[str | None, typer.Option(help="column of times [ds]")]
TargetCol = Annotated[str | None, typer.Option(help="column of values [y]")]
FreqText = Annotated[str | None, typer.Option("--freq", help="time step, such as 15min, h, D, ME [inferred]")]


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given on the command line."""
    return {name: value for name, value in options.items() if value is not None}


def columns(**options: Any) -> Columns:
    """Return the column names that were given; the others keep their defaults."""
    return cast("Columns", given(**options))


def listed(text: str | None) -> list[str] | None:
    """Split a comma-separated list."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def claim(folder: Path, seeds: Iterable[int]) -> bool:
    """Create the folder of checkpoints; return True if it has a checkpoint of one of these seeds.

    Checkpoints record their own settings and data. The folder is removed after training, so nothing else may be in it.
    """
    if folder.exists() and not folder.is_dir():
        raise _foreign(folder, "a file that no training wrote")
    folder.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in folder.iterdir()}
    if not all(re.fullmatch(r"seed-\d+", name) for name in names):
        raise _foreign(folder, "files that no training wrote")
    if names - {f"seed-{seed}" for seed in seeds}:
        raise _foreign(folder, "checkpoints of another seed")
    return any(any(path.iterdir()) for path in folder.iterdir())


def _foreign(folder: Path, found: str) -> DataError:
    return DataError(
        f"Checkpoints go to {folder}, which must be new or hold checkpoints of this training only.",
        got=found,
        hint=f"repeat the earlier command to resume it, or remove {folder} to start over.",
    )
