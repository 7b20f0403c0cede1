"""The HTTP interface: forecasts are those of `predict` to the last bit, in every format, alone and in a batch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from io import BytesIO
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.data.files import encode
from logsparse.errors import ConfigError, NotFittedError
from logsparse.serving.answers import example
from logsparse.serving.app import Settings, create_app
from serving import HORIZON, Here, here, hourly, small_model

MEDIA = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "feather": "application/vnd.apache.arrow.file",
    "json": "application/json",
}
TOKEN = "a-token-of-many-characters"  # noqa: S105


@pytest.fixture(scope="module")
def model() -> ls.LogSparse:
    return small_model()


@pytest.fixture(scope="module")
def covariate_model() -> ls.LogSparse:
    settings: dict[str, Any] = {"context": 24, "steps": 2, "layers": 1, "width": 8, "heads": 2, "batch": 4}
    columns: dict[str, Any] = {"covariates": ["hour", "campaign"], "past_covariates": ["visits"], "static": ["shop"]}
    return ls.LogSparse(HORIZON, verbose=False, **settings).fit(described(hourly()), **columns)


def described(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table with numbers and words that are known ahead, numbers that are not, and a category."""
    hour = pl.col("ds").dt.hour()
    campaign = pl.when(hour < 9).then(pl.lit("night")).when(hour < 20).then(pl.lit("day"))
    return frame.with_columns(hour.cast(pl.Float64).alias("hour"), campaign.alias("campaign"), shop=pl.lit("x")).join(
        frame.select("unique_id", "ds", visits=pl.col("y") / 3), on=["unique_id", "ds"], how="left"
    )


@pytest.fixture(scope="module")
def server(model: ls.LogSparse, covariate_model: ls.LogSparse) -> Iterator[Here]:
    models = {"net": model, "naive": ls.SeasonalNaive(HORIZON).fit(hourly()), "known": covariate_model}
    with here(models) as running:
        yield running


def table(answer: httpx.Response, kind: str) -> pl.DataFrame:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == MEDIA[kind]
    if kind == "json":
        return pl.DataFrame(answer.json())
    readers: dict[str, Any] = {"csv": pl.read_csv, "parquet": pl.read_parquet, "feather": pl.read_ipc}
    found: pl.DataFrame = readers[kind](BytesIO(answer.content))
    return found


def numbers(frame: pl.DataFrame) -> np.ndarray:
    return frame.select(pl.exclude("unique_id", "ds")).cast(pl.Float32).to_numpy()


def series(name: str, frame: pl.DataFrame, **more: Any) -> dict[str, Any]:
    part = frame.filter(unique_id=name)
    start = part["ds"][0].isoformat()
    return {"name": name, "series": part["y"].to_list(), "frequency": "H", "start_timestamp": start, **more}


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()["error"]
    return found


@pytest.mark.parametrize("kind", MEDIA)
def test_a_table_is_forecast_as_predict_does_to_the_last_bit(server: Here, model: ls.LogSparse, kind: str) -> None:
    body = encode(hourly(), kind)
    answer = server.post("/v1/forecast?model=net&quantiles=0.1,0.5,0.9", body, MEDIA[kind])
    found, wanted = table(answer, kind), model.predict(hourly(), quantiles=[0.1, 0.5, 0.9])
    assert found.columns == wanted.columns
    assert found["unique_id"].to_list() == wanted["unique_id"].to_list()
    np.testing.assert_array_equal(numbers(found), numbers(wanted))


def test_columns_of_json_and_another_format_of_the_answer(server: Here, model: ls.LogSparse) -> None:
    columns = hourly().with_columns(pl.col("ds").dt.to_string("iso")).rename({"y": "load"}).to_dict(as_series=False)
    path = "/v1/forecast?model=net&format=csv&horizon=2&target_col=load&series=south"
    found = table(server.post(path, json.dumps(columns).encode(), "application/json"), "csv")
    wanted = model.predict(hourly(), horizon=2).filter(unique_id="south")
    np.testing.assert_array_equal(numbers(found), numbers(wanted))


