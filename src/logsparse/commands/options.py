"""The options that several commands share, and what they mean once they are given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from logsparse.config import Method
    from logsparse.data.columns import Columns
    from logsparse.forecast import Forecaster

_FILE = "parquet, csv or feather file, or folder of parquets"

Data = Annotated[Path, typer.Argument(metavar="DATA", help=_FILE)]
History = Annotated[
    Path | None, typer.Argument(metavar="[DATA]", help=f"{_FILE} [the last steps that the model was fitted on]")
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="folder of a fitted model")]
Future = Annotated[Path | None, typer.Option(help="file of the covariates' values in the steps to forecast")]
Until = Annotated[str | None, typer.Option(help="time of the last step used [each series' end]")]
Preset = Annotated[
    str | None, typer.Option(help="settings of a run of the paper, such as electricity-f, or paper for any set")
]
Minutes = Annotated[float | None, typer.Option(help="stop training after so many [no limit]")]
MethodName = Annotated[
    str | None, typer.Option("--method", help="how a network forecasts, such as direct [as it was fitted to]")
]
IdCol = Annotated[str | None, typer.Option(help="column that names the series [unique_id]")]
TimeCol = Annotated[str | None, typer.Option(help="column of times [ds]")]
TargetCol = Annotated[str | None, typer.Option(help="column of values [y]")]
FreqText = Annotated[str | None, typer.Option("--freq", help="step of the times, such as 15min, h, D, ME [inferred]")]


def columns(**given: Any) -> Columns:
    """Those that were given; the rest keep their usual names."""
    return cast("Columns", {name: value for name, value in given.items() if value is not None})


def set_method(forecaster: Forecaster, method: str) -> None:
    """Another way to forecast, of a network that was fitted for it."""
    from logsparse.errors import ConfigError
    from logsparse.forecaster import LogSparse

    if not isinstance(forecaster, LogSparse):
        raise ConfigError("--method is for networks.", got=type(forecaster).__name__, hint="leave it out.")
    forecaster.method = cast("Method", method)


def listed(text: str | None) -> list[str] | None:
    """a,b -> a and b."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
