"""The result frame of a backtest -> its report as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logsparse.commands.options import IdCol, ResultFile, TargetCol, TimeCol, given, say


def report(
    results: ResultFile,
    out: Annotated[Path, typer.Option("-o", "--out", help="HTML file to write")] = Path("report.html"),
    model: Annotated[
        Path | None, typer.Option(help="folder of the model, to include its training, attention and settings")
    ] = None,
    importance: Annotated[
        Path | None, typer.Option(help="file that `logsparse explain -o` wrote, to include what the forecast rests on")
    ] = None,
    title: Annotated[str | None, typer.Option(help="heading of the page [Forecast report]")] = None,
    id_col: IdCol = None,
    time_col: TimeCol = None,
    target_col: TargetCol = None,
) -> None:
    """Write the report of a backtest of one model or several.

    It is one HTML file, which needs no network and contains no script.
    """
    from logsparse.registry import load
    from logsparse.reporting.report import report as write_report

    forecaster = None if model is None else load(model)
    names = given(id_col=id_col, time_col=time_col, target_col=target_col)
    say(f"wrote {write_report(results, out, model=forecaster, importance=importance, title=title, **names)}")