def test_a_wide_table_without_a_content_type_is_recognised(server: Here, model: ls.LogSparse) -> None:
    wide = hourly().pivot("unique_id", index="ds", values="y")
    with server.client() as client:
        answer = client.post("/v1/forecast?model=net", content=encode(wide, "parquet"))
    np.testing.assert_array_equal(numbers(table(answer, "parquet")), numbers(model.predict(wide)))


def test_kserves_request_is_forecast_as_predict_does_with_the_time_of_every_step(
    server: Here, model: ls.LogSparse
) -> None:
    frame = hourly(("south", "new one"), days=3)
    # In an order of their own, and one of them unknown to the model.
    inputs, options = [series("new one", frame), series("south", frame)], {"horizon": 4, "quantiles": [0.9, 0.1]}
    request = {"model": "net", "inputs": inputs, "options": options}
    answer = server.post("/v1/timeseries/forecast", json.dumps(request).encode(), "application/json").json()
    assert (answer["status"], answer["model"]) == ("completed", "net")
    content = answer["outputs"][0]["content"]
    wanted = model.predict(frame, horizon=4, quantiles=[0.1, 0.9])
    assert [one["name"] for one in content] == ["new one", "south"]
    for one in content:
        part = wanted.filter(unique_id=one["name"])
        assert one["mean_forecast"] == part["mean"].to_list()
        assert one["quantiles"] == {"0.1": part["q0.1"].to_list(), "0.9": part["q0.9"].to_list()}
        assert one["timestamps"] == [time.isoformat() for time in part["ds"]]
        assert one["start_timestamp"] == one["timestamps"][0]


def test_covariates_and_categories_travel_in_both_forms(server: Here, covariate_model: ls.LogSparse) -> None:
    past = described(hourly(("north",)).with_columns(pl.col("y") + 1))
    times = past["ds"][-HORIZON:].dt.offset_by(f"{HORIZON}h")
    future = described(pl.DataFrame({"unique_id": "north", "ds": times, "y": 0.0})).drop("y", "visits")
    wanted = covariate_model.predict(past, future=future)
    both = pl.concat([past, future], how="diagonal")
    found = table(server.post("/v1/forecast?model=known", encode(both, "parquet")), "parquet")
    np.testing.assert_array_equal(numbers(found), numbers(wanted))
    known = {name: both[name].to_list() for name in ("hour", "campaign")}
    entry = series("north", past, covariates={**known, "visits": past["visits"].to_list()}, static={"shop": "x"})
    body = json.dumps({"model": "known", "inputs": [entry]}).encode()
    content = server.post("/v1/timeseries/forecast", body).json()["outputs"][0]["content"][0]
    assert content["mean_forecast"] == wanted["mean"].to_list()
    short = error(server.post("/v1/forecast?model=known", encode(past, "parquet")), 422)
    assert short["rule"] == f"The covariate 'hour' must be known for all {HORIZON} steps to forecast."
    assert short["hint"].startswith("add rows after the last value of each series")


def test_requests_that_wait_are_decoded_together_and_each_gets_what_it_gets_alone(
    server: Here, model: ls.LogSparse
) -> None:
    frames = [hourly((f"s{i}", "south"), days=2 + i % 5).with_columns(pl.col("y") * (1 + i)) for i in range(24)]
    before = server.guard.engine.batches, server.guard.engine.batched
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda f: server.post("/v1/forecast?model=net", encode(f, "parquet")), frames))
    for frame, answer in zip(frames, answers, strict=True):
        np.testing.assert_array_equal(numbers(table(answer, "parquet")), numbers(model.predict(frame)))
    batches, batched = server.guard.engine.batches - before[0], server.guard.engine.batched - before[1]
    assert batched == 24
    assert batches < 24


