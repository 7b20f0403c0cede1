"""A table -> a folder of parts, each series whole in one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logsparse.commands.options import Data, IdCol, given, print_rows, say, source


def shard(
    data: Data,
    out: Annotated[Path, typer.Option("-o", "--out", help="new or empty folder to write the parts to")],
    parts: Annotated[int | None, typer.Option(help="number of parts, a few per process [a million rows each]")] = None,
    id_col: IdCol = None,
) -> None:
    """Write DATA as a folder of parquet parts, for `predict`, `backtest` and `check` of any number of series.

    Each series lies whole in one part, which a hash of its id says: other tables of the same series, sharded into the
    same number of parts, match part by part. Memory does not grow with DATA, unless it is csv.
    """
    from logsparse.cluster.shards import shard as run
    from logsparse.evaluation.check import span

    found = run(source(data), out, parts=parts, **given(id_col=id_col))
    say(f"wrote {out}")
    counts = list(found.values())
    print_rows([("parts", f"{len(counts):,}"), ("series", f"{sum(counts):,}"), ("series per part", span(counts))])
