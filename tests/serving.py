"""A server on loopback for tests: the real command in a process, and small models that it serves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl

import logsparse as ls

HORIZON = 6


def hourly(names: tuple[str, ...] = ("north", "south", "east"), days: int = 8) -> pl.DataFrame:
    """Return a long table of hours."""
    hours = np.arange("2024-01-01", f"2024-01-{days + 1:02d}", dtype="datetime64[h]").astype("datetime64[us]")
    rng = np.random.default_rng(0)
    wave = 10 + 5 * np.sin(np.arange(len(hours)) * np.pi / 12)
    parts = [pl.DataFrame({"unique_id": name, "ds": hours, "y": wave + rng.normal(size=len(hours))}) for name in names]
    return pl.concat(parts)


def small_model(**settings: Any) -> ls.LogSparse:
    """Return a small network, hardly trained."""
    small = {"context": 24, "steps": 2, "layers": 2, "width": 16, "heads": 2, "batch": 4, "lags": (1, 24)}
    return ls.LogSparse(horizon=HORIZON, verbose=False, **{**small, **settings}).fit(hourly())


@dataclass
class Running:
    """A server process."""

    process: subprocess.Popen[str]
    url: str
    log: Path

    def client(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, **more)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)


@contextmanager
def running(log: Path, *arguments: object) -> Iterator[Running]:
    """Run `logsparse serve` on a free port until the block ends."""
    command = [sys.executable, "-m", "logsparse", "serve", *map(str, arguments), "--port", "0"]
    with log.open("w") as out:
        process = subprocess.Popen(
            command, stderr=out, stdout=out, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    try:
        url = ""
        while not url:
            found = re.search(r" at (http://\S+)", log.read_text())
            url = found[1] if found else ""
            if process.poll() is not None:
                raise AssertionError(log.read_text())
        server = Running(process, url, log)
        for _ in range(600):
            try:
                if httpx.get(f"{url}/readyz", timeout=10).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
            if process.poll() is not None:
                raise AssertionError(log.read_text())
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@dataclass
class Here:
    """A server in a thread of this process."""

    guard: Any
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, **more)

    def post(self, path: str, body: bytes, media: str = "application/octet-stream", **headers: str) -> httpx.Response:
        with self.client() as client:
            return client.post(path, content=body, headers={"content-type": media, **headers})


@contextmanager
def here(models: dict[str, Any], settings: Any = None) -> Iterator[Here]:
    """Serve models by uvicorn in a thread until the block ends."""
    import logging
    import tempfile
    import threading

    import uvicorn

    from logsparse.serving.app import create_app
    from logsparse.serving.server import configured, listen

    listener = listen("127.0.0.1", 0)
    guard = create_app(models, settings)
    server = uvicorn.Server(configured(guard, listener))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        handler = logging.FileHandler(log)
        logging.getLogger().addHandler(handler)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield Here(guard, listener.getsockname()[1], log)
        finally:
            server.should_exit = True
            thread.join(20)
            logging.getLogger().removeHandler(handler)
            handler.close()
            listener.close()
