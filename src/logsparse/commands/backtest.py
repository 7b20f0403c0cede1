"""A fitted model, or the name of one to fit, and a file -> what it would have said at past cutoffs, scored."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from logsparse.commands.options import (
    Data,
    FreqText,
    IdCol,
    MethodName,
    Minutes,
    Preset,
    TargetCol,
    TimeCol,
    check_out,
    columns,
    print_scores,
    say,
    set_method,
    write_table,
)

if TYPE_CHECKING:
    from logsparse.forecast import Forecaster


def backtest(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="folder of a fitted model, or a name: logsparse, deepar, arima, ..."),
    ],
    data: Data,
    horizon: Annotated[int | None, typer.Option(help="how many steps to forecast [the fitted model's]")] = None,
    windows: Annotated[int, typer.Option(help="how many cutoffs")] = 1,
    step: Annotated[int | None, typer.Option(help="steps between cutoffs [one horizon]")] = None,
    until: Annotated[str | None, typer.Option(help="time of the last tested step [each series' end]")] = None,
    refit: Annotated[bool, typer.Option("--refit", help="fit anew at every cutoff")] = False,
    season: Annotated[int | None, typer.Option(help="steps of a season, to compare with [the usual one]")] = None,
    method: MethodName = None,
    minutes: Minutes = None,
    preset: Preset = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="where to write the result frame")] = None,
    id_col: IdCol = None,
    time_col: TimeCol = None,
    target_col: TargetCol = None,
    freq: FreqText = None,
) -> None:
    """Forecast DATA at past cutoffs and score what came out."""
    from logsparse.data.columns import Columns
    from logsparse.data.frame import to_panel
    from logsparse.evaluation.backtest import backtest as run

    check_out(out)
    forecaster = _forecaster(model, horizon, preset)
    if method is not None:
        _switch(forecaster, method, trains=refit or not hasattr(forecaster, "panel_"))
    if minutes is not None:
        _limit(forecaster, minutes, trains=refit or not hasattr(forecaster, "panel_"))
    forecaster.check()
    given = columns(id_col=id_col, time_col=time_col, target_col=target_col, freq=freq)
    meant: Columns = {**getattr(forecaster, "columns_", {}), **given}
    panel = to_panel(data, **meant)
    say(f"{panel.origin.layout} table: {panel}")
    results = run(forecaster, panel, windows=windows, step=step, until=until, refit=refit, season=season)
    write_table(results, out)
    print_scores(results)


def _forecaster(model: str, horizon: int | None, preset: str | None) -> Forecaster:
    """From a model's folder if there is one, else by name."""
    from dataclasses import replace

    from logsparse import presets
    from logsparse.errors import ConfigError
    from logsparse.registry import NAMES, named

    path = Path(model)
    # A name needs no torch: a folder is looked into only where one is.
    if (path / "config.json").exists() or (model not in NAMES and (path.exists() or os.sep in model)):
        from logsparse.registry import load

        if preset is not None:
            raise ConfigError(
                "--preset is for a model that is fitted here, by its name.",
                got=f"--preset {preset} and the folder {model}",
                hint="leave it out, or test `logsparse` or `deepar`.",
            )
        forecaster = load(path)
        if horizon not in (None, forecaster.horizon):
            raise ConfigError(
                "--horizon must be the one that the model was fitted for.",
                got=f"{horizon} for a model of {forecaster.horizon}",
                hint="leave it out, or fit another model.",
            )
        return forecaster
    if preset is not None and model in NAMES:
        base = presets.named(preset, model)
        steps = base.horizon if horizon is None else horizon
        return named(model, steps, config=replace(base, horizon=steps))
    if horizon is None and model in NAMES:
        raise ConfigError("A model that is fitted here needs --horizon.", got="none", hint="try --horizon 24.")
    return named(model, 1 if horizon is None else horizon)


def _switch(forecaster: Forecaster, method: str, *, trains: bool) -> None:
    from logsparse.errors import ConfigError

    if trains:
        raise ConfigError(
            "--method is for a fitted model that is tested as it is.",
            got=f"--method {method}, and a model that is fitted here",
            hint="fit it first: `logsparse fit`, with --set method=... where it needs another training.",
        )
    set_method(forecaster, method)


def _limit(forecaster: Forecaster, minutes: float, *, trains: bool) -> None:
    from logsparse.errors import ConfigError

    if not trains or not hasattr(forecaster, "minutes"):
        raise ConfigError(
            "--minutes limits a training.",
            got=f"--minutes {minutes:g}, and nothing that is trained",
            hint="leave it out, or test `logsparse`, or a fitted model with --refit.",
        )
    forecaster.minutes = minutes
