"""A kind of save, killed by kill -9 at each file operation and at random moments -> one save is always complete."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from save_until_killed import save, saved_step

Saver = Callable[[int, int], Iterator[str]]


@contextmanager
def saver(what: str, path: Path) -> Iterator[Saver]:
    """Yield a function that starts a saving child and yields the lines it prints until it is dead."""
    script = Path(__file__).with_name("save_until_killed.py")
    with subprocess.Popen(
        [sys.executable, str(script), what, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to_child, from_child = process.stdin, process.stdout

        def start(first: int, operation: int) -> Iterator[str]:
            to_child.write(f"{first} {operation}\n")
            to_child.flush()
            for line in from_child:
                if line == "dead\n":
                    return
                yield line.strip()

        yield start
        to_child.close()


def started(lines: Iterator[str]) -> int:
    """The process id of a child that has just been started."""
    return int(next(lines).removeprefix("child "))


def check_kills_at_each_operation(what: str, path: Path, start: Saver) -> None:
    """The old save is there before the switch, the new one after it."""
    steps: list[int] = []
    said: list[str] = []
    while "saved 1" not in said:
        save(what, path, 0)
        said = list(start(1, len(steps) + 1))
        steps.append(saved_step(what, path))
    assert steps == sorted(steps)
    assert set(steps) == {0, 1}
    assert len(steps) > 6


def check_kills_at_random_moments(what: str, path: Path, start: Saver, kills: int) -> None:
    """The last reported save is there, or the one that was being written."""
    dice = random.Random(8)  # noqa: S311 - the moments need no secrecy
    save(what, path, 0)
    last = 0
    for kill in range(kills):
        saved = last
        lines = start(last + 1, 0)
        child = started(lines)
        if kill % 2:  # the disk may be slower than any wait here, so every other child finishes one save
            saved = int(next(lines).removeprefix("saved "))
        time.sleep(dice.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        for line in lines:
            saved = int(line.removeprefix("saved "))
        last = saved_step(what, path)
        assert saved <= last <= saved + 1
    assert last >= kills // 2
