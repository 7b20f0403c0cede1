"""The result frame of a backtest, or a forecast and the values that came since -> its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logsparse.commands.options import (
    Format,
    IdCol,
    ResultFile,
    TargetCol,
    TimeCol,
    check_out,
    given,
    print_scores,
    source,
)


def score(
    results: ResultFile,
    by: Annotated[
        str | None,
        typer.Option(
            help="one row per unique_id, step, cutoff, or another column of RESULTS, such as a static one [one row]"
        ),
    ] = None,
    actuals: Annotated[
        Path | None, typer.Option(help="file with the values that came since; RESULTS is then a file of `predict`")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="file to write the scores to, or -")] = None,
    format_: Format = None,
    id_col: IdCol = None,
    time_col: TimeCol = None,
    target_col: TargetCol = None,
) -> None:
    """Print the scores of a backtest, or with --actuals, of a forecast whose values have come."""
    check_out(out, format_)
    names = given(actuals=actuals, id_col=id_col, time_col=time_col, target_col=target_col)
    print_scores(source(results), by=by, out=out, format_=format_, **names)
