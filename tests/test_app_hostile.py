"""Whatever a client sends is answered by a sentence and a status below 500, and the next good request is served."""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

import logsparse as ls
from logsparse.data.files import encode
from logsparse.serving.app import Settings
from serving import HORIZON, Here, here, hourly, small_model

CASES = int(os.environ.get("LOGSPARSE_CASES", "150"))
FORECAST = "/v1/forecast?model=net&horizon=1&quantiles=0.5"
PARQUET = encode(hourly(), "parquet")
FEATHER = encode(hourly(), "feather")


@pytest.fixture(scope="module")
def server() -> Iterator[Here]:
    models = {"net": small_model(), "naive": ls.SeasonalNaive(HORIZON).fit(hourly())}
    with here(models, Settings(max_body=4_000_000, max_series=1000)) as running:
        yield running


@pytest.fixture
def impatient() -> Iterator[Here]:
    with here({"naive": ls.SeasonalNaive(HORIZON).fit(hourly())}, Settings(timeout=1.0)) as running:
        yield running


def refused(answer: httpx.Response, status: int = 422) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert {"rule", "got", "hint"} <= error.keys()
    assert error["rule"][-1] == "."
    return error


def assert_serves(server: Here) -> None:
    assert server.post(FORECAST, PARQUET).status_code == 200


def damaged(blob: bytes, at: int, by: bytes) -> bytes:
    return blob[:at] + by + blob[at + len(by) :]


@pytest.mark.parametrize("end", [1, 5, 40, len(PARQUET) // 2, len(PARQUET) - 1])
@pytest.mark.parametrize("blob", [PARQUET, FEATHER], ids=["parquet", "feather"])
def test_a_truncated_file_is_refused(server: Here, blob: bytes, end: int) -> None:
    media = "application/vnd.apache.parquet" if blob is PARQUET else "application/vnd.apache.arrow.file"
    error = refused(server.post(FORECAST, blob[:end], media))
    assert "must be a readable" in error["rule"]


def test_files_with_wrong_bytes_are_refused_or_read_and_never_an_error_of_the_server(server: Here) -> None:
    rng = np.random.default_rng(0)
    for blob in (PARQUET, FEATHER) * 40:
        wrong = damaged(blob, int(rng.integers(6, len(blob) - 40)), rng.bytes(8))
        assert server.post(FORECAST, wrong).status_code in (200, 413, 422)
    assert_serves(server)


def test_a_small_file_that_holds_a_large_table_is_refused_before_it_is_read(server: Here) -> None:
    rows = pl.DataFrame({"unique_id": ["a"], "ds": [0], "y": [1.0]})
    many = encode(pl.concat([rows] * 1).select(pl.all().repeat_by(3_000_000).explode()), "parquet")
    assert "3,000,000 rows of 3 columns" in refused(server.post(FORECAST, many), 413)["got"]


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_a_small_file_that_expands_to_a_large_one_is_refused_before_it_is_read(server: Here, kind: str) -> None:
    text = pl.DataFrame({"unique_id": ["a" * 50_000_000], "ds": ["2024-01-01"], "y": [1.0]})
    blob = encode(text, "parquet") if kind == "parquet" else _compressed(text)
    assert len(blob) < 20_000
    assert "bytes when it is decompressed" in refused(server.post(FORECAST, blob), 413)["got"]


def _compressed(table: pl.DataFrame) -> bytes:
    from io import BytesIO

    buffer = BytesIO()
    table.write_ipc(buffer, compression="zstd")
    return buffer.getvalue()


def test_compressed_text_is_refused(server: Here) -> None:
    error = refused(server.post(FORECAST, gzip.compress(hourly().write_csv().encode()), "text/csv"))
    assert error["got"] == "a compressed file"


def test_too_many_series_are_refused(server: Here) -> None:
    many = pl.DataFrame({"unique_id": np.arange(100_000), "ds": "2024-01-01", "y": 1.0})
    assert refused(server.post(FORECAST, encode(many, "parquet")), 413)["got"] == "100,000"
    inputs = [{"name": str(i), "series": [1], "frequency": "H"} for i in range(1001)]
    body = json.dumps({"model": "net", "inputs": inputs}).encode()
    assert refused(server.post("/v1/timeseries/forecast", body), 413)["got"] == "1,001"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, 1e37])
def test_values_that_cannot_be_forecast_from_are_refused(server: Here, value: float) -> None:
    refused(server.post(FORECAST, encode(hourly().with_columns(y=pl.lit(value)), "parquet")))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"null",
        b"[" * 100_000,
        b'{"a": [1], "b": [1, 2]}',
        b'{"a": 1}',
        b"[1, 2]",
        b'[{"unique_id": "a", "ds": "2024-01-01", "y": ' + b"9" * 5000 + b"}]",
        b'[{"unique_id": {"a": 1}, "ds": "2024-01-01", "y": 1}]',
        b'[{"unique_id": "a", "ds": [], "y": "x"}]',
        b"\xff\xfe\x00",
    ],
)
@pytest.mark.parametrize("path", [FORECAST, "/v1/timeseries/forecast", "/v1/check?model=net"])
def test_a_body_that_is_no_table_is_refused(server: Here, path: str, body: bytes) -> None:
    refused(server.post(path, body, "application/json"))


