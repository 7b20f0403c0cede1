"""Models, an address and limits -> a running HTTP server: uvicorn, one process or several, until it is told to end."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logsparse.errors import ConfigError, DataError, NotFittedError, above_zero, shown, whole
from logsparse.forecast import Forecaster
from logsparse.process import usable_cores
from logsparse.registry import load

if TYPE_CHECKING:
    import uvicorn

    from logsparse.serving.guard import Guard

_NEEDED = ("fastapi", "uvicorn", "plotly")
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
# Characters of a token: fewer are guessed.
_SHORTEST_TOKEN = 16
# Tells the processes of a server with several workers what to serve: paths and limits, never the token itself.
_ENVIRONMENT = "LOGSPARSE_SERVE"
# Longest time that running requests get when the server ends, in seconds.
_DRAIN = 10
# A worker that gives no sign of life for so long is replaced, in seconds; loading a model on a busy machine is slow.
_HEALTH = 30

log = logging.getLogger("logsparse.serve")

Model = Forecaster | str | Path


def serve(
    model: Model | Sequence[Model] | Mapping[str, Model],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    token_file: str | Path | None = None,
    max_body: int | str = "50MB",
    max_series: int = 10_000,
    timeout: float = 60.0,
) -> None:
    """Serve fitted models over HTTP until Ctrl-C or SIGTERM; needs `pip install logsparse[serve]`.

    Models are loaded and warm before the port is open. `/` is a page, `/docs` describes the interface.

    Parameters
    ----------
    model
        A fitted forecaster or the folder of a saved one, a list of them, or a dictionary from names to them. Without a
        dictionary, a model has the name of its folder or of its class.
    host
        Address to listen on. Any other than one of this machine needs a token.
    port
        Port to listen on; 0 takes a free one.
    workers
        Number of processes, each with models of its own; more than one needs folders.
    token_file
        File with a token of at least 16 characters, which clients must send as `Authorization: Bearer ...`.
    max_body
        Largest request, in bytes or as text such as "50MB".
    max_series
        Largest number of series of a request.
    timeout
        Seconds for a request to arrive, and again for its answer.

    Raises
    ------
    ConfigError, DataError, NotFittedError
        If a parameter breaks a rule, the extra is not installed, a model is damaged or not fitted, or the address
        cannot be listened on.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.serve("model", host="0.0.0.0")
    Traceback (most recent call last):
    logsparse.errors.ConfigError: A server that others can reach must have a token. Got host='0.0.0.0' and no \
token_file. Hint: write a long random text into a file and pass token_file=, or listen on 127.0.0.1.
    """
    check_extra()
    count = whole("workers", workers, hint="count the processes.")
    place = whole("port", port, least=0, most=65_535, hint="take a free one, such as 8000.")
    token = None if token_file is None else _token(Path(token_file))
    if token is None and not _is_loopback(host):
        raise ConfigError(
            "A server that others can reach must have a token.",
            got=f"host={host!r} and no token_file",
            hint="write a long random text into a file and pass token_file=, or listen on 127.0.0.1.",
        )
    limits = {
        "max_body": _bytes(max_body),
        "max_series": whole("max_series", max_series, hint="count the series of a request."),
        "timeout": above_zero("timeout", timeout, hint="count the seconds of a request."),
    }
    named = _named(model)
    if count > 1 and any(isinstance(one, Forecaster) for one in named.values()):
        raise ConfigError(
            "Several workers load the models themselves.",
            got=f"workers={count} and a model in memory",
            hint="save the model, and serve its folder.",
        )
    listener = listen(host, place)
    try:
        if count == 1:
            _run_here(_app(named, token, limits), listener)
        else:
            # Loaded here too, so that a damaged folder is reported once, before any worker starts.
            for one in named.values():
                _loaded(one)
            paths = {name: str(Path(str(one)).resolve()) for name, one in named.items()}
            secret = None if token_file is None else str(Path(token_file).resolve())
            _run_workers({"models": paths, "token_file": secret, "limits": limits, "workers": count}, listener)
    finally:
        listener.close()


def check_extra() -> None:
    """Raise if what the extra `serve` installs is missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(
            "A server needs packages that the library itself does not.",
            got=f"no {', '.join(missing)}",
            hint="pip install logsparse[serve].",
        )