def test_a_check_says_what_was_recognised_and_what_is_wrong(server: Here) -> None:
    ended = (pl.col("unique_id") == "north") & (pl.col("ds").dt.day() > 6)
    frame = pl.concat([hourly().filter(~ended), hourly(("west",))])
    answer = server.post("/v1/check?model=net&series=west&last=3", encode(frame, "csv"), "text/csv").json()
    assert (answer["data"]["series"], answer["data"]["step"], answer["fits"]) == (4, "h", True)
    assert answer["data"]["ids"] == ["north", "south", "east", "west"]
    assert {found["kind"] for found in answer["findings"]} == {"stale", "new"}
    assert "findings" in answer["summary"]
    assert answer["history"]["times"][-1] == "2024-01-08T23:00:00"
    assert answer["history"]["values"] == [float(value) for value in frame["y"][-3:].cast(pl.Float32)]


def test_a_backtest_stands_beside_seasonal_naive_and_says_if_the_model_has_seen_the_values(server: Here) -> None:
    answer = server.post("/v1/backtest?model=net&windows=2&series=east", encode(hourly(), "parquet")).json()
    assert answer["seen"] is True
    assert [row["model"] for row in answer["scores"]] == ["net", "seasonal_naive"]
    assert answer["coverage"] == answer["scores"][0]["coverage_80"]
    assert [one["id"] for one in answer["series"]] == ["east", "east"]
    last = answer["series"][-1]
    assert last["actual"] == [
        float(value) for value in hourly().filter(unique_id="east")["y"][-HORIZON:].cast(pl.Float32)
    ]
    assert last["cutoff"] == "2024-01-08T17:00:00"
    assert {len(last[name]) for name in ("times", "actual", "mean", "seasonal_naive")} == {HORIZON}
    unseen = hourly(("west",))
    assert server.post("/v1/backtest?model=net", encode(unseen, "parquet")).json()["seen"] is False
    few = error(server.post("/v1/backtest?model=net&windows=900", encode(hourly(), "parquet")), 422)
    assert few["rule"] == "Every series must be longer than the span of the backtest."


def test_attention_has_a_weight_for_every_time_of_the_context(server: Here) -> None:
    answer = server.post("/v1/attention?model=net&series=east", encode(hourly(), "parquet")).json()
    assert answer["series"] == "east"
    assert len(answer["times"]) == len(answer["values"]) == len(answer["weights"]) == 25
    assert sum(answer["weights"]) == pytest.approx(1, abs=1e-5)
    none = error(server.post("/v1/attention?model=naive", encode(hourly(), "parquet")), 404)
    assert none["rule"] == "Only a model with attention can show what its forecast looked at."


def test_models_describe_themselves(server: Here, model: ls.LogSparse) -> None:
    with server.client() as client:
        listed = client.get("/v1/models").json()["models"]
        one = client.get("/v1/models/net").json()
        missing = error(client.get("/v1/models/nat"), 404)
    assert [card["name"] for card in listed] == ["net", "naive", "known"]
    assert (one["kind"], one["horizon"], one["step"], one["trained_until"]) == (
        "LogSparse",
        6,
        "h",
        "2024-01-08 23:00:00",
    )
    assert one["settings"]["model"]["layers"] == 2
    assert model.calibration_ is not None
    assert [card["coverage"] for card in listed[:2]] == [model.calibration_.coverage, None]
    assert missing == {
        "rule": "model must be one of: net, naive, known.",
        "got": "'nat'",
        "hint": "did you mean 'net'?",
    }


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/v1/forecast?model=net&horizon=7", "A forecast has at most the 6 steps that the model was fitted for."),
        ("/v1/forecast?model=net&quantiles=a", "quantiles must be levels between 0 and 1."),
        ("/v1/forecast?model=net&horizn=7", "A query has known parameters only."),
        ("/v1/forecast?model=net&id_col=shop", "A frame must have the columns shop, ds, y, or be wide"),
        ("/v1/forecast?model=net&series=nowhere", "series must be the id of a series in the data."),
        ("/v1/forecast?model=net&format=xlsx", "Input should be 'csv', 'parquet', 'feather' or 'json'."),
    ],
)
def test_what_does_not_fit_is_a_sentence(server: Here, path: str, rule: str) -> None:
    assert error(server.post(path, encode(hourly(), "csv"), "text/csv"), 422)["rule"].startswith(rule)