@pytest.mark.parametrize(
    "start", ["9999-12-31T23:00:00", "0001-01-01T00:00:00+14:00", "x", "", 5, None, "2024-01-09T00:00:00Z"]
)
def test_a_start_that_does_not_fit_is_refused(server: Here, start: object) -> None:
    entry = {"name": "x", "series": [1, 2, 3], "frequency": "H", "start_timestamp": start}
    body = json.dumps({"model": "net", "inputs": [entry]}).encode()
    refused(server.post("/v1/timeseries/forecast", body))


def test_a_body_that_is_too_large_is_refused_whether_it_names_its_size_or_not(server: Here) -> None:
    assert refused(server.post(FORECAST, b"x" * 4_000_001), 413)["got"] == "4,000,001 bytes"
    with server.client() as client:
        refused(client.post(FORECAST, content=(b"x" * 1_000_000 for _ in range(6))), 413)
    assert_serves(server)


def test_a_slow_sender_is_cut_off_and_others_are_served_meanwhile(impatient: Here) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port)) as slow:
        slow.sendall(b"POST /v1/forecast HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        slow.sendall(b"u")
        assert impatient.post("/v1/check", PARQUET).status_code == 200
        slow.settimeout(10)
        answer = b"".join(iter(lambda: slow.recv(4096), b"")).decode()
    assert answer.startswith("HTTP/1.1 408")
    assert "1 bytes of it" in answer


def test_slow_senders_take_no_place_in_the_queue() -> None:
    with here({"net": ls.SeasonalNaive(HORIZON).fit(hourly())}, Settings(queue=2)) as server:
        slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for one in slow:
            one.sendall(b"POST /v1/forecast HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nu")
        for _ in range(100):
            if server.guard.held == len(slow):
                break
            time.sleep(0.05)
        assert server.guard.held == len(slow)
        assert_serves(server)
        for one in slow:
            one.close()


def test_a_table_of_very_many_columns_is_refused_before_they_are_read(server: Here) -> None:
    names = b",".join(b"c%d" % number for number in range(20_000))
    body = b"ds," + names + b"\n2024-01-01" + 20_000 * b",1" + b"\n2024-01-02" + 20_000 * b",1" + b"\n"
    error = refused(server.post(FORECAST, body, "text/csv"), 413)
    assert error["rule"] == "A table must have at most 2,000 columns."
    assert error["got"] == "20,001"


def test_an_upgrade_is_answered_as_any_request_and_leaves_no_line_in_the_log(server: Here) -> None:
    with server.client() as client:
        answer = client.get("/healthz", headers={"connection": "upgrade", "upgrade": "websocket"})
    assert answer.status_code == 200
    assert "upgrade" not in Path(server.log).read_text().lower()


def test_connections_that_send_nothing_or_half_a_head_are_closed(server: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logsparse.serving.guard.HEAD_SECONDS", 0.5)
    quiet = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    quiet[1].sendall(b"POST /v1/forecast HTTP/1.1\r\nHos")
    assert_serves(server)
    began = time.monotonic()
    for one in quiet:
        one.settimeout(10)
        one.recv(4096)
        one.close()
    assert time.monotonic() - began < 8


def test_a_client_that_leaves_is_forgotten(server: Here) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port)) as gone:
            head = f"POST {FORECAST} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(PARQUET)}\r\n\r\n"
            gone.sendall(head.encode() + PARQUET)
    assert_serves(server)
    assert server.guard.engine.under_way <= 1
    for _ in range(100):
        if server.guard.held == 0 == server.guard.engine.under_way:
            break
        time.sleep(0.05)
    assert server.guard.held == 0 == server.guard.engine.under_way


def test_no_path_leads_out_of_the_page(server: Here) -> None:
    with server.client() as client:
        for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"):
            refused(client.get(path), 404)


def test_generated_requests_are_answered_as_the_schema_says(server: Here) -> None:
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    checks = [status_code_conformance, response_schema_conformance]

    @settings(max_examples=CASES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=document.as_strategy())
    def ask(case: Any) -> None:
        answer = case.call(base_url=server.url)
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        case.validate_response(answer, checks=checks)

    ask()
    assert_serves(server)


def test_no_traceback_was_logged(server: Here, caplog: pytest.LogCaptureFixture) -> None:
    assert_serves(server)
    assert "Traceback" not in Path(server.log).read_text()
    assert not [record for record in caplog.records if record.exc_info]
