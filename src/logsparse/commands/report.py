"""Words of the command line -> the report of a backtest as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logsparse.commands.options import say


def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="result frame of a backtest")],
    out: Annotated[Path, typer.Option("-o", "--out", help="where to write it, a name in .html")] = Path("report.html"),
    model: Annotated[Path | None, typer.Option(help="folder of the model that made them, to show its training")] = None,
    title: Annotated[str | None, typer.Option(help="what stands on top")] = None,
) -> None:
    """Show a backtest's results on one page that needs no network and can be mailed."""
    from logsparse.reporting.report import report as run

    maker = None
    if model is not None:
        from logsparse.registry import load

        maker = load(model)
    say(f"wrote {run(results, out, model=maker, title=title)}")
