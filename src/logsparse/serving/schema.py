"""Requests and answers of the HTTP interface as pydantic models; the query of a table, and the error of any answer.

`POST /v1/timeseries/forecast` follows KServe's schema of the same path. Fields that KServe has and that are not needed
here are optional, and unknown fields are ignored, as KServe's own models do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

from logsparse.errors import ConfigError, shown

Format = Literal["csv", "parquet", "feather", "json"]
Name = Annotated[str, Field(min_length=1, max_length=1000)]
# Numbers, or null where nothing was observed. Only the first fault is reported: there could be millions.
Values = Annotated[list[Annotated[float, Field(allow_inf_nan=True)] | None], FailFast()]

Covariate = Annotated[list[Annotated[float, Field(allow_inf_nan=True)] | str | None], FailFast()]

STEPS = {
    "second": "s",
    "S": "s",
    "minute": "min",
    "T": "min",
    "hour": "h",
    "H": "h",
    "day": "D",
    "D": "D",
    "week": "W",
    "W": "W",
    "month": "MS",
    "M": "MS",
    "quarter": "QS",
    "Q": "QS",
    "year": "YS",
    "Y": "YS",
}
"""KServe's words for a step -> the library's."""


class ErrorText(BaseModel):
    """What is wrong with a request, and a way out."""

    rule: str = Field(description="The rule that was broken.")
    got: str = Field(description="What was found instead.")
    hint: str = Field(description="What to do about it.")
    field: str | None = Field(None, description="The parameter or field, where there is one.")


class ErrorAnswer(BaseModel):
    """Body of every answer with a status of 400 or more."""

    error: ErrorText


class SeriesInput(BaseModel):
    """The history of one series."""

    type: Literal["univariate_time_series", "multivariate_time_series"] = Field(
        "univariate_time_series", description="Only univariate series are forecast; send one input per series."
    )
    name: Name = Field(description="Id of the series; one that the model knows, or a new one.")
    series: Values = Field(
        description="Values in order of time; null where nothing was observed. None at all for a series without a "
        "history, which a model that is trained for it forecasts from `start_timestamp` on."
    )
    frequency: str = Field(
        max_length=40, description="hour, H, day, D, ... as in KServe, or a step such as 15min; that of the model."
    )
    start_timestamp: str | int | None = Field(
        None, description="Time of the first value, ISO 8601; a whole number for a model of integer times."
    )
    covariates: dict[str, Covariate] | None = Field(
        None,
        description="Values of each covariate of the model, words if it is text: those of the history, then those of "
        "the horizon if they are known.",
    )
    static: dict[str, str] | None = Field(None, description="Category of the series, per static column of the model.")


class ForecastOptions(BaseModel):
    """What to forecast."""

    horizon: int | None = Field(None, ge=1, description="Number of steps, at most that of the model (the default).")
    quantiles: list[float] | None = Field(
        None, min_length=1, max_length=99, description="Levels between 0 and 1; 0.1, 0.2, ... 0.9 if left out."
    )


class ForecastRequest(BaseModel):
    """Histories to forecast from."""

    model: str | None = Field(None, max_length=1000, description="Name of the model; needed if several are served.")
    inputs: Annotated[list[SeriesInput], FailFast()] = Field(min_length=1, description="One entry per series.")
    options: ForecastOptions = Field(default_factory=lambda: ForecastOptions(horizon=None, quantiles=None))


class SeriesForecast(BaseModel):
    """The forecast of one series."""

    type: Literal["univariate_time_series"] = "univariate_time_series"
    name: str
    mean_forecast: list[float]
    frequency: str
    start_timestamp: str | int = Field(description="Time of the first step.")
    timestamps: list[str | int] = Field(description="Time of every step.")
    quantiles: dict[str, list[float]]


class ForecastOutput(BaseModel):
    """All forecasts of a request, in the order of its inputs."""

    type: Literal["time_series_forecast"] = "time_series_forecast"
    id: str
    status: Literal["completed"] = "completed"
    content: list[SeriesForecast]
    error: None = None


class ForecastAnswer(BaseModel):
    """Answer of `POST /v1/timeseries/forecast`."""

    id: str
    created_at: int
    status: Literal["completed"] = "completed"
    error: None = None
    model: str
    outputs: list[ForecastOutput]
    usage: None = None


class Recognised(BaseModel):
    """What was recognised in a table, as `logsparse check --json` prints it."""

    model_config = ConfigDict(extra="allow")

    layout: Literal["long", "wide"]
    series: int
    ids: list[str | int] = Field(description="The ids of all series.")
    step: str
    season: int
    first: str
    last: str
    zone: str | None
    steps: list[int]
    values: int
    missing: int


class History(BaseModel):
    """The last values of one series."""

    id: str | int
    times: list[str | int]
    values: list[float | None]


class CheckAnswer(BaseModel):
    """Answer of `POST /v1/check`."""

    model: str
    data: Recognised
    rows: list[tuple[str, str]] = Field(description="The same as labels and texts, as `logsparse check` prints them.")
    columns: dict[str, Any] = Field(description="Columns as they were read: id_col, time_col, target_col, ...")
    fits: bool = Field(description="Whether the model can forecast these data.")
    summary: str
    worst: Literal["bad", "warning"] | None
    bad: list[str | int]
    findings: list[dict[str, Any]]
    history: History | None = Field(None, description="Of the series that `series` names.")


class BacktestAnswer(BaseModel):
    """Answer of `POST /v1/backtest`: forecasts at past cutoffs beside the actual values."""

    model: str
    windows: int
    seen: bool = Field(description="Whether the model was trained on some of these values: scores are then too good.")
    scores: list[dict[str, Any]] = Field(description="One row per model: this one and seasonal_naive.")
    coverage: float | None = Field(description="Share of the actual values inside the 80 % band.")
    summary: str = Field(description="What the scores say, in sentences.")
    rows: list[tuple[str, float | None, float | None]] = Field(description="Some of the scores, named for people.")
    series: list[dict[str, Any]] = Field(
        description="Forecasts per series: id, cutoff, times, actual, mean, quantiles."
    )


class AttentionAnswer(BaseModel):
    """Answer of `POST /v1/attention`: what the first step of the forecast looked at."""

    model: str
    series: str | int
    what: str = Field(description="Layer and heads.")
    caption: str
    times: list[str | int]
    values: list[float | None]
    weights: list[float]


class ModelCard(BaseModel):
    """What is known of a served model."""

    name: str
    kind: str
    horizon: int
    step: str
    season: int
    series: int
    ids: list[str | int] = Field(description="Ids of the first series that it was fitted on.")
    trained_until: str
    covariates: list[str] = Field(description="Those that must be known for the horizon.")
    past_covariates: list[str]
    static: list[str]
    columns: list[str] = Field(description="Columns of a long table: ids, times, values, covariates, static ones.")
    context: int | None
    attention: bool = Field(description="Whether `/v1/attention` shows what its forecasts look at.")
    parameters: int | None = Field(description="Number of weights of the network.")
    validation_loss: float | None
    warning: str | None = Field(description="A sentence if the training was too short.")
    coverage: float | None = Field(description="Share of held-back values in the 80 % band, where it was measured.")
    settings: dict[str, Any]


class ModelList(BaseModel):
    """Answer of `GET /v1/models`."""

    models: list[ModelCard]
    max_body: int = Field(description="Bytes of the largest request.")


class Alive(BaseModel):
    """Answer of `/healthz` and `/readyz`."""

    status: Literal["ok", "draining"]
    version: str
    models: list[str]


class TableQuery(BaseModel):
    """Which model reads a table, and which of its columns mean what; as the options of the command."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str | None = Field(None, max_length=1000, description="Name of the model; needed if several are served.")
    id_col: str | None = Field(None, min_length=1, max_length=1000, description="Column of ids.")
    time_col: str | None = Field(None, min_length=1, max_length=1000, description="Column of times.")
    target_col: str | None = Field(None, min_length=1, max_length=1000, description="Column of values.")
    freq: str | None = Field(None, min_length=1, max_length=40, description="Step, such as 15min, h, D, ME.")
    tz: str | None = Field(None, min_length=1, max_length=100, description="Time zone of local times.")
    time_format: str | None = Field(None, min_length=1, max_length=100, description="Such as %d.%m.%Y %H:%M.")
    dayfirst: bool | None = Field(None, description="Whether 01.02.2024 is in February.")

    def columns(self) -> dict[str, Any]:
        """Return the columns that were named, as keywords of `to_panel`."""
        names = ("id_col", "time_col", "target_col", "freq", "tz", "time_format", "dayfirst")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class ForecastQuery(TableQuery):
    """Query of `POST /v1/forecast`."""

    horizon: int | None = Field(None, ge=1, description="Number of steps, at most that of the model (the default).")
    quantiles: str | None = Field(None, max_length=1000, description="Levels such as 0.1,0.5,0.9.")
    format: Format | None = Field(None, description="Of the answer; that of the body if left out.")
    series: str | None = Field(None, max_length=1000, description="Forecast only this series.")
    on_bad: Literal["warn", "skip", "fail"] = Field(
        "warn", description="Series with a bad finding are forecast, left out, or refused."
    )


