"""A fitted model, and optionally another history -> a file with quantiles of the next steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logsparse.commands.options import (
    Future,
    History,
    MethodName,
    Model,
    Quantiles,
    Samples,
    check_out,
    given,
    levels_of,
    print_rows,
    say_of_training,
    write_table,
)


def predict(
    model: Model,
    data: History = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="file to write the forecast to")] = Path("forecast.parquet"),
    horizon: Annotated[int | None, typer.Option(help="number of steps, at most that of MODEL [that of MODEL]")] = None,
    quantiles: Quantiles = None,
    samples: Samples = None,
    method: MethodName = None,
    future: Future = None,
) -> None:
    """Forecast the next steps. They follow the end of DATA, or of the data that MODEL was fitted on."""
    from logsparse.data.grid import from_native
    from logsparse.registry import load

    check_out(out)
    _check_separate(out, model, data, future)
    levels = levels_of(quantiles)
    forecaster = load(model, **given(samples=samples, method=method))
    say_of_training(forecaster, model)
    table, _ = from_native(forecaster.predict(data, horizon=horizon, quantiles=levels, future=future))
    write_table(table, out)
    ids, times = table.to_series(0), table.to_series(1)
    rows = [
        ("series", f"{ids.n_unique():,}"),
        ("steps", f"{horizon or forecaster.horizon:,}, from {times.min()!s} to {times.max()!s}"),
        ("columns", ", ".join(table.columns)),
    ]
    print_rows(rows)


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
