"""Words of the command line -> a table of what a pattern costs, and a picture of it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

# What is counted and drawn within seconds.
LONGEST = 1_000_000


class Kind(StrEnum):
    FULL = "full"
    LOGSPARSE = "logsparse"
    LOCAL = "local"
    RESTART = "restart"


def pattern(
    kind: Annotated[Kind, typer.Argument(help="The rule that says which cells a cell attends to.")],
    length: Annotated[int, typer.Option(help="Number of cells of the input.")],
    width: Annotated[
        int | None,
        typer.Option(help="Cells of the dense window (local; restart: log2 of --sub if left out)."),
    ] = None,
    sub: Annotated[int | None, typer.Option(help="Cells of a subsequence (restart).")] = None,
    base: Annotated[int | None, typer.Option(help="Base of the powers (2 if left out; not for full).")] = None,
    dense_rows: Annotated[int, typer.Option(help="First rows that attend to their whole past.")] = 0,
    draw: Annotated[Path | None, typer.Option(help="Also draw it here: a name in .svg, .png or .pdf.")] = None,
) -> None:
    """Show what an attention pattern costs and reaches, and draw it."""
    from logsparse.attention.draw import draw as draw_to
    from logsparse.attention.draw import summary
    from logsparse.attention.pattern import Pattern
    from logsparse.errors import ConfigError

    if length > LONGEST:
        raise ConfigError(
            f"--length must be at most {LONGEST:,}.", got=f"{length:,}", hint="patterns look alike at any length."
        )
    wanted = {
        "full": (),
        "logsparse": ("base",),
        "local": ("width", "base"),
        "restart": ("sub", "width", "base"),
    }
    needed = {"local": "width", "restart": "sub"}
    given = {name: value for name, value in (("width", width), ("sub", sub), ("base", base)) if value is not None}
    for name in given.keys() - set(wanted[kind]):
        takes = " and ".join(f"--{option}" for option in wanted[kind]) or "no --width, --sub or --base"
        raise ConfigError(f"The pattern {kind} takes {takes}.", got=f"--{name} {given[name]}", hint="leave it out.")
    if (missing := needed.get(kind)) and missing not in given:
        raise ConfigError(
            f"The pattern {kind} needs --{missing}.",
            got="none",
            hint=f"try --{missing} {7 if missing == 'width' else max(1, length // 8)}.",
        )
    settings = {"sub_length" if name == "sub" else name: value for name, value in given.items()}
    chosen = Pattern.from_dict({"rule": str(kind), **settings, "dense_rows": dense_rows})
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    for row in summary(chosen, length):
        table.add_row(*row)
    console = Console()
    console.print(table)
    if draw is not None:
        console.print(f"drawn: {draw_to(chosen, length, draw)}", soft_wrap=True)
