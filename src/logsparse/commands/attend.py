"""A fitted model and a series -> a picture of what its forecast looks at, and the times that weigh most."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from logsparse.commands.options import Future, History, Model, number, print_table, say

if TYPE_CHECKING:
    from logsparse.data.panel import SeriesId

# Rows printed of all the weights; the picture shows them all.
_MOST = 10


def attend(
    model: Model,
    data: History = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="picture in svg, png or pdf")] = Path("attention.svg"),
    series: Annotated[str | None, typer.Option(help="which series [the first]")] = None,
    layer: Annotated[int, typer.Option(help="which layer, from 0; -1 is the last")] = -1,
    head: Annotated[int | None, typer.Option(help="which head, from 0 [the mean over all]")] = None,
    step: Annotated[int, typer.Option(help="which step of the forecast looks, from 0")] = 0,
    matrix: Annotated[bool, typer.Option("--matrix", help="how every position of the window looks")] = False,
    future: Future = None,
) -> None:
    """Draw what a forecast looks at: attention weights under the history, at the same times."""
    from logsparse.data.columns import TIME
    from logsparse.errors import ConfigError
    from logsparse.forecaster import LogSparse
    from logsparse.pictures import check_picture, save_figure
    from logsparse.registry import load

    check_picture(out)
    forecaster = load(model)
    if not isinstance(forecaster, LogSparse):
        raise ConfigError(
            "Attention is shown of a model that has some.",
            got=type(forecaster).__name__,
            hint="fit one with `logsparse fit`.",
        )
    history = forecaster.history(data, future)
    name = None if series is None else _named(series, history.ids)
    found = forecaster.attention(history, series=name, layer=layer, head=head, step=None if matrix else step)
    save_figure(found.plot(), out)
    say(f"{found}")
    say(f"wrote {out}")
    if not matrix:
        top = found.table().sort("weight", descending=True).head(_MOST)
        print_table([TIME, "value", "weight"], [[str(t), number(y), number(w)] for _, t, y, w in top.iter_rows()])


def _named(text: str, ids: tuple[SeriesId, ...]) -> SeriesId:
    """The series whose id reads like this: a word of the command line does not say whether it is a number."""
    return next((name for name in ids if str(name) == text), text)
