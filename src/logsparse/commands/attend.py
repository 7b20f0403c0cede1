"""A fitted model and a series -> a picture of the attention of its forecast, and the times of most weight."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logsparse.commands.options import Future, History, Model, number, print_table, say

if TYPE_CHECKING:
    from logsparse.data.panel import SeriesId

# Rows of the printed table; the picture shows all weights.
_MOST = 10


def attend(
    model: Model,
    data: History = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="picture in svg, png or pdf")] = Path("attention.svg"),
    series: Annotated[str | None, typer.Option(help="which series [the first]")] = None,
    layer: Annotated[int, typer.Option(help="which layer, from 0; -1 is the last")] = -1,
    head: Annotated[int | None, typer.Option(help="which head, from 0 [the mean over all]")] = None,
    step: Annotated[int, typer.Option(help="which step of the forecast, from 0")] = 0,
    matrix: Annotated[bool, typer.Option("--matrix", help="draw the weights of every position of the window")] = False,
    future: Future = None,
) -> None:
    """Draw what a forecast attends to: attention weights below the history, at the same times."""
    from logsparse.errors import ConfigError
    from logsparse.forecaster import LogSparse
    from logsparse.pictures import check_picture, save_figure
    from logsparse.registry import load

    check_picture(out)
    forecaster = load(model)
    if not isinstance(forecaster, LogSparse):
        raise ConfigError(
            "Only a model with attention can show it.",
            got=type(forecaster).__name__,
            hint="fit one with `logsparse fit`.",
        )
    name = None if series is None else _named(series, forecaster.history(data, future).ids)
    place: dict[str, Any] = {"series": name, "layer": layer, "head": head, "step": None if matrix else step}
    attention = forecaster.attention(data, future=future, **place)
    save_figure(attention.plot(), out)
    say(f"{attention}")
    say(attention.caption())
    say(f"wrote {out}")
    top = attention.top(_MOST)
    print_table(top.columns, [[str(time), number(y), number(weight)] for time, y, weight in top.iter_rows()])


def _named(text: str, ids: tuple[SeriesId, ...]) -> SeriesId:
    """Return the id with this text: on the command line a number and its text look alike."""
    return next((name for name in ids if str(name) == text), text)
