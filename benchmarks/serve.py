"""Latency, throughput and memory of `logsparse serve`: one hourly series per request, with and without batches.

python benchmarks/serve.py [MODEL] [--seconds 4] [--rounds 3] [--requests 10000]

Without MODEL, the example of the README is fitted first. Two servers, one that batches and one that does not, run in
processes of their own on two cores at most and are measured in turn; clients are coroutines of this process that keep
their connections. The reference is a plain loop of `predict` calls in another process. Prints a table and writes one
JSON file to results/.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import psutil

import logsparse as ls
from machine import write_result

CLIENTS = (1, 8, 64)
QUANTILES = (0.1, 0.5, 0.9)
MODES = {"batches": True, "one by one": False}


def fitted(folder: str) -> None:
    """Fit the example of the README in a few steps: speed does not depend on their number."""
    hours = np.arange("2024-01-01", "2024-03-01", dtype="datetime64[h]").astype("datetime64[us]")
    wave = 10 + 5 * np.sin(np.arange(len(hours)) * np.pi / 12) + np.random.default_rng(0).normal(size=len(hours))
    frame = pl.DataFrame({"unique_id": "north", "ds": hours, "y": wave})
    ls.LogSparse(horizon=24, steps=20, verbose=False).fit(frame).save(folder)


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


def request(frame: pl.DataFrame, frequency: str) -> bytes:
    """Return an HTTP request in KServe's schema."""
    start = frame["ds"][0]
    entry = {
        "name": frame["unique_id"][0],
        "series": frame["y"].to_list(),
        "frequency": frequency,
        "start_timestamp": start if isinstance(start, int) else start.isoformat(),
    }
    body = json.dumps({"inputs": [entry], "options": {"quantiles": QUANTILES}}).encode()
    return b"POST /v1/timeseries/forecast HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def serve(folder: str, batch: bool, ready: Any) -> None:
    """Run a server and send its port."""
    import uvicorn

    from logsparse.serving.app import Settings, create_app
    from logsparse.serving.server import configured, listen

    listener = listen("127.0.0.1", 0)
    app = create_app({"model": ls.load(folder)}, Settings(batch=batch))
    ready.send(listener.getsockname()[1])
    uvicorn.Server(configured(app, listener)).run(sockets=[listener])


@contextmanager
def running(folder: str, batch: bool) -> Iterator[tuple[int, psutil.Process]]:
    """Run a server until the block ends; return its port and its process."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=serve, args=(folder, batch, theirs), daemon=True)
    process.start()
    try:
        port = mine.recv()
        while httpx.get(f"http://127.0.0.1:{port}/readyz").status_code != 200:
            time.sleep(0.1)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.join()


def loop(folder: str, seconds: float, answer: Any) -> None:
    """Call `predict` in a loop and send the rate."""
    model = ls.load(folder)
    model.verbose = False  # type: ignore[attr-defined]
    logging.getLogger("logsparse").setLevel(logging.ERROR)  # every series is new, which is no news here
    frames = histories(model)
    model.predict(frames[0], quantiles=QUANTILES)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        model.predict(frames[count % len(frames)], quantiles=QUANTILES)
        count += 1
    answer.send(count / (time.perf_counter() - began))


async def load(
    port: int, requests: list[bytes], clients: int, *, seconds: float = 1e9, most: int = 10**9
) -> list[float]:
    """Return the latency of every request that `clients` clients send one after another."""
    until, taken, sent = time.perf_counter() + seconds, [], 0

    async def client(number: int) -> None:
        nonlocal sent
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until and sent < most:
            sent += 1
            began = time.perf_counter()
            writer.write(requests[(number + sent) % len(requests)])
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 200"), head
            await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            taken.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return taken


def measure(folder: str, requests: list[bytes], clients: int, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Return rates, latencies and processor time of both servers, in turn; the middle one of all rounds."""
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    with running(folder, True) as one, running(folder, False) as other:
        for number in range(rounds + 1):
            for mode, (port, process) in zip(MODES, (one, other), strict=True):
                before, began = sum(process.cpu_times()[:2]), time.perf_counter()
                taken = asyncio.run(load(port, requests, clients, seconds=seconds if number else 1))
                rate = len(taken) / (time.perf_counter() - began)
                used = 1e3 * (sum(process.cpu_times()[:2]) - before) / len(taken)
                p50, p99 = (1e3 * float(np.quantile(taken, level)) for level in (0.5, 0.99))
                row = {"per second": rate, "p50 ms": p50, "p99 ms": p99, "processor ms": used}
                # The first round warms up.
                found[mode] += [row] if number else []
    middle = {
        mode: {key: float(np.median([row[key] for row in rows])) for key in rows[0]} for mode, rows in found.items()
    }
    return [{"mode": mode, "clients": clients, **row} for mode, row in middle.items()]


def memory(folder: str, requests: list[bytes], count: int) -> dict[str, Any]:
    """Return the MiB of a new server after a tenth of the requests, and after all of them."""
    with running(folder, True) as (port, process):
        asyncio.run(load(port, requests, 64, most=count // 10))
        early = process.memory_info().rss / 2**20
        asyncio.run(load(port, requests, 64, most=count - count // 10))
        return {
            "mode": "memory",
            "requests": count,
            "MiB after a tenth": early,
            "MiB": process.memory_info().rss / 2**20,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="folder of a fitted model without covariates")
    parser.add_argument("--seconds", type=float, default=4, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=10_000, help="requests of the measurement of memory")
    asked = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    with tempfile.TemporaryDirectory() as place:
        folder = asked.model or str(Path(place) / "model")
        if asked.model is None:
            fitted(folder)
        model = ls.load(folder)
        requests = [request(frame, str(model.panel_.freq)) for frame in histories(model)]
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        process = context.Process(target=loop, args=(folder, asked.seconds, theirs))
        process.start()
        rows: list[dict[str, Any]] = [{"mode": "predict in a loop", "clients": 1, "per second": mine.recv()}]
        process.join()
        for clients in CLIENTS:
            rows += measure(folder, requests, clients, asked.seconds, asked.rounds)
        rows.append(memory(folder, requests, asked.requests))
    rates = {row["mode"]: row["per second"] for row in rows if row.get("clients") == CLIENTS[-1]}
    rows.append({"mode": "ratio", "clients": CLIENTS[-1], "ratio": rates["batches"] / rates["one by one"]})
    for row in rows:
        print("  ".join(f"{key} {value:.1f}" if isinstance(value, float) else f"{value}" for key, value in row.items()))
    print(f"wrote {write_result('serve', rows).name}")


if __name__ == "__main__":
    main()
