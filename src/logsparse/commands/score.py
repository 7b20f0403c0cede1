"""The result frame of a backtest -> its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logsparse.commands.options import check_out, print_scores


def score(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="result frame of a backtest")],
    by: Annotated[str | None, typer.Option(help="unique_id, step or cutoff: one row each [overall]")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="where to write the scores")] = None,
) -> None:
    """Score a backtest's result frame."""
    from logsparse.data.columns import ID
    from logsparse.data.files import read

    check_out(out)
    print_scores(read(results, ids=ID), by=by, out=out)
