"""Folders of fitted models -> an HTTP server and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL ...", help="folders of fitted models")],
    host: Annotated[
        str, typer.Option(help="address to listen on; others than this machine's need a token")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on; 0 takes a free one")] = 8000,
    workers: Annotated[int, typer.Option(help="number of processes")] = 1,
    token_file: Annotated[Path | None, typer.Option(help="file with the token that clients must send [none]")] = None,
    max_body: Annotated[str, typer.Option(help="largest request")] = "50MB",
    max_series: Annotated[int, typer.Option(help="largest number of series of a request")] = 10_000,
    timeout: Annotated[float, typer.Option(help="seconds for a request to arrive, and again for its answer")] = 60.0,
) -> None:
    """Serve forecasts of fitted models over HTTP, with a page at /, until Ctrl-C or SIGTERM."""
    from logsparse.serving.server import serve as run

    run(
        models,
        host=host,
        port=port,
        workers=workers,
        token_file=token_file,
        max_body=max_body,
        max_series=max_series,
        timeout=timeout,
    )