class CheckQuery(TableQuery):
    """Query of `POST /v1/check`."""

    series: str | None = Field(None, max_length=1000, description="Also return the history of this series.")
    last: int = Field(2000, ge=1, le=100_000, description="Number of its last values.")


class BacktestQuery(TableQuery):
    """Query of `POST /v1/backtest`."""

    windows: int = Field(3, ge=1, le=1000, description="Number of cutoffs, one horizon apart.")
    series: str | None = Field(None, max_length=1000, description="Return this series; scores are of all.")
    alone: bool = Field(False, description="Whether scores are of this series alone.")


class AttentionQuery(TableQuery):
    """Query of `POST /v1/attention`."""

    series: str | None = Field(None, max_length=1000, description="Id of the series; the first one if left out.")
    step: int = Field(0, ge=0, description="Step of the forecast, counted from 0.")


def levels_of(text: str | None) -> list[float] | None:
    """Return the levels of a query."""
    try:
        return None if text is None else [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise ConfigError(
            "quantiles must be levels between 0 and 1.", got=shown(text), hint="write quantiles=0.1,0.5,0.9."
        ) from error


def definitions(models: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """Return the JSON schemas of these models and of all that they refer to, by name, for OpenAPI."""
    found: dict[str, Any] = {}
    for model in models:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        found |= schema.pop("$defs", {})
        found[model.__name__] = schema
    return found


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": text}
    for status, text in {
        400: "The request is no HTTP request that can be read.",
        401: "The token is missing or wrong.",
        404: "There is no such model or path.",
        405: "The path has another method.",
        408: "The body took too long to arrive.",
        413: "The body, or the table in it, is too large.",
        415: "The Content-Type is not that of a table.",
        422: "The data or a parameter break a rule.",
        500: "An error of the server.",
        503: "Too many requests wait; Retry-After says when to try again.",
        504: "The answer took too long.",
    }.items()
}
_BODY = {"type": "string", "format": "binary", "description": "The bytes of the file."}
_FRAME = {
    "description": "A list of rows, or a mapping from columns to lists.",
    "oneOf": [
        {"type": "array", "items": {"type": "object"}},
        {"type": "object", "additionalProperties": {"type": "array"}},
    ],
}
TABLE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "text/csv": {"schema": {"type": "string"}},
            "application/vnd.apache.parquet": {"schema": _BODY},
            "application/vnd.apache.arrow.file": {"schema": _BODY},
            "application/json": {"schema": _FRAME},
        },
    }
}
REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ForecastRequest"}}},
    }
}
TABLES_OUT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Ids, times, mean and quantiles, one row per series and step.",
        "content": {
            "text/csv": {"schema": {"type": "string"}},
            "application/vnd.apache.parquet": {"schema": _BODY},
            "application/vnd.apache.arrow.file": {"schema": _BODY},
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
        },
    }
}
