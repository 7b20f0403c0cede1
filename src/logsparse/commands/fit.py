"""A file -> a trained model in a folder, with settings chosen from the data unless given."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from logsparse.commands.options import (
    Covariates,
    Data,
    DayFirst,
    FreqText,
    IdCol,
    Minutes,
    PastCovariates,
    Preset,
    StaticNames,
    Steps,
    TargetCol,
    TimeCol,
    TimeFormat,
    Tz,
    Until,
    columns,
    given,
    listed,
    print_rows,
    say,
    source,
)
from logsparse.registry import NAMES

if TYPE_CHECKING:
    from logsparse.data.columns import Columns
    from logsparse.data.panel import Panel
    from logsparse.forecast import Forecaster
    from logsparse.forecaster import LogSparse
    from logsparse.plan import Plan

# Below this share of its planned steps a training has learned next to nothing: the exit code says so.
_HARDLY_ANY = 0.05
_HARDLY_TRAINED = 4


def fit(
    data: Data,
    out: Annotated[Path, typer.Option("-o", "--out", help="folder to save the model in")] = Path("model"),
    horizon: Annotated[int | None, typer.Option(help="number of steps to forecast [that of the preset]")] = None,
    context: Annotated[int | None, typer.Option(help="steps of history the model sees [chosen from the data]")] = None,
    until: Until = None,
    steps: Steps = None,
    minutes: Minutes = None,
    kind: Annotated[
        str,
        typer.Option(
            "--model", metavar="NAME", help=f"one of: {', '.join(NAMES)}; several joined by + are an ensemble"
        ),
    ] = "logsparse",
    origin: Annotated[
        Path | None,
        typer.Option("--from", metavar="MODEL", help="fitted model to train further on DATA [train a new one]"),
    ] = None,
    preset: Preset = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="change a setting, such as model.layers=6; repeatable"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="random seed; results repeat with the same number of threads and without --minutes [0]"),
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda [auto]")] = None,
    holidays: Annotated[
        str | None,
        typer.Option(
            metavar="DE|FILE", help="country, or one with a region (DE-BY), a file of dates, or none [recognised]"
        ),
    ] = None,
    covariates: Covariates = None,
    past_covariates: PastCovariates = None,
    static: StaticNames = None,
    id_col: IdCol = None,
    time_col: TimeCol = None,
    target_col: TargetCol = None,
    freq: FreqText = None,
    tz: Tz = None,
    time_format: TimeFormat = None,
    dayfirst: DayFirst = None,
    again: Annotated[
        bool, typer.Option("--again", help="start over instead of resuming what a killed run left, as with new data")
    ] = False,
) -> None:
    """Fit a model to DATA and save it as a folder: a network, which is trained, or other forecasters.

    A training that was interrupted or killed resumes when the same command is run again. One that was too short
    is saved, and a line on the error stream says so; the exit code is 4 if it took fewer than 5 % of its steps, as with
    --minutes too low. --steps plans fewer of them.

    Processes that torchrun starts (`torchrun --nproc-per-node=2 -m logsparse fit ...`) train one network together, and
    share the series of a folder of parts.
    """
    from logsparse.commands.options import claim, start_over
    from logsparse.data.files import check_writable
    from logsparse.folder import check_replaceable
    from logsparse.forecaster import LogSparse
    from logsparse.settings import read_settings
    from logsparse.train.distributed import is_first

    check_writable(out, folder=True)
    check_replaceable(out)
    # What --set says of a setting that has an option of its own gives way to the option.
    settings = {
        **read_settings(changes or []),
        **given(steps=steps, minutes=minutes, seed=seed, device=device, holidays=_holidays(holidays)),
    }
    used = columns(
        id_col=id_col,
        time_col=time_col,
        target_col=target_col,
        freq=freq,
        covariates=listed(covariates),
        past_covariates=listed(past_covariates),
        static=listed(static),
        tz=tz,
        time_format=time_format,
        dayfirst=dayfirst,
    )
    folder = out.with_name(f"{out.name}.training")
    first = is_first()
    if again and first:
        start_over(folder)
    made = _new(kind, horizon, context, preset, settings) if origin is None else None
    if made is not None and not isinstance(made, LogSparse):
        if first:
            _fit_whole(made, data, until, used, out)
        return
    try:
        if origin is None:
            model = cast("LogSparse", made)
            plan = model.plan(source(data), until=until, **used)
            panel = plan.panel
            if first:
                print_rows([("data", f"{panel.origin.layout} table: {panel}"), *_plan_rows(plan, panel)])
                if claim(folder, range(model.seed, model.seed + plan.config.train.seeds)):
                    say(f"resuming the training in {folder}")
            model.fit(plan, folder=folder)
        else:
            others = {"horizon": horizon, "context": context, "preset": preset}
            model = _loaded(origin, settings, used, **others, model=None if kind == "logsparse" else kind)
            if first and claim(folder, [model.seed]):
                say(f"resuming the training in {folder}")
            limits = {name: value for name, value in settings.items() if name in _FINE_TUNED}
            model.fine_tune(source(data), until=until, folder=folder, **limits)
    except KeyboardInterrupt:
        say(f"nothing was saved in {out}: the command was stopped before training started.")
        raise
    if first:
        _finish(model, out, folder)


def _holidays(text: str | None) -> Any:
    """Return the table of a file, or the text itself: a country, or several separated by commas; None as it is."""
    from logsparse.data.files import is_file_name, read

    if text == "none":
        return []
    return read(Path(text)) if text is not None and is_file_name(Path(text)) else listed(text)


def _finish(model: LogSparse, out: Path, folder: Path) -> None:
    """Save what was trained and print how the training went; its checkpoints go when it has ended."""
    from logsparse.train.loop import INTERRUPTED

    history = model.history_
    if history.best is None:
        say(f"nothing was saved in {out}: training was stopped before its first validation.")
        raise KeyboardInterrupt
    model.save(out)
    rows = [
        ("validation", f"{history.best:.4f} (negative log-likelihood per step)"),
        ("minutes", f"{history.seconds / 60:.1f}"),
        ("steps", f"{history.steps:,} of {history.planned:,}"),
        ("ended", history.ended),
        *([] if model.calibration_ is None else [("intervals", str(model.calibration_))]),
    ]
    print_rows(rows)
    say(f"wrote {out}")
    if history.ended == INTERRUPTED:
        say(f"{out} has the best weights so far; the same command resumes the training.")
        raise typer.Exit(130)
    shutil.rmtree(folder, ignore_errors=True)
    if history.warning and history.steps < _HARDLY_ANY * (history.planned or 0):
        raise typer.Exit(_HARDLY_TRAINED)


def _panel(data: Path, until: str | None, used: Columns) -> Panel:
    from logsparse.data.frame import to_panel
    from logsparse.data.times import clock_time

    panel = to_panel(source(data), **used)
    return panel if until is None else panel.until(clock_time(panel, until))


def _fit_whole(model: Forecaster, data: Path, until: str | None, used: Columns, out: Path) -> None:
    """Fit and save a forecaster that is not one network: its fit does not resume."""
    from logsparse.ensemble import Ensemble

    panel = _panel(data, until, used)
    print_rows([("data", f"{panel.origin.layout} table: {panel}"), ("model", repr(model))])
    try:
        model.fit(panel, **used)
    except KeyboardInterrupt:
        say(f"nothing was saved in {out}: the command was stopped before the fit had ended.")
        raise
    model.save(out)
    if isinstance(model, Ensemble):
        shown = [f"{weight:.2f} {name}" for name, weight in model.weights_.items()]
        lost = [f"{loss:.4f} {name}" for name, loss in model.losses_.items()]
        print_rows([("weights", ", ".join(shown)), *([("held back", f"loss {', '.join(lost)}")] if lost else [])])
    say(f"wrote {out}")


def _new(
    kind: str, horizon: int | None, context: int | None, preset: str | None, settings: dict[str, Any]
) -> Forecaster:
    """Return an unfitted model, or an ensemble of several; options of networks go to all networks among them."""
    from logsparse import presets
    from logsparse.ensemble import Ensemble
    from logsparse.errors import ConfigError
    from logsparse.forecaster import LogSparse
    from logsparse.registry import class_of, known_as, named

    names = kind.split("+")
    for name in names:
        if known_as(name) is None:
            named(name, 1)  # raises, with the names that there are
    known = [known_as(name) or name for name in names]
    networks = [name for name in known if issubclass(class_of(name), LogSparse)]
    asked = [f"--{name}" for name in given(context=context, preset=preset)]
    asked += [f"--{name}" if name in _OPTIONS else f"--set {name}" for name in settings]
    if asked and not networks:
        raise ConfigError(
            f"{', '.join(asked)} {'is' if len(asked) == 1 else 'are'} for networks.",
            got=f"--model {kind}",
            hint="leave it out, or add a network, such as logsparse+ets.",
        )
    steps = presets.named(preset).horizon if horizon is None and preset is not None else horizon
    if steps is None:
        raise ConfigError(
            "A model needs --horizon, the number of steps to forecast.", got="none", hint="try --horizon 24."
        )
    made = {name: _network(name, steps, context, preset, settings) for name in networks}
    members = [made[name] if name in made else named(name, steps) for name in known]
    model = members[0] if len(members) == 1 else Ensemble(members)
    model.check()
    return model


def _network(name: str, horizon: int, context: int | None, preset: str | None, settings: dict[str, Any]) -> LogSparse:
    """Return an unfitted network; without a preset its settings follow from the data."""
    from dataclasses import replace

    from logsparse import presets
    from logsparse.registry import named

    base = None if preset is None else presets.named(preset, name)
    model = cast("LogSparse", named(name, horizon, context=context, **settings))
    model.check()
    if base is not None:
        model.config = replace(base, horizon=model.horizon, context=model.context or base.context)
        model.check()
    return model


# Settings with an option of their own.
_OPTIONS = ("steps", "minutes", "seed", "device", "holidays")
# What of a fitted model may be set when it is trained further.
_FINE_TUNED = ("steps", "minutes", "lr")


def _loaded(origin: Path, settings: dict[str, Any], used: Columns, **others: Any) -> LogSparse:
    """Return the model to train further; what it knows already must not be given."""
    from logsparse.errors import ConfigError
    from logsparse.forecaster import LogSparse
    from logsparse.registry import load

    placed = {name: settings[name] for name in ("seed", "device") if name in settings}
    others |= {"holidays": settings.pop("holidays", None)}
    sets = [f"--set {name}" for name in settings if name not in (*_FINE_TUNED, *placed)]
    options = [f"--{name.replace('_', '-')}" for name in {**given(**others), **used}]
    if sets or options:
        raise ConfigError(
            "A model that is trained further keeps its horizon, columns and settings.",
            got=f"--from {origin} and {', '.join([*options, *sets])}",
            hint="leave it out; --steps, --minutes, --set train.lr=..., --seed, --device and --until may be given.",
        )
    model = load(origin, **placed)
    if not isinstance(model, LogSparse):
        raise ConfigError(
            "Only a model with a network can be trained further.",
            got=f"{type(model).__name__} in {origin}",
            hint="fit it again, on all data.",
        )
    return model


def _first_few(holidays: tuple[str, ...]) -> str:
    """Name the first of them, or say that there are none."""
    return ", ".join(holidays[:3]) + (" ..." if len(holidays) > 3 else "") or "none"


def _plan_rows(plan: Plan, panel: Panel) -> list[tuple[str, str]]:
    """Return the most important settings, chosen or given."""
    config, model, train = plan.config, plan.config.model, plan.config.train
    patterns = ", ".join(map(repr, model.patterns))
    limit = "" if train.minutes is None else f", at most {train.minutes:g} minutes"
    again = ", then again on all data" if train.refit else ""
    share = train.validation_share
    part = {0.1: "tenth", 0.25: "fourth"}.get(share, f"{100 * share:g} %")
    most = "" if train.validation_steps is None else f", at most {train.validation_steps:,} steps"
    rows = [
        ("horizon", f"{config.horizon:,}"),
        ("context", f"{config.context:,}"),
        ("lags", ", ".join(map(str, model.lags))),
        ("profiles", ", ".join(model.profiles)),
        ("features", ", ".join(plan.features) or "none"),
        ("holidays", _first_few(config.holidays) if panel.freq.divides_day else ""),
        ("covariates", ", ".join(panel.ahead)),
        ("past covariates", ", ".join(panel.past)),
        ("static", ", ".join(panel.static)),
        ("scale", model.scale),
        ("likelihood", model.likelihood),
        ("lowest", "" if model.lowest is None else f"{model.lowest:g}"),
        ("attention", f"{patterns}, {model.layers} layers, {model.heads} heads, kernel {model.kernel}"),
        ("method", config.method),
        ("simple rules", f"{100 * config.blend:.0f} % of the forecast" if config.blend else ""),
        ("parameters", f"{plan.parameters:,}"),
        ("training", f"{plan.steps:,} steps of {train.batch} windows{limit}{again}"),
        ("validation set", f"the last {part} of each series{most}"),
    ]
    return [(label, value) for label, value in rows if value]
