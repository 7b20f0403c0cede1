"""The result frame of a backtest -> its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logsparse.commands.options import ResultFile, check_out, print_scores


def score(
    results: ResultFile,
    by: Annotated[
        str | None,
        typer.Option(
            help="one row per unique_id, step, cutoff, or another column of RESULTS, such as a static one [one row]"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="file to write the scores to")] = None,
) -> None:
    """Print the scores of a backtest."""
    from logsparse.data.columns import ID
    from logsparse.data.files import read

    check_out(out)
    print_scores(read(results, ids=ID), by=by, out=out)
