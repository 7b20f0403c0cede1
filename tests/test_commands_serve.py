"""`logsparse serve` as a process: it starts warm, refuses what is unsafe, drains, and survives the loss of a worker."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import psutil
import pytest

import logsparse as ls
from logsparse.data.files import encode
from logsparse.errors import ConfigError, DataError, NotFittedError
from serving import HORIZON, hourly, running, small_model

BODY = encode(hourly(), "csv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    small_model().save(place / "net")
    ls.SeasonalNaive(HORIZON).fit(hourly()).save(place / "naive")
    return place


def test_the_command_serves_what_the_folder_forecasts_and_ends_in_seconds(folder: Path, tmp_path: Path) -> None:
    with running(tmp_path / "log", folder / "net", folder / "naive") as server, server.client() as client:
        assert client.get("/healthz").json()["models"] == ["net", "naive"]
        answer = client.post("/v1/forecast?model=net", content=BODY, headers={"content-type": "text/csv"})
        found = pl.read_csv(answer.content).select(pl.exclude("unique_id", "ds")).cast(pl.Float32)
        wanted = ls.load(folder / "net").predict(hourly()).select(pl.exclude("unique_id", "ds"))
        np.testing.assert_array_equal(found.to_numpy(), wanted.to_numpy())
        began = time.monotonic()
        assert server.end() == 0
        assert time.monotonic() - began < 8
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0].startswith("logsparse: serving net, naive at http://127.0.0.1:")
    assert lines[1:] == ["logsparse: ended"]


def test_ctrl_c_lets_running_requests_finish(folder: Path, tmp_path: Path) -> None:
    with running(tmp_path / "log", folder / "net") as server:
        answers: list[int] = []

        def ask() -> None:
            path = f"{server.url}/v1/backtest?windows=20"
            answers.append(httpx.post(path, content=BODY, timeout=60).status_code)

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.1)
        assert server.end(signal.SIGINT) == 0
        thread.join()
        assert answers == [200]


def test_a_killed_worker_is_replaced_and_the_others_answer(folder: Path, tmp_path: Path) -> None:
    with running(tmp_path / "log", folder / "net", "--workers", 2) as server:
        supervisor = psutil.Process(server.process.pid)

        def workers() -> list[psutil.Process]:
            alive = [child for child in supervisor.children() if child.status() != psutil.STATUS_ZOMBIE]
            return [child for child in alive if "spawn_main" in " ".join(child.cmdline())]

        def post() -> int | None:
            try:
                return httpx.post(f"{server.url}/v1/forecast", content=BODY, timeout=30).status_code
            except httpx.TransportError:
                return None  # the connection of the worker that was killed

        first = {worker.pid for worker in workers()}
        assert len(first) == 2
        answers: list[int | None] = []
        threads = [threading.Thread(target=lambda: answers.append(post())) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.02)
        workers()[0].kill()
        for thread in threads:
            thread.join()
        assert set(answers) <= {200, None}
        for _ in range(300):
            alive = [worker.pid for worker in workers()]
            if len(alive) == 2 and set(alive) != first:
                break
            time.sleep(0.1)
        assert len(alive) == 2
        assert set(alive) != first
        assert [post() for _ in range(4)] == [200] * 4
        assert server.end() == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_an_address_that_others_can_reach_needs_a_token(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logsparse", "serve", str(folder / "net"), "--host", "0.0.0.0"]  # noqa: S104
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("logsparse: A server that others can reach must have a token.")
    assert "--token-file" in done.stderr
    short = tmp_path / "token"
    short.write_text("abc\n")
    with pytest.raises(ConfigError, match="with 3 characters") as caught:
        ls.serve(folder / "net", token_file=short)
    assert "abc" not in str(caught.value)
    with pytest.raises(ConfigError, match="No such file"):
        ls.serve(folder / "net", token_file=tmp_path / "missing")


def test_a_token_of_a_file_is_asked_for(folder: Path, tmp_path: Path) -> None:
    secret = "a-secret-of-many-letters"  # noqa: S105
    (tmp_path / "token").write_text(secret + "\n")
    with running(tmp_path / "log", folder / "naive", "--token-file", tmp_path / "token") as server:
        assert httpx.get(f"{server.url}/v1/models").status_code == 401
        headers = {"authorization": f"Bearer {secret}"}
        assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200
    assert secret not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"port": 70_000}, "port must be at most 65535."),
        ({"workers": 0}, "workers must be at least 1."),
        ({"max_body": "many"}, "max_body must be a size. Got 'many'. Hint: write it like 50MB."),
        ({"timeout": 0}, "timeout must be a number above 0."),
        ({"max_series": 0}, "max_series must be at least 1."),
    ],
)
def test_wrong_settings_are_refused(folder: Path, settings: dict[str, object], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        ls.serve(folder / "net", **settings)  # type: ignore[arg-type]


def test_what_cannot_be_served_is_refused_before_a_port_is_open(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be the folder of a saved logsparse model"):
        ls.serve(tmp_path / "nothing", port=0)
    with pytest.raises(NotFittedError):
        ls.serve(ls.SeasonalNaive(3), port=0)
    with pytest.raises(ConfigError, match="Several workers load the models themselves"):
        ls.serve(ls.SeasonalNaive(3).fit(hourly()), workers=2, port=0)
    with running(tmp_path / "log", folder / "naive") as server, pytest.raises(DataError, match="and free"):
        ls.serve(folder / "naive", port=server.port)


def test_without_the_extra_one_sentence_says_how_to_install_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logsparse.serving.server.find_spec", lambda name: None if name == "uvicorn" else object())
    with pytest.raises(ConfigError, match=r"Got no uvicorn. Hint: pip install logsparse\[serve\]"):
        ls.serve(folder / "net")


def test_nothing_of_the_library_needs_the_extra() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['fastapi', 'uvicorn', 'pydantic', 'starlette']));"
        "import logsparse as ls, logsparse.cli; ls.LogSparse, ls.serve"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
