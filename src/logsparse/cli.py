"""The command `logsparse`: words in, tables and files out. Heavy imports wait inside each command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logsparse.commands.pattern import pattern
from logsparse.commands.report import report
from logsparse.errors import LogsparseError

if TYPE_CHECKING:
    import polars as pl

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Data = Annotated[Path, typer.Argument(metavar="DATA", help="parquet, csv or feather file, or folder of parquets")]
Horizon = Annotated[int, typer.Option(help="how many steps to forecast")]
IdCol = Annotated[str, typer.Option(help="column that names the series")]
TimeCol = Annotated[str, typer.Option(help="column of times")]
TargetCol = Annotated[str, typer.Option(help="column of values")]
FreqText = Annotated[str | None, typer.Option("--freq", help="step of the times, such as 15min, h, D, ME [inferred]")]


# What a person reads of a table of scores; the file has all columns.
SHOWN = ("count", "R0.5", "R0.9", "wql", "coverage_80", "mase", "nd", "rmse")


def _version(asked: bool) -> None:
    if asked:
        from logsparse import __version__

        typer.echo(f"logsparse {__version__}")
        raise typer.Exit


@app.callback()
def _logsparse(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Forecast many related series with a long past, with honest uncertainty."""


@app.command()
def check(
    data: Data,
    id_col: IdCol = "unique_id",
    time_col: TimeCol = "ds",
    target_col: TargetCol = "y",
    freq: FreqText = None,
) -> None:
    """Say what was recognised in DATA: series, step, gaps, span."""
    import numpy as np

    from logsparse.data.clock import stamps
    from logsparse.data.frame import to_panel

    panel = to_panel(data, id_col=id_col, time_col=time_col, target_col=target_col, freq=freq)
    empty_S = [int(np.isnan(panel[i]).sum()) for i in range(len(panel))]
    total, missing = int(panel.lengths.sum()), sum(empty_S)
    span = [str(stamps(panel, np.array([time]))[0]) for time in (panel.starts.min(), panel.ends().max())]
    worst = int(np.argmax(empty_S))
    rows = [
        ("layout", "long: one row a series and time" if panel.origin.layout == "long" else "wide: one column a series"),
        ("series", f"{len(panel):,} ({', '.join(map(str, panel.ids[:3]))}{', ...' if len(panel) > 3 else ''})"),
        ("step", f"{panel.freq} (season {panel.freq.season})"),
        ("span", f"{span[0]} to {span[1]}"),
        ("time zone", panel.origin.zone or "none"),
        ("steps a series", _range(panel.lengths.tolist())),
        ("values", f"{total:,}"),
        ("missing", f"{missing:,} ({missing / total:.2%})" + (f", most in {panel.ids[worst]}" if missing else "")),
        ("lowest, highest", f"{np.nanmin(panel.values):g}, {np.nanmax(panel.values):g}"),
    ]
    _print_rows(rows)


@app.command()
def backtest(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="a model's name, such as seasonal-naive")],
    data: Data,
    horizon: Horizon,
    windows: Annotated[int, typer.Option(help="how many cutoffs")] = 1,
    step: Annotated[int | None, typer.Option(help="steps between cutoffs [one horizon]")] = None,
    until: Annotated[str | None, typer.Option(help="time of the last tested step [each series' end]")] = None,
    refit: Annotated[bool, typer.Option("--refit", help="fit anew at every cutoff")] = False,
    season: Annotated[int | None, typer.Option(help="steps of a season, to compare with [the usual one]")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="where to write the result frame")] = None,
    id_col: IdCol = "unique_id",
    time_col: TimeCol = "ds",
    target_col: TargetCol = "y",
    freq: FreqText = None,
) -> None:
    """Forecast DATA at past cutoffs and score what came out."""
    from logsparse.backtesting import backtest as run
    from logsparse.baselines import named
    from logsparse.data.frame import to_panel

    _check_out(out)
    forecaster = named(model, horizon)
    forecaster.check()
    panel = to_panel(data, id_col=id_col, time_col=time_col, target_col=target_col, freq=freq)
    _say(f"{panel.origin.layout} table: {panel}")
    results = run(forecaster, panel, windows=windows, step=step, until=until, refit=refit, season=season)
    _write(results, out)
    _print_scores(results)


