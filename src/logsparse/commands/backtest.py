"""A fitted model, or the name of a forecaster, and a file -> forecasts at past cutoffs, and their scores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from logsparse.commands.options import (
    Data,
    DayFirst,
    FreqText,
    IdCol,
    MethodName,
    Minutes,
    Preset,
    TargetCol,
    TimeCol,
    TimeFormat,
    Tz,
    check_out,
    columns,
    given,
    print_scores,
    say,
    say_of_training,
    write_table,
)
from logsparse.registry import NAMES

if TYPE_CHECKING:
    from logsparse.forecast import Forecaster


def backtest(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help=f"folder of a fitted model, or one of: {', '.join(NAMES)}"),
    ],
    data: Data,
    horizon: Annotated[int | None, typer.Option(help="number of steps to forecast [that of the fitted model]")] = None,
    windows: Annotated[int, typer.Option(help="number of cutoffs")] = 1,
    step: Annotated[int | None, typer.Option(help="steps between cutoffs [one horizon]")] = None,
    until: Annotated[str | None, typer.Option(help="time of the last step to test [the end of each series]")] = None,
    refit: Annotated[bool, typer.Option("--refit", help="fit again at every cutoff")] = False,
    season: Annotated[int | None, typer.Option(help="season of seasonal naive, in steps [from the time step]")] = None,
    method: MethodName = None,
    minutes: Minutes = None,
    preset: Preset = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="file to write the results to")] = None,
    id_col: IdCol = None,
    time_col: TimeCol = None,
    target_col: TargetCol = None,
    freq: FreqText = None,
    tz: Tz = None,
    time_format: TimeFormat = None,
    dayfirst: DayFirst = None,
) -> None:
    """Forecast DATA at past cutoffs and score the forecasts."""
    from logsparse.data.columns import Columns
    from logsparse.errors import ConfigError
    from logsparse.evaluation.backtest import backtest as run
    from logsparse.evaluation.backtest import read_for

    check_out(out)
    saved = _is_saved(model)
    trains = refit or not saved
    if method is not None and trains:
        raise ConfigError(
            "--method is for a fitted model that is tested as it is.",
            got=f"--method {method}, and a model that is fitted here",
            hint="fit it first: `logsparse fit`, with --set method=... if it needs another training.",
        )
    forecaster = _load(Path(model), horizon, preset, method) if saved else _fresh(model, horizon, preset)
    if minutes is not None:
        _limit(forecaster, minutes, trains=trains)
    forecaster.check()
    named = columns(id_col=id_col, time_col=time_col, target_col=target_col, freq=freq)
    written = columns(tz=tz, time_format=time_format, dayfirst=dayfirst)
    used: Columns = {**named, **written}
    panel = read_for(forecaster, data, used, refit=refit)
    say(f"{panel.origin.layout} table: {panel}")
    results = run(forecaster, panel, windows=windows, step=step, until=until, refit=refit, season=season)
    write_table(results, out)
    print_scores(results)


def _is_saved(model: str) -> bool:
    """Return True if MODEL is a path and not a name; the path of a model wins over a name."""
    path = Path(model)
    return (path / "config.json").exists() or (model not in NAMES and (path.exists() or os.sep in model))


def _load(path: Path, horizon: int | None, preset: str | None, method: str | None) -> Forecaster:
    from logsparse.errors import ConfigError
    from logsparse.registry import load

    if preset is not None:
        raise ConfigError(
            "--preset is for a model that is fitted here, by its name.",
            got=f"--preset {preset} and the folder {path}",
            hint="leave it out, or test `logsparse` or `deepar`.",
        )
    forecaster = load(path, **given(method=method))
    say_of_training(forecaster, path)
    if horizon not in (None, forecaster.horizon):
        raise ConfigError(
            "--horizon must be the one that the model was fitted for.",
            got=f"{horizon} for a model of {forecaster.horizon}",
            hint="leave it out, or fit another model.",
        )
    return forecaster


def _fresh(name: str, horizon: int | None, preset: str | None) -> Forecaster:
    from dataclasses import replace

    from logsparse import presets
    from logsparse.errors import ConfigError
    from logsparse.registry import named

    if preset is not None and name in NAMES:
        base = presets.named(preset, name)
        steps = base.horizon if horizon is None else horizon
        return named(name, steps, config=replace(base, horizon=steps))
    if horizon is None and name in NAMES:
        raise ConfigError("A model that is fitted here needs --horizon.", got="none", hint="try --horizon 24.")
    return named(name, 1 if horizon is None else horizon)


def _limit(forecaster: Forecaster, minutes: float, *, trains: bool) -> None:
    from logsparse.errors import ConfigError

    if not trains or not hasattr(forecaster, "minutes"):
        raise ConfigError(
            "--minutes limits the training.",
            got=f"--minutes {minutes:g}, but nothing is trained",
            hint="leave it out, or test `logsparse`, or a fitted model with --refit.",
        )
    forecaster.minutes = minutes
