"""A fitted model, and a history if another than the fitted one -> a file of quantiles of the next steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logsparse.commands.options import (
    Future,
    History,
    MethodName,
    Model,
    check_out,
    listed,
    print_rows,
    set_method,
    write_table,
)


def predict(
    model: Model,
    data: History = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="where to write the forecast")] = Path("forecast.parquet"),
    quantiles: Annotated[str | None, typer.Option(help="levels such as 0.1,0.5,0.9 [0.1 to 0.9]")] = None,
    samples: Annotated[
        int | None, typer.Option(help="sample paths drawn for each series [the model's, or as many as needed]")
    ] = None,
    method: MethodName = None,
    future: Future = None,
) -> None:
    """Forecast the steps after the end of DATA, or of the data that MODEL was fitted on."""
    from logsparse.data.columns import TIME
    from logsparse.errors import ConfigError
    from logsparse.params import check_levels
    from logsparse.registry import load

    check_out(out)
    _check_apart(out, model, data, future)
    asked = None if quantiles is None else check_levels(_levels(quantiles))
    forecaster = load(model)
    levels = forecaster.check_quantiles(asked)
    if samples is not None:
        if not hasattr(forecaster, "samples"):
            raise ConfigError("--samples is for models that draw.", got=type(forecaster).__name__, hint="leave it out.")
        forecaster.samples = samples
        forecaster.check()
    if method is not None:
        set_method(forecaster, method)
    (found,) = forecaster.summaries([forecaster.history(data, future)], levels)
    table = found.table()
    write_table(table, out)
    rows = [
        ("series", f"{len(found.panel):,}"),
        ("steps", f"{forecaster.horizon:,}, from {table[TIME].min()!s} to {table[TIME].max()!s}"),
        ("columns", ", ".join(table.columns)),
    ]
    print_rows(rows)


def _check_apart(out: Path, model: Path, data: Path | None, future: Path | None) -> None:
    """A forecast takes the place of nothing that it was made from."""
    from logsparse.errors import ConfigError

    place = out.resolve()
    if place in [path.resolve() for path in (data, future) if path] or model.resolve() in place.parents:
        raise ConfigError(
            "A forecast is written beside what it is made from, not over it or into it.",
            got=str(out),
            hint="give another name with -o.",
        )


def _levels(text: str) -> list[float]:
    from logsparse.errors import ConfigError

    try:
        return [float(part) for part in listed(text) or []]
    except ValueError as error:
        raise ConfigError(
            "--quantiles must be levels between 0 and 1.", got=repr(text), hint="write --quantiles 0.1,0.5,0.9."
        ) from error
