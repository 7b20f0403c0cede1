"""Fitted models, or names of forecasters, and a file -> forecasts at past cutoffs, and their scores."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from logsparse.commands.options import (
    STREAM,
    Covariates,
    Data,
    DayFirst,
    Format,
    FreqText,
    IdCol,
    Jobs,
    MethodName,
    Minutes,
    PastCovariates,
    Preset,
    Quantiles,
    Ray,
    Samples,
    StaticNames,
    TargetCol,
    TimeCol,
    TimeFormat,
    Tz,
    check_format,
    check_out,
    columns,
    engine,
    folders,
    given,
    levels_of,
    listed,
    print_scores,
    say,
    say_of_training,
    source,
    write_table,
)
from logsparse.registry import NAMES, known_as

if TYPE_CHECKING:
    from logsparse.config import Config
    from logsparse.data.columns import Columns
    from logsparse.forecast import Forecaster


def backtest(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help=f"folder of a fitted model, or one of: {', '.join(NAMES)}; several joined by + are an ensemble; "
            "several, as in a,b,c+d, are compared",
        ),
    ],
    data: Data,
    horizon: Annotated[int | None, typer.Option(help="number of steps to forecast [that of the fitted model]")] = None,
    windows: Annotated[int, typer.Option(help="number of cutoffs")] = 1,
    step: Annotated[int | None, typer.Option(help="steps between cutoffs [one horizon]")] = None,
    until: Annotated[str | None, typer.Option(help="time of the last step to test [the end of each series]")] = None,
    refit: Annotated[bool, typer.Option("--refit", help="fit again at every cutoff")] = False,
    season: Annotated[int | None, typer.Option(help="season of seasonal naive, in steps [from the time step]")] = None,
    quantiles: Quantiles = None,
    samples: Samples = None,
    method: MethodName = None,
    minutes: Minutes = None,
    preset: Preset = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="file to write the results to, or -; if DATA is a folder of parts, a folder"),
    ] = None,
    format_: Format = None,
    jobs: Jobs = None,
    ray: Ray = None,
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
) -> None:
    """Forecast DATA at past cutoffs and score the forecasts.

    If DATA is a folder of parts (see `logsparse shard`) and -o a folder, fitted models are tested on one part at a time
    per process; the same command continues after an interruption.
    """
    from logsparse.evaluation.backtest import backtest as run
    from logsparse.evaluation.backtest import numbered, read_for

    both = folders(data, out, jobs, ray)
    if both:
        check_format(format_, out)
    else:
        check_out(out, format_)
    levels = levels_of(quantiles)
    words = [model] if _is_saved(model) else listed(model) or [model]
    models = _Models(words, refit=refit)
    models.make(horizon, preset)
    models.change(method=method, minutes=minutes, samples=samples)
    pasts = listed(past_covariates)
    lists = given(covariates=listed(covariates), past_covariates=pasts, static=listed(static))
    named = columns(id_col=id_col, time_col=time_col, target_col=target_col, freq=freq, **lists)
    written = columns(tz=tz, time_format=time_format, dayfirst=dayfirst)
    used: Columns = {**named, **written}
    if both:
        from logsparse.cluster.jobs import backtest_shards

        models.refuse_unfitted()
        folder, target = both
        tests = given(windows=windows, step=step, until=until, quantiles=levels, season=season)
        changed = given(samples=samples, method=method)
        paths = {label: Path(word) for label, word in zip(numbered(models.labels()), words, strict=True)}
        fitted = paths if len(paths) > 1 else Path(words[0])
        done = backtest_shards(fitted, folder, target, jobs=jobs, ray=engine(ray), columns=used, **tests, **changed)
        say(f"wrote {done.made:,} parts to {out}" if done.made else f"{out} is complete already")
        print_scores(target)
        return
    panel = read_for(models.forecasters, source(data), used, refit=refit)
    say(f"{panel.origin.layout} table: {panel}")
    made = models.forecasters
    tested = made[0] if len(made) == 1 else dict(zip(numbered(models.labels()), made, strict=True))
    results = run(tested, panel, windows=windows, step=step, until=until, refit=refit, quantiles=levels, season=season)
    write_table(results, out, format_)
    if out != STREAM:
        print_scores(results)


class _Models:
    """The models of the command line, in the order of their words."""

    def __init__(self, words: Sequence[str], *, refit: bool) -> None:
        self.words, self.refit = words, refit
        self.saved = [_is_saved(word) for word in words]
        self.forecasters: list[Forecaster] = []

    def make(self, horizon: int | None, preset: str | None) -> None:
        """Load or make each of them, with one horizon: the given one, that of a fitted model, or of the preset."""
        from logsparse.registry import named

        for word, saved in zip(self.words, self.saved, strict=True):
            for name in [] if saved else word.split("+"):
                if known_as(name) is None:
                    named(name, 1)  # raises, with the names that there are
        loaded = {word: _load(word, horizon) for word, saved in zip(self.words, self.saved, strict=True) if saved}
        horizons = [horizon, *(forecaster.horizon for forecaster in loaded.values())]
        steps = next((found for found in horizons if found is not None), None)
        fresh = [known_as(name) or name for word in self.words if word not in loaded for name in word.split("+")]
        configs = {} if preset is None else _configs(preset, self.words, fresh)
        if steps is None:
            steps = next((config.horizon for config in configs.values()), None)
        self.forecasters = [loaded[word] if word in loaded else _fresh(word, steps, configs) for word in self.words]

    def change(self, *, method: str | None, minutes: float | None, samples: int | None) -> None:
        """Set these options in all models that have them; refuse an option that none has."""
        from logsparse.errors import ConfigError

        trained = [self.refit or not saved for saved in self.saved]
        if method is not None and not self._set("method", method, trained=False):
            raise ConfigError(
                "--method is for a fitted model that is tested as it is.",
                got=f"--method {method}, and {'a model that is fitted here' if any(trained) else 'no network'}",
                hint="fit it first: `logsparse fit`, with --set method=... if it needs another training.",
            )
        if minutes is not None and not self._set("minutes", minutes, trained=True):
            raise ConfigError(
                "--minutes limits the training.",
                got=f"--minutes {minutes:g}, but nothing is trained",
                hint="leave it out, or test `logsparse`, or a fitted model with --refit.",
            )
        if samples is not None and not self._set("samples", samples):
            raise ConfigError(
                "--samples is for networks, which draw sample paths.",
                got=f"--samples {samples} for {', '.join(self.words)}",
                hint="leave it out, or test `logsparse`, `deepar` or `deepstate`.",
            )
        for forecaster in self.forecasters:
            forecaster.check()

    def _set(self, name: str, value: object, *, trained: bool | None = None) -> bool:
        """Set an option of all networks, or of those that are trained here or not; return False if there is none."""
        networks = []
        for forecaster, saved in zip(self.forecasters, self.saved, strict=True):
            here = self.refit or not saved
            if trained in (None, here):
                networks += [one for one in _members(forecaster, fitted=not here) if hasattr(type(one), "method")]
        for network in networks:
            setattr(network, name, value)
        return bool(networks)

    def columns(self) -> Columns:
        """Return the columns that the fitted ones know, with the covariates and static columns of all."""
        known: dict[str, Any] = {}
        for forecaster in self.forecasters:
            for name, value in getattr(forecaster, "columns_", {}).items():
                joins = name in ("covariates", "past_covariates", "static") and known.get(name)
                known[name] = list(dict.fromkeys([*known[name], *(value or [])])) if joins else known.get(name) or value
        return cast("Columns", known)

    def refuse_unfitted(self) -> None:
        """Raise unless all models are tested as they are: one that is fitted here would know one part only."""
        from logsparse.errors import ConfigError

        word = next((word for word, saved in zip(self.words, self.saved, strict=True) if not saved), None)
        if word is not None or self.refit:
            raise ConfigError(
                "A folder of parts is tested with fitted models.",
                got="--refit" if word is None else f"{word}, which is a name",
                hint="fit the model first: `logsparse fit DATA --until TIME -o model`.",
            )

    def labels(self) -> list[str]:
        """Return the name of the folder of a fitted model, and the class of the others."""
        pairs = zip(self.words, self.saved, self.forecasters, strict=True)
        return [Path(word).resolve().name if saved else _label(model) for word, saved, model in pairs]


def _members(forecaster: Forecaster, *, fitted: bool) -> list[Forecaster]:
    """Return the forecaster, or the members of an ensemble: the fitted ones, or those that will be fitted."""
    from logsparse.ensemble import Ensemble

    if not isinstance(forecaster, Ensemble):
        return [forecaster]
    members = forecaster.members_.values() if fitted else forecaster.members
    return [one for member in members if not isinstance(member, str) for one in _members(member, fitted=fitted)]


def _label(forecaster: Forecaster) -> str:
    return "+".join(type(member).__name__ for member in _members(forecaster, fitted=False))


def _is_saved(model: str) -> bool:
    """Return True if MODEL is a path and not a name; the path of a model wins over a name."""
    path = Path(model)
    return (path / "config.json").exists() or (known_as(model) is None and (path.exists() or _is_path(model)))


def _is_path(model: str) -> bool:
    return os.sep in model and "," not in model


def _load(word: str, horizon: int | None) -> Forecaster:
    from logsparse.errors import ConfigError
    from logsparse.registry import load

    forecaster = load(Path(word))
    say_of_training(forecaster, Path(word))
    if horizon not in (None, forecaster.horizon):
        raise ConfigError(
            "--horizon must be the one that the model was fitted for.",
            got=f"{horizon} for a model of {forecaster.horizon}",
            hint="leave it out, or fit another model.",
        )
    return forecaster


def _configs(preset: str, words: Sequence[str], fresh: Sequence[str]) -> dict[str, Config]:
    """Return the settings of the preset for each network that is fitted here and has them."""
    from logsparse import presets
    from logsparse.errors import ConfigError

    if not fresh:
        raise ConfigError(
            "--preset is for a model that is fitted here, by its name.",
            got=f"--preset {preset} and the folder {', '.join(words)}",
            hint="leave it out, or test `logsparse` or `deepar`.",
        )
    # Without any that has them, the first is refused by name.
    having = [name for name in fresh if name in presets.MODELS] or fresh[:1]
    return {name: presets.named(preset, name) for name in having}


def _fresh(word: str, horizon: int | None, configs: Mapping[str, Config]) -> Forecaster:
    from dataclasses import replace

    from logsparse.ensemble import Ensemble
    from logsparse.errors import ConfigError
    from logsparse.registry import named

    if horizon is None:
        raise ConfigError("A model that is fitted here needs --horizon.", got="none", hint="try --horizon 24.")
    if "+" in word:
        return Ensemble([_fresh(name, horizon, configs) for name in word.split("+")])
    config = configs.get(known_as(word) or word)
    return named(word, horizon) if config is None else named(word, horizon, config=replace(config, horizon=horizon))
