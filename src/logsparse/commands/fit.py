"""A file -> a trained model in a folder, with settings chosen from the data unless given."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from logsparse.commands.options import (
    Data,
    FreqText,
    IdCol,
    Minutes,
    Preset,
    TargetCol,
    TimeCol,
    Until,
    columns,
    listed,
    print_rows,
    say,
)

if TYPE_CHECKING:
    from logsparse.commands.settings import Changes
    from logsparse.config import Config
    from logsparse.data.panel import Panel
    from logsparse.forecaster import LogSparse
    from logsparse.learned import Plan


def fit(
    data: Data,
    out: Annotated[Path, typer.Option("-o", "--out", help="folder to save the model in")] = Path("model"),
    horizon: Annotated[int | None, typer.Option(help="number of steps to forecast [that of the preset]")] = None,
    context: Annotated[int | None, typer.Option(help="steps of history the model sees [chosen from the data]")] = None,
    until: Until = None,
    minutes: Minutes = None,
    preset: Preset = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="change a setting, such as model.layers=6; repeatable"),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="random seed; results repeat with the same number of threads and without --minutes")
    ] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    covariates: Annotated[str | None, typer.Option(help="columns whose future values are known: a,b")] = None,
    past_covariates: Annotated[str | None, typer.Option(help="columns known for the past only: a,b")] = None,
    static: Annotated[str | None, typer.Option(help="columns with one category per series: a,b")] = None,
    id_col: IdCol = None,
    time_col: TimeCol = None,
    target_col: TargetCol = None,
    freq: FreqText = None,
) -> None:
    """Train a model on DATA. A run that was interrupted or killed resumes when the same command is run again."""
    from logsparse import presets
    from logsparse.commands.options import claim
    from logsparse.commands.settings import Changes
    from logsparse.data.files import check_writable
    from logsparse.data.frame import to_panel
    from logsparse.data.times import clock_time
    from logsparse.errors import ConfigError
    from logsparse.folder import check_replaceable
    from logsparse.forecaster import LogSparse
    from logsparse.train.loop import INTERRUPTED

    check_writable(out, folder=True)
    check_replaceable(out)
    changed = Changes.read(changes or [])
    base = None if preset is None else presets.named(preset)
    if horizon is None and base is None:
        raise ConfigError(
            "A model needs --horizon, the number of steps to forecast.", got="none", hint="try --horizon 24."
        )
    steps = base.horizon if horizon is None and base else horizon or 0
    model = LogSparse(steps, context=context, seed=seed, device=device, minutes=minutes)
    model.check()
    used = columns(
        id_col=id_col,
        time_col=time_col,
        target_col=target_col,
        freq=freq,
        covariates=listed(covariates),
        past_covariates=listed(past_covariates),
        static=listed(static),
    )
    try:
        panel = to_panel(data, **used)
        if until is not None:
            panel = panel.until(clock_time(panel, until))
        model.config = _config(base, changed, panel, model)
        plan = model.plan(panel, **used)
        print_rows([("data", f"{panel.origin.layout} table: {panel}"), *_plan_rows(plan, panel)])
        folder = out.with_name(f"{out.name}.training")
        if claim(folder, range(seed, seed + plan.config.train.seeds)):
            say(f"resuming the training in {folder}")
        model.fit(plan, folder=folder)
    except KeyboardInterrupt:
        say(f"nothing was saved in {out}: the command was stopped before training started.")
        raise
    history = model.history_
    if history.best is None:
        say(f"nothing was saved in {out}: training was stopped before its first validation.")
        raise KeyboardInterrupt
    model.save(out)
    rows = [
        ("validation", f"{history.best:.4f} (negative log-likelihood per step)"),
        ("minutes", f"{history.seconds / 60:.1f}"),
        ("ended", history.ended),
    ]
    print_rows(rows)
    say(f"wrote {out}")
    if history.ended == INTERRUPTED:
        say(f"{out} has the best weights so far; the same command resumes the training.")
        raise typer.Exit(130)
    shutil.rmtree(folder, ignore_errors=True)


def _config(base: Config | None, changes: Changes, panel: Panel, model: LogSparse) -> Config | None:
    """Return the config, or None without a preset or changes: the model then chooses its settings from the data."""
    from dataclasses import replace

    from logsparse.defaults import recommend

    if base is not None:
        base = replace(base, horizon=model.horizon, context=model.context or base.context)
    elif changes:
        base = recommend(panel, model.horizon, model.context)
    return None if base is None else changes.apply(base)


def _plan_rows(plan: Plan, panel: Panel) -> list[tuple[str, str]]:
    """Return the most important settings, chosen or given."""
    config, model, train = plan.config, plan.config.model, plan.config.train
    patterns = ", ".join(map(repr, model.patterns))
    limit = "" if train.minutes is None else f", at most {train.minutes:g} minutes"
    most = "" if train.validation_steps is None else f", at most {train.validation_steps:,} steps"
    rows = [
        ("horizon", f"{config.horizon:,}"),
        ("context", f"{config.context:,}"),
        ("lags", ", ".join(map(str, model.lags))),
        ("profiles", ", ".join(model.profiles)),
        ("features", ", ".join(plan.features) or "none"),
        ("covariates", ", ".join(panel.ahead)),
        ("past covariates", ", ".join(panel.past)),
        ("static", ", ".join(panel.static)),
        ("scale", model.scale),
        ("likelihood", model.likelihood),
        ("lowest", "" if model.lowest is None else f"{model.lowest:g}"),
        ("attention", f"{patterns}, {model.layers} layers, {model.heads} heads, kernel {model.kernel}"),
        ("method", config.method),
        ("parameters", f"{plan.parameters:,}"),
        ("training", f"{plan.steps:,} steps of {train.batch} windows{limit}"),
        ("validation set", f"the last tenth of each series{most}"),
    ]
    return [(label, value) for label, value in rows if value]
