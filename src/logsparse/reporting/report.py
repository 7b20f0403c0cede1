"""Result frame of a backtest, and the model if at hand -> one HTML file that opens anywhere and can be mailed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logsparse.checks import a_path
from logsparse.data.files import check_writable
from logsparse.errors import ConfigError, DataError
from logsparse.forecast import Forecaster
from logsparse.reporting.numbers import Results
from logsparse.reporting.sections import page
from logsparse.storage import unwritable, write_whole

TEMPLATE = "report.html.j2"


def report(results: Any, out: str | Path, *, model: Forecaster | None = None, title: str | None = None) -> Path:
    """Write what a backtest showed to `out`, and give its path.

    `results` is the frame of `backtest` or the path of its file. Scores against seasonal naive, error by step,
    calibration, the best, median and worst series, tables; with `model`, also its losses, attention and settings.
    The file needs no network and holds no script.
    """
    path = a_path("A report is written to the path of a file.", out, hint='write report(frame, "report.html").')
    _check_path(path)
    if model is not None and not isinstance(model, Forecaster):
        raise ConfigError(
            "model must be the forecaster that made the results.",
            got=f"{type(model).__name__}",
            hint="pass the fitted model itself, or leave it out.",
        )
    write_whole(path, _rendered(page(Results(results), model, title)).encode(), "The report")
    return path


def _rendered(content: dict[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        autoescape=True, loader=folder, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(TEMPLATE).render(content)


def _check_path(path: Path) -> None:
    if path.suffix.lower() not in (".html", ".htm"):
        raise DataError("A report is written as html.", got=f"{path}", hint="end the name in .html.")
    if path.is_dir():
        raise unwritable("The report", path, "a folder of that name is there")
    check_writable(path.parent, folder=True)
