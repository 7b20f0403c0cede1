"""A fitted model, and optionally another history -> a file with quantiles of the next steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from logsparse.commands.options import (
    FINDINGS,
    STREAM,
    Format,
    Future,
    History,
    Jobs,
    MethodName,
    Model,
    Quantiles,
    Ray,
    Samples,
    check_format,
    check_out,
    engine,
    folders,
    given,
    levels_of,
    print_rows,
    say,
    say_of_training,
    source,
    write_table,
)

if TYPE_CHECKING:
    from logsparse.data.health import OnBad

# Series that are listed as left out.
LISTED = 20
# Series in a picture, from the first on.
DRAWN = 12


def predict(
    model: Model,
    data: History = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="file to write to, or -; if DATA is a folder of parts, a folder")
    ] = Path("forecast.parquet"),
    format_: Format = None,
    horizon: Annotated[int | None, typer.Option(help="number of steps, at most that of MODEL [that of MODEL]")] = None,
    quantiles: Quantiles = None,
    samples: Samples = None,
    method: MethodName = None,
    future: Future = None,
    on_bad: Annotated[
        str,
        typer.Option(
            help="what to do with series that have a bad finding (see `logsparse check`): warn, skip them (exit code 3 "
            "if there are any), or fail (nothing is written; of a folder of parts, no part with one)"
        ),
    ] = "warn",
    draw: Annotated[
        Path | None, typer.Option(help=f"picture of the first {DRAWN} series, after their history: svg, png or pdf")
    ] = None,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="write local times with their offset from UTC, as in 02:00+0100")
    ] = False,
    jobs: Jobs = None,
    ray: Ray = None,
) -> None:
    """Forecast the next steps. They follow the end of DATA, or of the data that MODEL was fitted on.

    If DATA is a folder of parts (see `logsparse shard`) and -o a folder, one part is forecast at a time per process;
    the same command continues after an interruption.

    Exit codes: 0 if all series were forecast, 3 if --on-bad skip left out some, 2 for an error.
    """
    from dataclasses import replace

    from logsparse.data.localtime import in_zone
    from logsparse.params import steps_asked
    from logsparse.registry import load

    asked = levels_of(quantiles)
    if both := folders(data, out, jobs, ray):
        check_format(format_, out)
        _refuse_for_parts({"--draw": draw is not None, "--offsets": offsets})
        _check_separate(out, model, data, future)
        settings = given(horizon=horizon, quantiles=asked, samples=samples, method=method, future=future)
        _predict_parts(model, *both, {**settings, "on_bad": on_bad, "jobs": jobs, "ray": engine(ray)})
        return
    check_out(out, format_)
    if draw is not None:
        from logsparse.pictures import check_picture

        check_picture(draw)
    if out != STREAM:
        _check_separate(out, model, data, future)
    forecaster = load(model, **given(samples=samples, method=method))
    say_of_training(forecaster, model)
    levels, steps = forecaster.check_quantiles(asked), steps_asked(horizon, forecaster.horizon)
    past, health = forecaster.screened(None if data is None else source(data), cast("OnBad", on_bad))
    (forecast,) = forecaster.summaries([forecaster.history(past, future, steps, health.bad)], levels)
    if offsets:
        forecast = replace(forecast, panel=in_zone(forecast.panel))
    shown = forecast.first(steps)
    table = shown.table()
    write_table(table, out, format_)
    if draw is not None:
        from logsparse.pictures import save_figure

        save_figure(shown.plot(list(shown.panel.ids[:DRAWN])), draw)
        say(f"wrote {draw}")
    ids, times = table.to_series(0), table.to_series(1)
    rows = [
        ("series", f"{ids.n_unique():,}"),
        ("steps", f"{horizon or forecaster.horizon:,}, from {times.min()!s} to {times.max()!s}"),
        ("columns", ", ".join(table.columns)),
    ]
    print_rows(rows, beside=out)
    if (twice := times.filter(table.select(ids.name, times.name).is_duplicated())).len():
        say(f"{twice.min()!s} comes twice, first in summer time: the clock goes back; --offsets tells the two apart")
    skipped = health.only("bad").reasons() if on_bad == "skip" else []
    _list_skipped(skipped, len(skipped))
    rest = health.only("warning") if on_bad == "skip" else health
    if not rest.ok:
        say(rest.summary() + (f"; `logsparse check {data} --model {model}` lists them" if data else ""))
    if skipped:
        raise typer.Exit(FINDINGS)


def _predict_parts(model: Path, data: Path, out: Path, settings: dict[str, Any]) -> None:
    from logsparse.cluster.jobs import predict_shards

    done = predict_shards(model, data, out, **settings)
    say(f"wrote {done.made:,} parts to {out}" if done.made else f"{out} is complete already")
    print_rows([("series", f"{done.series:,}"), ("parts", f"{done.parts:,}"), ("rows", f"{done.rows:,}")])
    _list_skipped(done.reasons, done.left_out)
    if done.left_out:
        raise typer.Exit(FINDINGS)


def _refuse_for_parts(options: Mapping[str, bool]) -> None:
    """Raise for an option that is for one table only."""
    from logsparse.errors import ConfigError

    if asked := [name for name, is_given in options.items() if is_given]:
        raise ConfigError(
            f"A folder of parts is forecast without {' and '.join(options)}.",
            got=" and ".join(asked),
            hint="leave it out, or forecast one part: its file as DATA, and a file as -o.",
        )


def _list_skipped(reasons: Sequence[str], count: int) -> None:
    for reason in reasons[:LISTED]:
        say(f"not forecast: {reason}")
    if count > len(reasons[:LISTED]):
        say(f"and {count - len(reasons[:LISTED]):,} more")


def _check_separate(out: Path, model: Path, data: Path | None, future: Path | None) -> None:
    """Refuse to write the forecast over its inputs, or into the folder of the model."""
    from logsparse.errors import ConfigError

    target = out.resolve()
    if target in [path.resolve() for path in (data, future) if path] or model.resolve() in target.parents:
        raise ConfigError(
            "A forecast must not be written over its inputs or into the folder of its model.",
            got=str(out),
            hint="give another name with -o.",
        )
