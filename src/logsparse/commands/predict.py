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
    write_table,
)


def predict(
    model: Model,
    data: History = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="file to write the forecast to")] = Path("forecast.parquet"),
    quantiles: Quantiles = None,
    samples: Samples = None,
    method: MethodName = None,
    future: Future = None,
) -> None:
    """Forecast the next steps. They follow the end of DATA, or of the data that MODEL was fitted on."""
    from logsparse.data.columns import ID, TIME
    from logsparse.data.grid import from_native
    from logsparse.registry import load

    check_out(out)
    _check_separate(out, model, data, future)
    levels = levels_of(quantiles)
    forecaster = load(model, **given(samples=samples, method=method))
    table, _ = from_native(forecaster.predict(data, quantiles=levels, future=future), ids=ID)
    write_table(table, out)
    rows = [
        ("series", f"{table[ID].n_unique():,}"),
        ("steps", f"{forecaster.horizon:,}, from {table[TIME].min()!s} to {table[TIME].max()!s}"),
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
