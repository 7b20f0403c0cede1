"""The engine: histories that wait are decoded together, cancelled ones are dropped, one bad history harms no other."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import logsparse as ls
from logsparse.data.panel import Panel
from logsparse.errors import DataError
from logsparse.process import torch_threads
from logsparse.serving.batching import Engine, warm_up
from serving import HORIZON, hourly

LEVELS = (0.5,)


class Counting(ls.SeasonalNaive):
    """Records the ids of every call, waits for a signal, and cannot forecast the series named bad."""

    def prepare(self) -> None:
        self.calls: list[list[str]] = []
        self.go = threading.Event()

    def summaries(self, histories: Any, levels: Any) -> Iterator[ls.Forecast]:
        self.calls.append([str(name) for panel in histories for name in panel.ids])
        self.go.wait(10)
        if any("bad" in panel.ids for panel in histories):
            raise DataError("Nothing may be bad.", got="bad", hint="rename it.")
        return super().summaries(histories, levels)


@pytest.fixture
def model() -> Counting:
    fitted = Counting(HORIZON).fit(hourly())
    fitted.prepare()
    return fitted


def history(name: str) -> Panel:
    return ls.to_panel(hourly((name,)))


async def started(model: Counting, engine: Engine, *names: str) -> list[asyncio.Task[ls.Forecast]]:
    """Return the tasks of requests of which the first is being decoded and the others wait."""
    tasks = []
    for number, name in enumerate(names):
        tasks.append(asyncio.create_task(engine.forecast(model, history(name), LEVELS)))
        while len(model.calls) < 1 or engine.waiting < number:  # noqa: ASYNC110 - a thread changes it
            await asyncio.sleep(0.001)
    return tasks


def test_histories_that_wait_are_decoded_by_one_call(model: Counting) -> None:
    async def run() -> None:
        engine = Engine(queue=10)
        tasks = await started(model, engine, "a", "b", "c")
        model.go.set()
        found = await asyncio.gather(*tasks)
        assert [forecast.panel.ids for forecast in found] == [("a",), ("b",), ("c",)]
        assert (engine.batches, engine.batched, engine.series) == (2, 3, 3)
        engine.close()

    asyncio.run(run())
    assert model.calls == [["a"], ["b", "c"]]


def test_without_batching_each_is_decoded_by_itself(model: Counting) -> None:
    async def run() -> None:
        engine = Engine(queue=10, batch=False)
        tasks = await started(model, engine, "a", "b", "c")
        model.go.set()
        await asyncio.gather(*tasks)
        engine.close()

    asyncio.run(run())
    assert model.calls == [["a"], ["b"], ["c"]]


def test_a_request_that_is_cancelled_while_it_waits_is_not_decoded(model: Counting) -> None:
    async def run() -> None:
        engine = Engine(queue=10)
        tasks = await started(model, engine, "a", "gone", "c")
        tasks[1].cancel()
        await asyncio.sleep(0)
        model.go.set()
        await asyncio.gather(tasks[0], tasks[2])
        engine.close()

    asyncio.run(run())
    assert model.calls == [["a"], ["c"]]


def test_a_history_that_cannot_be_forecast_harms_no_other_of_its_batch(model: Counting) -> None:
    async def run() -> None:
        engine = Engine(queue=10)
        tasks = await started(model, engine, "a", "b", "bad", "c")
        model.go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[2], DataError)
        assert [one.panel.ids for one in found if isinstance(one, ls.Forecast)] == [("a",), ("b",), ("c",)]
        engine.close()

    asyncio.run(run())


def test_a_full_engine_says_so_and_a_closed_one_drops_what_waits(model: Counting) -> None:
    async def run() -> None:
        engine = Engine(queue=1)
        full = [engine.full]
        engine.under_way += 1
        assert [*full, engine.full] == [False, True]
        tasks = await started(model, engine, "a", "b")
        engine.close()
        model.go.set()
        await tasks[0]
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        assert not engine.alive

    asyncio.run(run())


def test_a_model_saved_without_its_history_is_warmed_up_too(tmp_path: Any) -> None:
    ls.SeasonalNaive(HORIZON).fit(hourly()).save(tmp_path / "model", history=False)
    warm_up(ls.load(tmp_path / "model"))


def test_small_batches_leave_the_cores_to_the_readers_and_threads_are_given_back() -> None:
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for most, used in ((0, 1), (1, 1), (2, 2), (9, 2)):
            with torch_threads(most):
                assert torch.get_num_threads() == used
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_lone_request_does_not_wait_for_others(model: Counting) -> None:
    async def run() -> float:
        engine = Engine(queue=8)
        engine.under_way = 1
        model.go.set()
        began = time.monotonic()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("logsparse.serving.batching.LINGER", 5.0)
            await engine.forecast(model, history("a"), LEVELS)
        engine.close()
        return time.monotonic() - began

    assert asyncio.run(run()) < 4