@app.command()
def score(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="result frame of a backtest")],
    by: Annotated[str | None, typer.Option(help="unique_id, step or cutoff: one row each [overall]")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="where to write the scores")] = None,
) -> None:
    """Score a backtest's result frame."""
    from logsparse.data.files import read

    _check_out(out)
    _print_scores(read(results, ids="unique_id"), by=by, out=out)


@app.command()
def demo(out: Annotated[Path, typer.Option("-o", "--out", help="folder to write into")] = Path("demo")) -> None:
    """Forecast the paper's synthetic set; write forecast.parquet and a picture."""
    import numpy as np

    from logsparse.backtesting import backtest as run
    from logsparse.baselines.naive import SeasonalNaive
    from logsparse.data.files import check_writable
    from logsparse.data.synthetic import synthetic
    from logsparse.pictures import save_figure

    check_writable(out, folder=True)
    panel = synthetic(96, 1000, np.random.default_rng(0))
    _say(
        "the paper's synthetic set, t0 = 96: 1,000 series of 120 steps, the last 24 forecast by seasonal naive.\n"
        "It must fail: these steps have the larger amplitude of the first two waves, some 90 steps back, and seasonal\n"
        "naive repeats the last season, which says nothing of it. The set shows who can look back that far."
    )
    forecaster = SeasonalNaive(horizon=24, season=24)
    results = run(forecaster, panel)
    _write(results, out / "forecast.parquet")
    history = panel.cut(panel.lengths - 24)
    picture = out / "forecast.svg"
    save_figure(forecaster.fit(history).forecast().plot(history=96), picture)
    _say(f"wrote {picture}")
    _print_scores(results)


app.command()(pattern)
app.command()(report)


def _range(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _say(text: str) -> None:
    """What a person wants to know, beside the output proper."""
    typer.echo(text, err=True)


def _check_out(path: Path | None) -> None:
    """A result that could not be written is refused before hours of work, not after."""
    if path is not None:
        from logsparse.data.files import check_writable

        check_writable(path)


def _write(table: pl.DataFrame, path: Path | None) -> None:
    if path is not None:
        from logsparse.data.files import write

        write(table, path)
        _say(f"wrote {path}")


def _print_rows(rows: list[tuple[str, str]]) -> None:
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        typer.echo(f"{label:<{width}}  {value}")


def _print_table(names: list[str], rows: list[list[str]]) -> None:
    """The first column to the left, numbers to the right, each as wide as it needs."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for row in (names, *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        typer.echo("  ".join(cells).rstrip())


def _cell(value: Any) -> str:
    return _number(value) if value is None or isinstance(value, float) else str(value)


def _print_scores(results: Any, *, by: str | None = None, out: Path | None = None) -> None:
    from logsparse.metrics import score as run

    scores = run(results, by=by)
    _write(scores, out)
    if by is None:
        _print_rows([(name, _number(value)) for name, value in scores.row(0, named=True).items()])
    else:
        names = [by, *(name for name in SHOWN if name in scores.columns)]
        _print_table(names, [[_cell(value) for value in row] for row in scores.select(names).iter_rows()])


def main() -> None:
    """A user's mistake is one line and exit code 2, never a traceback."""
    try:
        status = app(standalone_mode=False)
    except LogsparseError as error:
        typer.echo(f"logsparse: {error}", err=True)
        sys.exit(2)
    except typer.TyperException as error:
        typer.echo(f"logsparse: {error.format_message()} Hint: see `logsparse --help`.", err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(f"logsparse: {error}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("logsparse: stopped.", err=True)
        sys.exit(130)
    sys.exit(status or 0)
