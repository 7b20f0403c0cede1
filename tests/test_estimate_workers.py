"""Workers answer every task once, in order, whatever happens to them, and leave no process behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from logsparse.baselines import estimate as workers
from logsparse.baselines.estimate import answers

# A stand-in that starts at once: it returns the task, and dies if the task says so.
ECHO = """
import json, os, sys
for line in sys.stdin:
    task = json.loads(line)
    if task["say"] == "die":
        os._exit(1)
    print(json.dumps({"said": task["say"], "by": os.getpid()}), flush=True)
"""


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_SERVE", ECHO)


def tasks(*says: str) -> list[dict[str, Any]]:
    return [{"say": say, "model": None} for say in says]


@pytest.mark.usefixtures("echo")
def test_answers_come_in_the_order_of_the_tasks_from_several_processes() -> None:
    done: list[int] = []
    says = [str(number) for number in range(40)]
    found = answers(tasks(*says), 3, lambda: done.append(1))
    assert [one["said"] for one in found] == says
    assert len(done) == 40
    assert 1 <= len({one["by"] for one in found}) <= 3
    assert not any(psutil.pid_exists(one["by"]) for one in found)


@pytest.mark.usefixtures("echo")
def test_a_task_that_kills_its_process_fails_alone() -> None:
    found = answers(tasks("a", "die", "b", "die", "c", "d", "e", "f", "g", "h"), 2, lambda: None)
    assert [one.get("said", one.get("failed")) for one in found] == [
        "a", "its process died", "b", "its process died", *"cdefgh",
    ]  # fmt: skip


@pytest.mark.usefixtures("echo")
def test_an_interrupt_ends_the_processes() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answers(tasks(*"abcdefghij"), 2, interrupt)
    assert not [child for child in psutil.Process().children() if "json.loads(line)" in " ".join(child.cmdline())]


def test_few_tasks_are_worked_off_without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "answer", lambda task: {"here": task["say"]})
    monkeypatch.setattr(workers, "Worker", None)
    assert answers(tasks(*"abcdefg"), 8, lambda: None)[-1] == {"here": "g"}
    assert len(answers(tasks(*"abcdefghijkl"), 1, lambda: None)) == 12
    forward = [{"say": "a", "model": {}}] * 500
    assert len(answers(forward, 8, lambda: None)) == 500


SCRIPT = """
import sys
import numpy as np, polars as pl
import logsparse as ls

print("once")
rng = np.random.default_rng(0)
frame = pl.concat(pl.DataFrame({"unique_id": i, "ds": range(30), "y": rng.normal(10, 1, 30)}) for i in range(8))
alone = ls.AutoETS(3, processes=1, verbose=False).fit(frame).predict()
together = ls.AutoETS(3, processes=2, verbose=False).fit(frame).predict()
assert alone.equals(together), (alone, together)
assert "torch" not in sys.modules
"""


def test_a_script_without_a_guard_runs_once_and_processes_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    found = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "once\n", "")
