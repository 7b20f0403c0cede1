"""Fitted models by name -> ASGI application: every route of the HTTP interface, its errors and its documentation."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader, select_autoescape
from pydantic import ValidationError

from logsparse import __version__
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError, DataError, LogsparseError, NotFittedError, shown, suggest
from logsparse.forecast import Forecaster
from logsparse.params import altered, steps_asked
from logsparse.serving.answers import (
    attention_answer,
    backtest_answer,
    card,
    check_answer,
    chosen,
    example,
    has_attention,
)
from logsparse.serving.batching import Engine, warm_up
from logsparse.serving.guard import RETRY_SECONDS, Guard, error_body, status_of
from logsparse.serving.kserve import from_request, kserve_answer
from logsparse.serving.schema import (
    REFUSALS,
    REQUEST_BODY,
    TABLE_BODY,
    TABLES_OUT,
    Alive,
    AttentionAnswer,
    AttentionQuery,
    BacktestAnswer,
    BacktestQuery,
    CheckAnswer,
    CheckQuery,
    ForecastAnswer,
    ForecastQuery,
    ForecastRequest,
    ModelCard,
    ModelList,
    TableQuery,
    definitions,
    levels_of,
)
from logsparse.serving.tables import (
    MEDIA,
    Limits,
    check_series,
    kind_of,
    names_of,
    past_of,
    read_table,
    written,
)

PAGE = Path(__file__).parent / "page"
_SECURITY = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
# Cells of a table per byte of the largest body: a csv file has about one in four bytes, parquet can have more.
_CELLS_PER_BYTE = 0.5


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits of a server.

    Parameters
    ----------
    token
        Text that clients must send; None: anyone may ask.
    max_body
        Bytes of a request.
    max_series
        Series of a request.
    timeout
        Seconds for a request to arrive, and again for its answer.
    queue
        Requests under way at once.
    batch
        Whether requests that wait are decoded together.
    """

    token: str | None = None
    max_body: int = 50 * 10**6
    max_series: int = 10_000
    timeout: float = 60.0
    queue: int = 256
    batch: bool = True


class UnknownModelError(LogsparseError):
    """There is no such model, or it lacks what is asked for (404)."""


