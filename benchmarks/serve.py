"""Latency, throughput and memory of `logsparse serve`: a warm model, one series per request, with and without batches.

python benchmarks/serve.py MODEL [--seconds 10] [--requests 10000] [--json FILE]

The server runs in a process of its own on two cores at most; clients are coroutines of this process. The reference is a
plain loop of `predict` calls in a third process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import psutil

import logsparse as ls

CLIENTS = (1, 8, 64)
QUANTILES = (0.1, 0.5, 0.9)


def histories(model: ls.Forecaster, count: int = 64) -> list[pl.DataFrame]:
    """Return histories of one new series each, on the step of the model."""
    panel, rng = model.panel_, np.random.default_rng(0)
    length = int(panel.lengths.max())
    steps = panel.freq.add(np.full(length, panel.starts[0]), np.arange(length))
    times = pl.Series(steps if panel.freq.kind == "index" else steps.astype("datetime64[us]"))
    wave = 10 + 5 * np.sin(np.arange(length) * 2 * np.pi / max(panel.freq.season, 2))
    return [
        pl.DataFrame({"unique_id": f"s{i}", "ds": times, "y": np.abs(wave + rng.normal(size=length))})
        for i in range(count)
    ]


def body(frame: pl.DataFrame, frequency: str) -> bytes:
    """Return a KServe request."""
    start = frame["ds"][0]
    entry = {
        "name": frame["unique_id"][0],
        "series": frame["y"].to_list(),
        "frequency": frequency,
        "start_timestamp": start if isinstance(start, int) else start.isoformat(),
    }
    return json.dumps({"inputs": [entry], "options": {"quantiles": QUANTILES}}).encode()


def serve(folder: str, batch: bool, ready: Any) -> None:
    """Run a server and send its port."""
    import uvicorn

    from logsparse.serving.app import Settings, create_app
    from logsparse.serving.server import configured, listen

    listener = listen("127.0.0.1", 0)
    app = create_app({"model": ls.load(folder)}, Settings(batch=batch, queue=1024))
    ready.send(listener.getsockname()[1])
    uvicorn.Server(configured(app, listener)).run(sockets=[listener])


def loop(folder: str, seconds: float, answer: Any) -> None:
    """Call `predict` in a loop and send the rate."""
    model = ls.load(folder)
    model.verbose = False  # type: ignore[attr-defined]
    frames = histories(model)
    model.predict(frames[0], quantiles=QUANTILES)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        model.predict(frames[count % len(frames)], quantiles=QUANTILES)
        count += 1
    answer.send(count / (time.perf_counter() - began))


async def load(port: int, bodies: list[bytes], clients: int, seconds: float, most: int | None = None) -> list[float]:
    """Return the latency of every request that `clients` clients send one after another."""
    until, taken, sent = time.perf_counter() + seconds, [], 0

    async def client(number: int, http: httpx.AsyncClient) -> None:
        nonlocal sent
        while time.perf_counter() < until if most is None else sent < most:
            sent += 1
            began = time.perf_counter()
            answer = await http.post("/v1/timeseries/forecast", content=bodies[(number + sent) % len(bodies)])
            assert answer.status_code == 200, answer.text
            taken.append(time.perf_counter() - began)

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120, limits=limits) as http:
        await asyncio.gather(*(client(number, http) for number in range(clients)))
    return taken


def measure(folder: str, batch: bool, seconds: float, requests: int) -> dict[str, Any]:
    """Return latencies and rates of one server, and its memory."""
    model = ls.load(folder)
    bodies = [body(frame, str(model.panel_.freq)) for frame in histories(model)]
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=serve, args=(folder, batch, theirs), daemon=True)
    process.start()
    port = mine.recv()
    found: dict[str, Any] = {}
    try:
        while httpx.get(f"http://127.0.0.1:{port}/readyz").status_code != 200:
            time.sleep(0.1)
        for clients in CLIENTS:
            taken = asyncio.run(load(port, bodies, clients, seconds))
            found[f"{clients} clients"] = {
                "per second": len(taken) / seconds,
                "p50 ms": 1e3 * float(np.quantile(taken, 0.5)),
                "p99 ms": 1e3 * float(np.quantile(taken, 0.99)),
            }
        if batch:
            memory = psutil.Process(process.pid)
            for part in (requests // 10, requests - requests // 10):
                asyncio.run(load(port, bodies, 8, 0, most=part))
                found[f"MiB after {part} more"] = memory.memory_info().rss / 2**20
    finally:
        process.terminate()
        process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a fitted model without covariates")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--requests", type=int, default=10_000, help="requests of the measurement of memory")
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=loop, args=(told.model, told.seconds, theirs))
    process.start()
    result: dict[str, Any] = {"predict in a loop, per second": mine.recv()}
    process.join()
    for batch in (True, False):
        result["batching" if batch else "no batching"] = measure(told.model, batch, told.seconds, told.requests)
    print(f"predict in a loop: {result['predict in a loop, per second']:.1f} per second")
    for name in ("batching", "no batching"):
        for row, value in result[name].items():
            shown = ", ".join(f"{k} {v:.1f}" for k, v in value.items()) if isinstance(value, dict) else f"{value:.0f}"
            print(f"{name:12} {row:20} {shown}")
    if told.json:
        told.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
