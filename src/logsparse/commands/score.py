"""The result frame of a backtest -> its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logsparse.commands.options import IdCol, ResultFile, TargetCol, TimeCol, check_out, given, print_scores
from logsparse.commands.streams import Format, source


def score(
    results: ResultFile,
    by: Annotated[
        str | None,
        typer.Option(
            help="one row per unique_id, step, cutoff, or another column of RESULTS, such as a static one [one row]"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="file to write the scores to, or -")] = None,
    format_: Format = None,
    id_col: IdCol = None,
    time_col: TimeCol = None,
    target_col: TargetCol = None,
) -> None:
    """Print the scores of a backtest."""
    check_out(out, format_)
    names = given(id_col=id_col, time_col=time_col, target_col=target_col)
    print_scores(source(results), by=by, out=out, format_=format_, **names)