def worker_app() -> Guard:
    """Return the application of one of several workers; the environment says what it serves."""
    told = json.loads(os.environ[_ENVIRONMENT])
    token = None if told["token_file"] is None else _token(Path(told["token_file"]))
    return _app(told["models"], token, told["limits"])


def _app(models: Mapping[str, Model], token: str | None, limits: Mapping[str, Any]) -> Guard:
    from logsparse.serving.app import Settings, create_app

    return create_app({name: _loaded(one) for name, one in models.items()}, Settings(token=token, **limits))


def _loaded(model: Model) -> Forecaster:
    forecaster = model if isinstance(model, Forecaster) else load(model)
    if not hasattr(forecaster, "panel_"):
        raise NotFittedError(forecaster)
    return forecaster


def _named(given: Model | Sequence[Model] | Mapping[str, Model]) -> dict[str, Model]:
    """Return the models by name: that of the folder or of the class, numbered where two are equal."""
    from logsparse.evaluation.backtest import numbered

    if isinstance(given, Mapping):
        return dict(given)
    models: list[Model] = [given] if isinstance(given, (Forecaster, str, Path)) else list(given)
    names = [type(one).__name__ if isinstance(one, Forecaster) else Path(one).resolve().name for one in models]
    return dict(zip(numbered(names), models, strict=True))


def _token(path: Path) -> str:
    rule = f"A token must be a line of at least {_SHORTEST_TOKEN} printable characters."
    hint = "write one with: python -c 'import secrets; print(secrets.token_urlsafe())' > token"
    try:
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "text that is not ASCII"
        raise ConfigError(rule, got=f"{path}: {reason}", hint=hint) from error
    if len(text) < _SHORTEST_TOKEN or not re.fullmatch(r"[!-~]+", text):
        # What it is stays out of messages.
        raise ConfigError(rule, got=f"{path} with {len(text)} characters", hint=hint)
    return text


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bytes(size: int | str) -> int:
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-zA-Z]*)", str(size).strip())
    if match is None or match[2].lower() not in _UNITS or float(match[1]) * _UNITS[match[2].lower()] < 1:
        raise ConfigError("max_body must be a size.", got=shown(size), hint="write it like 50MB.")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def listen(host: str, port: int) -> socket.socket:
    """Reserve the address; nothing is accepted before the models are warm."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's delay, 40 ms per answer, only on sockets that name TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise DataError(
            "The address must be one of this machine, and free.",
            got=f"{host}:{port}: {getattr(error, 'strerror', None) or error}",
            hint="choose another --port, or end the server that has it.",
        ) from error
    listener.set_inheritable(True)
    return listener


def configured(app: Any, listener: socket.socket, **more: Any) -> uvicorn.Config:
    """Return uvicorn's settings for an application on this socket."""
    import uvicorn

    from logsparse.serving.guard import Protocol

    host, port = listener.getsockname()[:2]
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=_DRAIN,
        backlog=512,
        **more,
    )


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _run_here(app: Guard, listener: socket.socket) -> None:
    import uvicorn

    server = uvicorn.Server(configured(app, listener))
    _say(f"serving {', '.join(app.names)} at {_address(listener)} (Ctrl-C ends it)")
    with suppress(KeyboardInterrupt):  # uvicorn raises the signal again after it has drained
        server.run(sockets=[listener])
    _say("ended")


def _run_workers(told: Mapping[str, Any], listener: socket.socket) -> None:
    from uvicorn.supervisors import Multiprocess

    os.environ[_ENVIRONMENT] = json.dumps(told)
    # Workers share the cores.
    for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ.setdefault(name, str(max(1, usable_cores() // told["workers"])))
    config = configured(
        "logsparse.serving.server:worker_app",
        listener,
        factory=True,
        workers=told["workers"],
        timeout_worker_healthcheck=_HEALTH,
    )
    _say(f"serving {', '.join(told['models'])} at {_address(listener)} by {told['workers']} processes (Ctrl-C ends it)")
    try:
        Multiprocess(config, sockets=[listener]).run()
    finally:
        del os.environ[_ENVIRONMENT]
    _say("ended")


def _say(text: str) -> None:
    sys.stderr.write(f"logsparse: {text}\n")
    sys.stderr.flush()