def test_another_step_or_media_type_is_refused(server: Here) -> None:
    daily = hourly().filter(pl.col("ds").dt.hour() == 0)
    step = error(server.post("/v1/forecast?model=net", encode(daily, "csv"), "text/csv"), 422)
    assert (step["rule"], step["got"]) == ("New data must have the step that was fitted.", "steps of d after h")
    entry = {**series("south", hourly()), "frequency": "D"}
    body = json.dumps({"model": "net", "inputs": [entry]}).encode()
    assert error(server.post("/v1/timeseries/forecast", body), 422)["got"] == "frequency 'D' in inputs[0], after h"
    assert error(server.post("/v1/forecast?model=net", b"x", "image/png"), 415)["got"] == "'image/png'"


def test_counts_are_those_of_the_requests(server: Here) -> None:
    def count() -> int:
        with server.client() as client:
            text = client.get("/metrics").text
        found = re.search(r'requests_total\{path="/v1/forecast",method="POST",status="415"\} (\d+)', text)
        assert re.search(r'request_seconds_bucket\{path="/v1/forecast",le="\+Inf"\} \d+', text) or found is None
        return int(found[1]) if found else 0

    before = count()
    server.post("/v1/forecast?model=net", b"x", "image/png")
    assert count() == before + 1


def test_the_page_the_documentation_and_the_charts_come_from_this_server_alone(server: Here) -> None:
    with server.client() as client:
        page, docs, script = (client.get(path) for path in ("/", "/docs", "/plotly.min.js"))
    assert {answer.status_code for answer in (page, docs, script)} == {200}
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for answer in (page, docs):
        assert not re.search(r'(?:src|href)="(?:https?:)?//', answer.text)
    assert "POST /v1/timeseries/forecast" in docs.text
    assert len(script.content) > 10**6


def test_a_token_is_needed_for_data_and_not_for_health(model: ls.LogSparse) -> None:
    with here({"net": model}, Settings(token=TOKEN)) as server:
        body = encode(hourly(), "parquet")
        for wrong in (
            {},
            {"authorization": "Bearer nothing"},
            {"authorization": f"Basic {TOKEN}"},
            {"authorization": ""},
        ):
            answer = server.post("/v1/forecast", body, **wrong)
            assert error(answer, 401)["rule"] == "A request must carry the token of the server."
            assert answer.headers["www-authenticate"] == "Bearer"
        with server.client() as client:
            assert client.get("/metrics").status_code == 401
            assert client.get("/healthz").status_code == client.get("/").status_code == 200
        assert server.post("/v1/forecast", body, authorization=f"Bearer {TOKEN}").status_code == 200
        assert TOKEN not in server.log.read_text()


def test_a_full_queue_is_503_and_says_when_to_try_again(model: ls.LogSparse) -> None:
    with here({"net": model}, Settings(queue=1)) as server:
        server.guard.engine.under_way += 1
        answer = server.post("/v1/forecast", encode(hourly(), "parquet"))
        assert error(answer, 503)["got"] == "1 that wait already"
        assert answer.headers["retry-after"] == "1"
        with server.client() as client:
            assert client.get("/readyz").status_code == 503
        server.guard.engine.under_way -= 1
        assert server.post("/v1/forecast", encode(hourly(), "parquet")).status_code == 200


class Slow(ls.SeasonalNaive):
    """Takes its time for a series of that name."""

    def _forecast(self, panel: Any, levels: tuple[float, ...]) -> ls.Forecast:
        import time

        time.sleep(1.0 if "slow" in panel.ids else 0)
        return super()._forecast(panel, levels)


def test_an_answer_that_takes_too_long_is_504_and_the_next_is_served() -> None:
    with here({"slow": Slow(HORIZON).fit(hourly())}, Settings(timeout=0.5)) as server:
        late = error(server.post("/v1/forecast", encode(hourly(("slow",)), "parquet")), 504)
        assert late["rule"] == "An answer must take at most 0.5 seconds."
        import time

        time.sleep(0.7)
        assert server.post("/v1/forecast", encode(hourly(), "parquet")).status_code == 200


def test_an_application_needs_fitted_models() -> None:
    with pytest.raises(ConfigError, match="at least one model"):
        create_app({})
    with pytest.raises(NotFittedError):
        create_app({"a": ls.SeasonalNaive(3)})


