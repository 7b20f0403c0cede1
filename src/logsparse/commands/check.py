"""A file, and optionally a model -> what was recognised in it and what is wrong with it, as text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logsparse.commands.options import (
    FINDINGS,
    Data,
    DayFirst,
    FreqText,
    IdCol,
    TargetCol,
    TimeCol,
    TimeFormat,
    Tz,
    columns,
    given,
    print_rows,
    source,
)
from logsparse.errors import escaped

FAIL_ON = ("bad", "warning", "never")
# Findings that are printed; --json prints all of them.
SHOWN = 50


def check(
    data: Data,
    model: Annotated[Path | None, typer.Option(help="folder of a fitted model to compare DATA with")] = None,
    now: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="time that last values are compared with, or the word now [none]"),
    ] = None,
    stale: Annotated[int | None, typer.Option(help="steps that a last value may be old [one season]")] = None,
    flat: Annotated[int | None, typer.Option(help="last values in a row that may be equal [one season]")] = None,
    gaps: Annotated[float | None, typer.Option(help="share of the last steps that may be missing [0.2]")] = None,
    outlier: Annotated[
        float | None, typer.Option(help="distance of an outlier, in widths of the middle 80 % [10]")
    ] = None,
    level: Annotated[
        float | None, typer.Option(help="change of the mean that counts, in standard deviations [6]")
    ] = None,
    fail_on: Annotated[str, typer.Option(help="findings that make the exit code 3: bad, warning or never")] = "bad",
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
    id_col: IdCol = None,
    time_col: TimeCol = None,
    target_col: TargetCol = None,
    freq: FreqText = None,
    tz: Tz = None,
    time_format: TimeFormat = None,
    dayfirst: DayFirst = None,
) -> None:
    """Print what was recognised in DATA, and what is wrong with its series.

    Exit codes: 0 if nothing was found at or above --fail-on, 3 if something was, 2 for an error.
    """
    import json

    from logsparse.data.findings import Rules
    from logsparse.errors import ConfigError, suggest
    from logsparse.evaluation.check import examined, rows_of
    from logsparse.registry import load

    if fail_on not in FAIL_ON:
        hint = suggest(fail_on, FAIL_ON, "leave it out for bad.")
        raise ConfigError(f"--fail-on must be one of: {', '.join(FAIL_ON)}.", got=repr(fail_on), hint=hint)
    forecaster = None if model is None else load(model)
    names = given(id_col=id_col, time_col=time_col, target_col=target_col, freq=freq)
    named = columns(**names, tz=tz, time_format=time_format, dayfirst=dayfirst)
    rules = Rules(**given(stale=stale, flat=flat, gaps=gaps, outlier=outlier, level=level))
    health, facts = examined(source(data), forecaster, named, rules, now)
    if as_json:
        typer.echo(json.dumps({"data": facts, **health.to_dict()}, indent=2))
    else:
        print_rows([*rows_of(facts), ("health", health.summary())])
        for line in health.lines(SHOWN):
            typer.echo(escaped(line))
    if health.worst() is not None and fail_on in ("warning", health.worst()):
        raise typer.Exit(FINDINGS)
