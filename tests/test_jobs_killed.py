"""A job that is killed, stopped or loses a worker ends with the same bytes, and makes no part twice.

LOGSPARSE_KILLS sets the number of random moments: 30 take some minutes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import logsparse as ls
from small_shards import PARTS, command, contents, entries, frame, network, wait_for_entries

KILLS = int(os.environ.get("LOGSPARSE_KILLS", "3"))
SLOW = ("--samples", 1000)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts, a model, and its forecasts by one process that nobody disturbs."""
    folder = tmp_path_factory.mktemp("shards")
    ls.shard(frame(), folder / "parts", parts=PARTS)
    network(folder / "model")
    ls.predict_shards(folder / "model", folder / "parts", folder / "whole", jobs=1, samples=1000, verbose=False)
    return folder


def workers(process: psutil.Process) -> list[psutil.Process]:
    found = []
    with suppress(psutil.NoSuchProcess):  # the command ends at any moment, and its workers with it
        for child in process.children(recursive=True):
            found += [child] if "cluster.workers" in " ".join(child.cmdline()) else []
    return found


def made(out: Path) -> dict[str, int]:
    """When each part was written."""
    return {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}


def test_kill_9_at_random_moments_loses_nothing_and_repeats_nothing(place: Path, tmp_path: Path) -> None:
    dice = random.Random(0)  # noqa: S311 - the moments need no secrecy
    out, number = tmp_path / "0", 0
    for kill in range(KILLS):
        before = {name: time for name, time in made(out).items() if Path(name).stem in entries(out)}
        with command("predict", place / "model", place / "parts", "-o", out, "--jobs", 2, *SLOW) as process:
            # Every third time anywhere, from the first import on; else in the middle of the parts.
            if kill % 3:
                wait_for_entries(out, len(before) + 1, process)
                time.sleep(dice.uniform(0, 0.5))
            else:
                time.sleep(dice.uniform(0, 6))
            children = workers(psutil.Process(process.pid)) if process.poll() is None else []
            # The command alone, or together with its workers; nothing is left of one that was done.
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL) if kill % 2 else os.killpg(process.pid, signal.SIGKILL)
        assert not psutil.wait_procs(children, timeout=20)[1], "workers end with the command"
        # What the ledger has is whole, and what it had was not made again.
        assert {name: made(out)[name] for name in before} == before
        whole = contents(place / "whole")
        assert all(contents(out)[f"{name}.parquet"] == whole[f"{name}.parquet"] for name in entries(out))
        if len(entries(out)) == PARTS:
            assert contents(out) == whole
            number += 1
            out = tmp_path / str(number)
    with command("predict", place / "model", place / "parts", "-o", out, "--jobs", 2, *SLOW) as process:
        assert process.wait(120) == 0
    assert contents(out) == contents(place / "whole")
    assert not list(out.rglob("*.part"))


def test_after_ctrl_c_finished_parts_stay_and_a_lost_worker_is_replaced(place: Path, tmp_path: Path) -> None:
    words = ("predict", place / "model", place / "parts", "-o", tmp_path / "out", "--jobs", 2, *SLOW)
    with command(*words) as process:
        wait_for_entries(tmp_path / "out", 1, process)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to the workers too
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 130, said
        assert time.monotonic() - began < 10
        assert "logsparse: stopped." in said
        assert "Traceback" not in said
    kept = made(tmp_path / "out")
    assert 0 < len(entries(tmp_path / "out")) < PARTS
    with command(*words) as process:
        while not (found := workers(psutil.Process(process.pid))):
            time.sleep(0.05)
        time.sleep(0.5)
        found[0].kill()
        assert process.wait(120) == 0
    assert contents(tmp_path / "out") == contents(place / "whole")
    assert {name: made(tmp_path / "out")[name] for name in kept} == kept
    documents = (tmp_path / "out" / "_ledger" / "done").glob("*.json")
    assert max(json.loads(path.read_text())["attempt"] for path in documents) == 2