@dataclass(frozen=True)
class _Served:
    """What all routes share."""

    models: Mapping[str, Forecaster]
    engine: Engine
    limits: Limits

    def model(self, name: str | None) -> tuple[str, Forecaster]:
        """Return a model by name, or the only one."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.items()))
        if name is None or name not in self.models:
            names = ", ".join(self.models)
            raise UnknownModelError(
                f"model must be one of: {names}." if len(self.models) > 1 else f"The only model is {names}.",
                got=shown(name),
                hint=suggest(name, self.models, "leave it out." if len(self.models) == 1 else "name one of them."),
            )
        return name, self.models[name]

    def table(self, request: Request, body: bytes, query: TableQuery, model: Forecaster) -> tuple[str, Any]:
        """Return format and table of a body."""
        kind = kind_of(request.headers.get("content-type"), body)
        return kind, read_table(body, kind, names_of(model, query.columns()).id_col, self.limits)

    def panel(self, request: Request, body: bytes, query: TableQuery, model: Forecaster) -> tuple[str, Panel]:
        """Return format and panel of a body, read as the data of the model were."""
        kind, table = self.table(request, body, query, model)
        panel = model._read(table, **query.columns())  # noqa: SLF001
        return kind, check_series(panel, self.limits)


def create_app(models: Mapping[str, Forecaster], settings: Settings | None = None) -> Guard:
    """Return an ASGI application that serves fitted models.

    Parameters
    ----------
    models
        Fitted forecasters by name.
    settings
        Limits; the default ones if left out.

    Returns
    -------
    Guard
        An ASGI application, for uvicorn and the like, or to mount in another one. Models are warm when it returns.

    Raises
    ------
    ConfigError, NotFittedError
        If there is no model, or one is not fitted.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> from logsparse.serving.app import create_app
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> app = create_app({"week": ls.SeasonalNaive(horizon=3, season=7).fit(frame)})
    """
    if not models:
        raise ConfigError("A server needs at least one model.", got="none", hint="name the folder of a fitted model.")
    for model in models.values():
        if not hasattr(model, "panel_"):
            raise NotFittedError(model)
    quiet = {name: altered(model, verbose=False) for name, model in models.items()}
    for model in quiet.values():
        warm_up(model)
    asked = settings or Settings()
    engine = Engine(queue=asked.queue, batch=asked.batch)
    limits = Limits(asked.max_series, int(_CELLS_PER_BYTE * asked.max_body))
    served = _Served(quiet, engine, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        engine.close()

    app = FastAPI(
        title="logsparse",
        version=__version__,
        description="Probabilistic forecasts of many related time series.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=REFUSALS,
    )
    guard = Guard(app, engine, asked.token, asked.max_body, asked.timeout, tuple(models))
    _add_forecasts(app, served)
    _add_questions(app, served)
    _add_state(app, served, guard)
    _add_page(app)
    _add_errors(app)
    return guard


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def _answer(body: bytes, kind: str = "json") -> Response:
    return Response(body, media_type=MEDIA[kind].partition(";")[0], headers={"Cache-Control": "no-store"})


def _add_forecasts(app: FastAPI, served: _Served) -> None:
    engine = served.engine

    @app.post("/v1/timeseries/forecast", responses={200: {"model": ForecastAnswer}}, openapi_extra=REQUEST_BODY)
    async def timeseries_forecast(request: Request) -> Response:
        """Forecast the series of a request in KServe's schema."""
        body = await request.body()

        def read() -> tuple[str, Forecaster, ForecastRequest, Panel, tuple[float, ...], int]:
            asked = ForecastRequest.model_validate_json(body)
            name, model = served.model(asked.model)
            levels = model.check_quantiles(asked.options.quantiles)
            steps = steps_asked(asked.options.horizon, model.horizon)
            panel = from_request(model, asked, served.limits)
            return name, model, asked, past_of(model, panel, steps), levels, steps

        name, model, asked, panel, levels, steps = await engine.work(read, size=len(body))
        forecast = await engine.forecast(model, panel, levels)
        order, words = [entry.name for entry in asked.inputs], asked.inputs[0].frequency
        answer = partial(kserve_answer, name, forecast.first(steps), order, words)
        return _answer(await engine.work(lambda: _json(answer()), size=len(body)))

    @app.post("/v1/forecast", responses=TABLES_OUT, openapi_extra=TABLE_BODY)
    async def forecast(request: Request, query: Annotated[ForecastQuery, Query()]) -> Response:
        """Forecast the series of a csv, parquet, feather or JSON table; the answer has the same format."""
        body = await request.body()

        def read() -> tuple[Forecaster, str, Panel, tuple[float, ...], int]:
            _, model = served.model(query.model)
            levels = model.check_quantiles(levels_of(query.quantiles))
            steps = steps_asked(query.horizon, model.horizon)
            kind, panel = served.panel(request, body, query, model)
            past = past_of(model, chosen(panel, query.series), steps, query.on_bad)
            return model, query.format or kind, past, levels, steps

        model, kind, panel, levels, steps = await engine.work(read)
        found = await engine.forecast(model, panel, levels)
        return _answer(await engine.work(lambda: written(found.first(steps).table(), kind)), kind)


def _add_questions(app: FastAPI, served: _Served) -> None:
    engine = served.engine

    @app.post("/v1/check", responses={200: {"model": CheckAnswer}}, openapi_extra=TABLE_BODY)
    async def check(request: Request, query: Annotated[CheckQuery, Query()]) -> Response:
        """Return what was recognised in a table, and what is wrong with it."""
        body = await request.body()

        def examine() -> bytes:
            name, model = served.model(query.model)
            _, table = served.table(request, body, query, model)
            return _json(check_answer(name, model, table, query, served.limits))

        return _answer(await engine.work(examine))

    @app.post("/v1/backtest", responses={200: {"model": BacktestAnswer}}, openapi_extra=TABLE_BODY)
    async def backtest(request: Request, query: Annotated[BacktestQuery, Query()]) -> Response:
        """Return forecasts at past cutoffs beside the actual values, with scores and those of seasonal naive."""
        body = await request.body()

        def test() -> bytes:
            name, model = served.model(query.model)
            _, panel = served.panel(request, body, query, model)
            return _json(backtest_answer(name, model, panel, query, served.limits))

        return _answer(await engine.work(test))

    @app.post("/v1/attention", responses={200: {"model": AttentionAnswer}}, openapi_extra=TABLE_BODY)
    async def attention(request: Request, query: Annotated[AttentionQuery, Query()]) -> Response:
        """Return what a step of the forecast looked at: times of the history and their weights."""
        body = await request.body()

        def look() -> bytes:
            name, model = served.model(query.model)
            if not has_attention(model):
                raise UnknownModelError(
                    "Only a model with attention can show what its forecast looked at.",
                    got=f"{name}, which is {type(model).__name__}",
                    hint="ask a LogSparse model.",
                )
            _, panel = served.panel(request, body, query, model)
            return _json(attention_answer(name, model, panel, query))

        return _answer(await engine.work(look))


