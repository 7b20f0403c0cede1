"""A fitted model and held-back data -> what its forecasts rest on; with a changed future -> what would change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logsparse.commands.options import Future, History, Model, check_out, given, number, print_table, say, write_table

if TYPE_CHECKING:
    from logsparse.forecast import Forecaster

# Rows of the printed table of a what-if; the file has all of them.
_MOST = 10


def explain(
    model: Model,
    data: History = None,
    windows: Annotated[int | None, typer.Option(help="number of held-back cutoffs per series [up to 4]")] = None,
    repeats: Annotated[int | None, typer.Option(help="how often each input is misplaced [5]")] = None,
    seed: Annotated[int | None, typer.Option(help="seed of the random draws [0]")] = None,
    future: Future = None,
    changed: Annotated[
        Path | None, typer.Option(help="file like that of --future with other values: forecast with both and compare")
    ] = None,
    series: Annotated[str | None, typer.Option(help="series to draw with --changed [that of the most change]")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="file to write the table to")] = None,
    draw: Annotated[Path | None, typer.Option(help="picture in svg, png or pdf")] = None,
) -> None:
    """Show what the forecasts of MODEL rest on, input by input; with --changed, what another future would change."""
    from logsparse.pictures import check_picture
    from logsparse.registry import load

    check_out(out)
    if draw is not None:
        check_picture(draw)
    measured = given(windows=windows, repeats=repeats, seed=seed)
    _check_together(measured, future, changed, series)
    forecaster = load(model)
    if changed is None or future is None:
        _importance(forecaster, data, measured, out, draw)
    else:
        _what_if(forecaster, data, (future, changed), series, out, draw)


def _importance(
    forecaster: Forecaster, data: Path | None, measured: dict[str, Any], out: Path | None, draw: Path | None
) -> None:
    from logsparse.evaluation.importance import importance
    from logsparse.pictures import save_figure

    found = importance(forecaster, data, **measured)
    write_table(found.table(), out)
    if draw is not None:
        save_figure(found.plot(), draw)
        say(f"wrote {draw}")
    say(f"{found}")
    print_table(
        ["input", "kind", "wql", "without", "increase", "90 % interval"],
        [
            [name, kind, number(wql), number(without), _percent(increase), f"{_percent(low)} to {_percent(high)}"]
            for kind, name, wql, without, increase, low, high in found.table().iter_rows()
        ],
    )


def _what_if(
    forecaster: Forecaster,
    data: Path | None,
    futures: tuple[Path, Path],
    series: str | None,
    out: Path | None,
    draw: Path | None,
) -> None:
    from logsparse.evaluation.what_if import what_if
    from logsparse.pictures import save_figure

    found = what_if(forecaster, *futures, data=data)
    if draw is not None:
        # On the command line a number and its text look alike.
        ids = found.unchanged.panel.ids
        save_figure(found.plot(next((name for name in ids if str(name) == series), series)), draw)
    write_table(found.table(), out)
    if draw is not None:
        say(f"wrote {draw}")
    say(f"{found}")
    totals = sorted(found.sums().iter_rows(), key=lambda row: -abs(row[-1]))[:_MOST]
    rows = [[str(name), *(f"{value:,.4g}" for value in row)] for name, *row in totals]
    print_table(["series", "sum of means", "changed", "difference"], rows)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:+.1f} %"


def _check_together(measured: dict[str, Any], future: Path | None, changed: Path | None, series: str | None) -> None:
    """Refuse options of the other question: they would be ignored."""
    from logsparse.errors import ConfigError

    if (changed is None) != (future is None) or (changed is None and series is not None):
        name = "--future" if changed is None and future is not None else "--changed" if changed else "--series"
        raise ConfigError(
            "A what-if needs the values of the covariates with --future and the changed ones with --changed.",
            got=f"{name} alone",
            hint="give both, or neither for the importance of inputs.",
        )
    if changed is not None and measured:
        raise ConfigError(
            "A what-if is one forecast with either future.",
            got=f"--changed and --{next(iter(measured))}",
            hint="ask for the importance of inputs in a command of its own.",
        )
