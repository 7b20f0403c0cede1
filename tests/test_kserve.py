"""KServe's form: what is read without a table is what the table gives, and series without a history are forecast."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.data.panel import Panel
from logsparse.errors import DataError
from logsparse.serving import kserve
from logsparse.serving.schema import ForecastRequest
from logsparse.serving.tables import Limits, past_of
from serving import HORIZON, Here, here, hourly

LIMITS = Limits(1000, 10**6)


SECONDS = {"h": 3600, "15min": 900, "d": 86_400}


def fitted(ids: tuple[Any, ...], step: str) -> ls.SeasonalNaive:
    """Return a model of these ids, of integer times if the step is 1."""
    since = np.arange(60) * np.timedelta64(SECONDS.get(step, 1), "s")
    times = pl.Series(np.arange(60) if step == "1" else np.datetime64("2024-01-01", "us") + since)
    frames = [pl.DataFrame({"unique_id": [name] * 60, "ds": times, "y": np.arange(60.0) % 7}) for name in ids]
    return ls.SeasonalNaive(HORIZON, season=7).fit(pl.concat(frames), freq=1 if step == "1" else step)


def entry(name: str, series: list[float | None], start: Any, frequency: str) -> dict[str, Any]:
    return {"name": name, "series": series, "frequency": frequency, "start_timestamp": start}


def both_ways(
    model: Any, inputs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, *, direct: bool = True
) -> tuple[Panel, Panel]:
    request = ForecastRequest.model_validate_json(json.dumps({"inputs": inputs}))
    tables: list[Any] = []
    read = type(model)._read

    def counted(self: Any, data: Any, **columns: Any) -> Any:
        tables.append(data)
        return read(self, data, **columns)

    with monkeypatch.context() as patch:
        patch.setattr(type(model), "_read", counted)
        one = kserve.from_request(model, request, LIMITS)
    assert (not tables) == direct
    with monkeypatch.context() as patch:
        patch.setattr(kserve, "_on_grid", lambda *_: None)
        other = kserve.from_request(model, request, LIMITS)
    return past_of(model, one, HORIZON), past_of(model, other, HORIZON)


def assert_same(one: Panel, other: Panel) -> None:
    for name in ("values", "indptr", "lengths", "starts"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    assert (one.ids, one.freq, one.origin) == (other.ids, other.freq, other.origin)
    assert [type(name) for name in one.ids] == [type(name) for name in other.ids]


@pytest.mark.parametrize("step", ["h", "15min", "d", "1"])
@pytest.mark.parametrize("ids", [("a", "b"), (1, 2), ("007", "8")])
@pytest.mark.parametrize("names", [["a", "x"], ["2", "9"], ["007", "007 "], ["é", "null"]])
def test_a_request_on_the_grid_is_read_as_its_table_is(
    step: str, ids: tuple[Any, ...], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    starts: list[Any] = [3, -4] if step == "1" else ["2024-02-01T00:00:00", "2023-12-24T18:30:15.25"]
    inputs = []
    for name, start in zip(names, starts, strict=True):
        values: list[float | None] = rng.normal(size=30).tolist()
        values[4] = values[-1] = None
        values[7] = 1e-50
        inputs.append(entry(name, values, start, step))
    assert_same(*both_ways(fitted(ids, step), inputs, monkeypatch))


@pytest.mark.parametrize("series", [[None, None, 1.0, 2.0], [1.0, float("nan"), 2.0]])
def test_missing_values_are_read_as_in_a_table(series: list[float | None], monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(("a",), "h")
    text = [entry("a", series, "2024-02-01T00:00:00", "H")]
    assert_same(*both_ways(model, text, monkeypatch, direct=series[0] is not None))


@pytest.mark.parametrize(
    ("series", "start", "rule"),
    [
        ([1.0, 1e39], "2024-02-01T00:00:00", "The column 'y' must hold finite numbers."),
        ([1.0, float("inf")], "2024-02-01T00:00:00", "The column 'y' must hold finite numbers."),
        (
            [1.0, 2.0],
            "2024-02-01T00:00:00Z",
            "New data must have no time zone, as those that were fitted.",
        ),
    ],
)
def test_what_the_table_refuses_is_refused(series: list[float | None], start: str, rule: str) -> None:
    request = ForecastRequest.model_validate_json(json.dumps({"inputs": [entry("a", series, start, "H")]}))
    with pytest.raises(DataError) as caught:
        kserve.from_request(fitted(("a",), "h"), request, LIMITS)
    assert caught.value.rule == rule


def shops() -> pl.DataFrame:
    """Return shops of two kinds, one ten times as large as the other."""
    frame = hourly(("a", "b", "c", "d"))
    large = pl.col("unique_id").is_in(["c", "d"])
    return frame.with_columns(
        y=pl.when(large).then(10 * pl.col("y")).otherwise(pl.col("y")),
        kind=pl.when(large).then(pl.lit("large")).otherwise(pl.lit("small")),
        hour=pl.col("ds").dt.hour().cast(pl.Float64),
    )


@pytest.fixture(scope="module")
def newcomer() -> ls.LogSparse:
    settings: dict[str, Any] = {"context": 24, "steps": 2, "layers": 1, "width": 8, "heads": 2, "batch": 4}
    return ls.LogSparse(HORIZON, verbose=False, **settings).fit(shops(), static=["kind"], covariates=["hour"])


@pytest.fixture(scope="module")
def server(newcomer: ls.LogSparse) -> Any:
    with here({"shops": newcomer, "naive": ls.SeasonalNaive(HORIZON).fit(hourly())}) as running:
        yield running


def test_a_series_without_a_history_is_forecast_as_predict_does(server: Here, newcomer: ls.LogSparse) -> None:
    past = shops().filter(pl.col("unique_id") == "a")
    times = past["ds"].tail(HORIZON).dt.offset_by(f"{HORIZON}h")
    rows = {"ds": times, "hour": times.dt.hour().cast(pl.Float64)}
    future = pl.concat(
        [pl.DataFrame({"unique_id": [name] * HORIZON, **rows, "kind": [kind] * HORIZON}) for name, kind in
         (("a", "small"), ("new", "large"))]
    )  # fmt: skip
    expected = newcomer.predict(past, future=future, quantiles=[0.5])
    hours = rows["hour"].to_list()
    known = {
        **entry("a", past["y"].to_list(), past["ds"][0].isoformat(), "H"),
        "covariates": {"hour": past["hour"].to_list() + hours},
        "static": {"kind": "small"},
    }
    new = {**entry("new", [], times[0].isoformat(), "H"), "covariates": {"hour": hours}, "static": {"kind": "large"}}
    for inputs in ([new, known], [new]):
        request = {"model": "shops", "inputs": inputs, "options": {"quantiles": [0.5]}}
        answer = server.post("/v1/timeseries/forecast", json.dumps(request).encode(), "application/json")
        assert answer.status_code == 200, answer.text
        first = answer.json()["outputs"][0]["content"][0]
        part = expected.filter(pl.col("unique_id") == "new")
        assert np.array(first["mean_forecast"], np.float32).tolist() == part["mean"].to_list()
        assert first["timestamps"] == [time.isoformat() for time in times]
    body = pl.concat([past, future.with_columns(y=None)], how="diagonal_relaxed").write_csv().encode()
    answer = server.post("/v1/forecast?model=shops&quantiles=0.5", body, "text/csv")
    assert answer.status_code == 200, answer.text
    found = pl.read_csv(answer.content).sort("unique_id", "ds")
    assert found["mean"].cast(pl.Float32).to_list() == expected.sort("unique_id", "ds")["mean"].to_list()


def test_a_model_that_is_not_trained_for_it_refuses_a_series_without_a_history(server: Here) -> None:
    request = {"model": "naive", "inputs": [entry("new", [], "2024-01-09T00:00:00", "H")]}
    answer = server.post("/v1/timeseries/forecast", json.dumps(request).encode(), "application/json")
    assert answer.status_code == 422
    assert answer.json()["error"]["rule"] == "SeasonalNaive must be given the history of every series."


def test_a_known_series_needs_its_history(server: Here) -> None:
    request = {"model": "naive", "inputs": [entry("north", [], "2024-01-09T00:00:00", "H")]}
    answer = server.post("/v1/timeseries/forecast", json.dumps(request).encode(), "application/json")
    assert answer.status_code == 422
    assert answer.json()["error"]["rule"] == "Every series must have at least one value."