def test_an_application_can_be_mounted_in_another_one(model: ls.LogSparse) -> None:
    import asyncio

    from fastapi import FastAPI

    outer = FastAPI()
    outer.mount("/forecasts", create_app({"net": model}, Settings(token=TOKEN)))

    async def ask(**headers: str) -> httpx.Response:
        transport = httpx.ASGITransport(outer)
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client:
            return await client.post("/forecasts/v1/forecast", content=encode(hourly(), "parquet"))

    error(asyncio.run(ask()), 401)
    found = table(asyncio.run(ask(authorization=f"Bearer {TOKEN}")), "parquet")
    np.testing.assert_array_equal(numbers(found), numbers(model.predict(hourly())))


def test_a_backtest_of_one_series_alone_has_the_same_forecasts(server: Here) -> None:
    body = encode(hourly(), "parquet")
    paths = ("/v1/backtest?model=net&series=south", "/v1/backtest?model=net&series=south&alone=true")
    both, alone = (server.post(path, body).json() for path in paths)
    assert alone["series"] == both["series"]
    assert (both["scores"][0]["count"], alone["scores"][0]["count"]) == (3 * 3 * HORIZON, 3 * HORIZON)


def test_a_backtest_is_summed_up_in_sentences(server: Here) -> None:
    answer = server.post("/v1/backtest?model=naive&windows=1", encode(hourly(), "parquet")).json()
    assert answer["summary"] == (
        f"All series, the last window: {100 * answer['coverage']:.0f} % of the actual values lie in the 80 % band. "
        "The error (wql) is about that of seasonal naive. "
        "The model was trained on some of these values, so this looks better than it is."
    )
    assert answer["rows"][0] == ["share of values in the 80 % band", *(row["coverage_80"] for row in answer["scores"])]


@pytest.mark.parametrize("name", ["net", "naive", "known"])
def test_an_example_is_made_up_and_can_be_forecast_checked_and_tested(server: Here, name: str) -> None:
    with server.client() as client:
        body = client.get(f"/v1/models/{name}/example").content
        assert client.get(f"/v1/models/{name}/example").content == body
    check = server.post(f"/v1/check?model={name}&series=south", body).json()
    assert (check["fits"], check["summary"]) == (True, "3 series, nothing found")
    assert check["history"]["values"][-1] is not None  # not the future of a covariate
    found = table(server.post(f"/v1/forecast?model={name}", body), "parquet")
    assert found["unique_id"].unique(maintain_order=True).to_list() == ["north", "south", "east"]
    tested = server.post(f"/v1/backtest?model={name}&series=south", body).json()
    assert not tested["seen"]
    assert None not in [value for window in tested["series"] for value in window["actual"]]


BERLIN = pl.datetime_range(datetime(2024, 3, 1), datetime(2024, 4, 5), "1h", time_zone="Europe/Berlin", eager=True)  # noqa: DTZ001
EXAMPLES: dict[str, tuple[Any, dict[str, Any]]] = {
    "months": (pl.date_range(date(2015, 1, 1), date(2023, 12, 1), "1mo", eager=True), {}),
    "working days": (pl.Series([date(2023, 1, 2) + timedelta(7 * w + d) for w in range(40) for d in range(5)]), {}),
    "numbers": (pl.Series(range(100)), {}),
    "another format": (pl.Series([f"{d:02d}.03.2023" for d in range(1, 31)]), {"time_format": "%d.%m.%Y"}),
    "local times": (BERLIN, {}),
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_has_the_times_and_columns_of_the_model(kind: str) -> None:
    times, more = EXAMPLES[kind]
    frame = pl.DataFrame({"shop": 7, "when": times, "sold": [float(t % 7 + 1) for t in range(len(times))]})
    names: dict[str, Any] = {"id_col": "shop", "time_col": "when", "target_col": "sold"}
    model = ls.SeasonalNaive(2, season=7).fit(frame, **names, **more)
    made = example(model)
    assert made.columns == ["shop", "when", "sold"]
    assert ls.check(made, model=model).ok
    assert len(model.predict(made)) == 2
