"""The command `data`: list, fetch and check the paper's data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from logsparse.paper.catalogue import DataSet
    from logsparse.paper.prepare import Report

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, fetch and check the paper's data sets.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="a data set, such as solar; `data list` shows all")]


@app.command("list")
def list_() -> None:
    """Show every data set: length, number and step of its series, whether it is here, its source."""
    from logsparse.paper.catalogue import DATASETS, step_in_words
    from logsparse.paper.prepare import folder, locate

    rows = []
    for dataset in DATASETS:
        lengths = "/".join(map(str, dataset.lengths))
        place = "here" if locate(dataset) else "-"
        rows.append([dataset.name, lengths, str(dataset.series), step_in_words(dataset.step), place, _origin(dataset)])
    _print_table(["name", "T", "M", "S", "here", "source"], rows)
    typer.echo(f"folder: {folder()}", err=True)


@app.command()
def get(
    name: Name,
    given: Annotated[
        Path | None,
        typer.Option("--from", metavar="PATH", help="the originals on disk: a file, a folder or a zip archive"),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="download and read again what exists already")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Make a data set from its public originals: downloaded, or given with --from."""
    from logsparse.paper.prepare import get as run

    path, remarks = run(name, given, again=again, verbose=not quiet)
    for remark in remarks:
        typer.echo(remark, err=True)
    typer.echo(f"{path}")


@app.command()
def check(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="a data set [all that are here]")] = None,
) -> None:
    """Compare a data set with the paper's table of T, M and S; exit code 1 where it differs."""
    from logsparse.errors import DataError
    from logsparse.paper.catalogue import DATASETS
    from logsparse.paper.prepare import check as run
    from logsparse.paper.prepare import locate

    here = [dataset.name for dataset in DATASETS if locate(dataset)] if name is None else [name]
    agree = []
    for each in here:
        try:
            report = run(each)
        except DataError as error:
            # Raised for a set that was named; among all sets, the others are still checked.
            if name is not None:
                raise
            typer.echo(f"{each}: CANNOT BE READ\n  {error}")
            agree.append(False)
        else:
            _print_report(report)
            agree.append(report.agrees)
    if name is None:
        for dataset in DATASETS:
            if dataset.name not in here:
                typer.echo(f"{dataset.name}: not here")
    if not all(agree):
        raise typer.Exit(1)


def _print_report(report: Report) -> None:
    dataset = report.dataset
    verdict = "agrees with the paper's table" if dataset.paper else "as it was made (no set of the paper)"
    typer.echo(f"{dataset.name}: {verdict if report.agrees else 'DIFFERS'}")
    rows = [
        [finding.what, finding.wanted, finding.here, "" if finding.agrees else "differs"] for finding in report.findings
    ]
    _print_table(["", "paper" if dataset.paper else "as made", "here", ""], rows, indent="  ")
    for remark in report.remarks:
        typer.echo(f"  {remark}")


def _origin(dataset: DataSet) -> str:
    if not dataset.paper:
        return f"not of the paper: {dataset.note}"
    assert dataset.source is not None
    return dataset.source.title + (" (login: --from only)" if dataset.source.login else "")


def _print_table(names: list[str], rows: list[list[str]], indent: str = "") -> None:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for row in (names, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        typer.echo((indent + "  ".join(cells)).rstrip())