def _add_state(app: FastAPI, served: _Served, guard: Guard) -> None:
    engine, cards = served.engine, {name: card(name, model) for name, model in served.models.items()}

    @app.get("/v1/models", response_model=ModelList)
    async def models() -> dict[str, Any]:
        """List the models."""
        return {"models": list(cards.values()), "max_body": guard.max_body}

    @app.get("/v1/models/{name}", response_model=ModelCard)
    async def model(name: str) -> dict[str, Any]:
        """Describe a model: settings, step, horizon, end of its training."""
        return cards[served.model(name)[0]]

    @cache
    def example_file(name: str) -> bytes:
        return written(example(served.models[name]), "parquet")

    @app.get("/v1/models/{name}/example", responses=TABLES_OUT)
    async def made_up(name: str) -> Response:
        """Return a parquet file of made-up values that a model can forecast."""
        return _answer(await engine.work(partial(example_file, served.model(name)[0])), "parquet")

    def state() -> dict[str, Any]:
        return {"status": "ok" if engine.alive else "draining", "version": __version__, "models": list(cards)}

    @app.get("/healthz", response_model=Alive)
    async def healthz() -> dict[str, Any]:
        """Return 200 as long as the process answers."""
        return state()

    @app.get("/readyz", response_model=Alive)
    async def readyz(response: Response) -> dict[str, Any]:
        """Return 200 if forecasts are answered, 503 while the server ends or its queue is full."""
        if not engine.alive or engine.full:
            response.status_code = 503
        return state()

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Return counts of this process in Prometheus' text format."""
        return PlainTextResponse(guard.metrics.text(engine), media_type="text/plain; version=0.0.4")


def _add_page(app: FastAPI) -> None:
    templates = Environment(loader=PackageLoader("logsparse.serving", "page"), autoescape=select_autoescape(["j2"]))

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=_SECURITY)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        html = templates.get_template("docs.html.j2").render(document=app.openapi())
        return HTMLResponse(html, headers=_SECURITY)

    @app.get("/plotly.min.js", include_in_schema=False)
    async def plotly() -> FileResponse:
        place = str(files("plotly") / "package_data" / "plotly.min.js")
        return FileResponse(place, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})

    app.mount("/static", StaticFiles(directory=PAGE), name="static")
    usual = app.openapi

    def documented() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = usual()
            document["components"]["schemas"] |= definitions([ForecastRequest])
        return usual()

    app.openapi = documented  # type: ignore[method-assign]


def _refusal(status: int, content: dict[str, Any], headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(content, status, headers=dict(headers or {}))


def _add_errors(app: FastAPI) -> None:
    Handler = Callable[[Request, Any], Awaitable[JSONResponse]]

    async def broken_rule(_: Request, error: LogsparseError) -> JSONResponse:
        status = 404 if isinstance(error, UnknownModelError) else status_of(error)
        retry = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
        return _refusal(status, error_body(error.rule, error.got, error.hint), retry)

    async def wrong_fields(_: Request, error: RequestValidationError | ValidationError) -> JSONResponse:
        return _refusal(422, first_fault(error.errors()))

    async def no_route(request: Request, error: HTTPException) -> JSONResponse:
        got = f"{request.method} {request.url.path[:200]}"
        return _refusal(
            error.status_code, error_body(f"{error.detail}.", got, "see /docs for all paths."), error.headers
        )

    async def no_memory(_: Request, __: MemoryError) -> JSONResponse:
        busy = DataError("A request must fit into memory.", got="one that does not", hint="send fewer series.")
        return _refusal(413, error_body(busy.rule, busy.got, busy.hint))

    from starlette.exceptions import HTTPException as AnyHTTPException

    handlers: dict[Any, Handler] = {
        LogsparseError: broken_rule,
        RequestValidationError: wrong_fields,
        ValidationError: wrong_fields,
        AnyHTTPException: no_route,
        MemoryError: no_memory,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def first_fault(faults: Sequence[Any]) -> dict[str, Any]:
    """Return the first of pydantic's complaints as our error."""
    fault = faults[0]
    where = ".".join(str(part) for part in fault["loc"] if part not in ("query", "body", "path"))
    if fault["type"] == "extra_forbidden":
        known = [name for kind in (ForecastQuery, CheckQuery) for name in kind.model_fields]
        return error_body(
            "A query has known parameters only.",
            f"{where[:200]!r}",
            suggest(where, known, "leave it out."),
            where[:200],
        )
    got = "nothing" if fault["type"] == "missing" else shown(fault.get("input"))[:200]
    hint = "write JSON." if fault["type"] == "json_invalid" else "see /docs for all fields."
    return error_body(f"{fault['msg'].rstrip('.')}.", got, hint, where[:200] or None)
