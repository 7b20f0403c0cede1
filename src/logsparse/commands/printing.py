"""Facts, tables and scores -> lines that a person reads, and files; notes go to the error stream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from logsparse.errors import escaped

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
    from logsparse.metrics import score

    scores = score(results, by=by)
    write_table(scores, out)
    if by is None:
        print_rows([(name, number(value)) for name, value in scores.row(0, named=True).items()])
    else:
        names = [by, *(name for name in SHOWN if name in scores.columns)]
        print_table(names, [[_cell(value) for value in row] for row in scores.select(names).iter_rows()])


def _cell(value: Any) -> str:
    return number(value) if value is None or isinstance(value, float) else str(value)
