"""`python -m fuzz --number N --seed S`, run in tests/ -> hostile cases, counts by kind and outcome, every finding.

The cases run in a child process. A case that takes longer than the limit is a hang: the child is killed, the case is
reported, and a new child continues with the next one.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import selectors
import subprocess
import sys
import tempfile
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fuzz.case import ACCEPTED, REFUSED, outcome

# Every generator has a function `case(rng, folder) -> Case`.
GENERATORS = tuple(name for name in ("frames", "files", "folders") if importlib.util.find_spec(f"fuzz.{name}"))
WRONG, TRACEBACK, CRASH, HANG = "wrong", "traceback", "crash", "hang"
FINDINGS = (WRONG, TRACEBACK, CRASH, HANG)


class Task(NamedTuple):
    """Number of a case of a generator; with the same seed it is the same case on every machine."""

    generator: str
    number: int


def tasks(names: Sequence[str], first: int, number: int) -> list[Task]:
    """Return `number` cases, in turn from each generator."""
    return [Task(names[i % len(names)], first + i // len(names)) for i in range(number)]


def run_one(task: Task, seed: int) -> dict[str, Any]:
    """Return the outcome of a case, with the traceback if it is a finding."""
    module = importlib.import_module(f"fuzz.{task.generator}")
    rng = np.random.default_rng([seed, task.number, zlib.crc32(task.generator.encode())])
    described = {"kind": task.generator, "label": "a case that could not be made"}
    with tempfile.TemporaryDirectory(prefix="logsparse-fuzz-") as name:
        try:
            case = module.case(rng, Path(name))
            described = {"kind": case.kind, "label": case.label}
            return {**described, "outcome": outcome(case)}
        except AssertionError as error:
            return {**described, "outcome": WRONG, "detail": str(error) or traceback.format_exc()}
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a panic of polars is not an Exception
            return {**described, "outcome": TRACEBACK, "detail": "\n".join(traceback.format_exc().splitlines()[-8:])}


def child(todo: Sequence[Task], seed: int) -> None:
    """Run the tasks, printing a line of JSON after each."""
    for task in todo:
        sys.stdout.write(json.dumps(run_one(task, seed)) + "\n")
        sys.stdout.flush()


def results(todo: list[Task], seed: int, limit: float) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Yield the results of the children; one that hangs or dies is replaced."""
    with tempfile.TemporaryDirectory(prefix="logsparse-fuzz-") as root:
        # A killed child leaves its folder behind; it is removed with this one.
        yield from _results(todo, seed, limit, {**os.environ, "TMPDIR": root})


def _results(
    todo: list[Task], seed: int, limit: float, environment: dict[str, str]
) -> Iterator[tuple[Task, dict[str, Any]]]:
    while todo:
        command = [sys.executable, "-m", "fuzz", "--child", "--seed", str(seed)]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[1],
            env=environment,
        ) as process:
            assert process.stdin is not None
            process.stdin.write(json.dumps(todo).encode())
            process.stdin.close()
            for result in _lines(process, limit):
                yield todo.pop(0), result
            if todo:
                hung = process.poll() is None
                process.kill()
                yield todo[0], {"kind": todo.pop(0).generator, "label": "", "outcome": HANG if hung else CRASH}


def _lines(process: subprocess.Popen[bytes], limit: float) -> Iterator[dict[str, Any]]:
    """Yield the lines of a child until it ends or is silent for too long."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while waiting.select(limit):
            line = process.stdout.readline()
            if not line:
                # It has finished, or died.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(limit)
                return
            yield json.loads(line)


def main(words: Sequence[str] | None = None) -> int:
    """Return exit code 1 if there is any finding."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--number", type=int, default=1000, help="how many cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case of each generator")
    parser.add_argument("--generator", choices=GENERATORS, help="draw from this one only")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which a case hangs")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if args.child:
        child([Task(*each) for each in json.load(sys.stdin)], args.seed)
        return 0
    todo = tasks([args.generator] if args.generator else GENERATORS, args.first, args.number)
    counts: Counter[tuple[str, str]] = Counter()
    for task, result in results(todo, args.seed, args.limit):
        counts[result["kind"], result["outcome"]] += 1
        if result["outcome"] in FINDINGS:
            _say(f"{result['outcome']}: {result['kind']}: {result['label']}\n{result.get('detail', '')}".rstrip())
            where = f"--generator {task.generator} --first {task.number} --number 1"
            _say(f"  again: python -m fuzz --seed {args.seed} {where}\n")
    _show(counts)
    return 1 if any(outcome in FINDINGS for _, outcome in counts) else 0


def _show(counts: Counter[tuple[str, str]]) -> None:
    heads = (ACCEPTED, REFUSED, *FINDINGS)
    _say(f"{'kind':<28}" + "".join(f"{head:>11}" for head in heads))
    for kind in [*sorted({kind for kind, _ in counts}), "all"]:
        numbers = [sum(n for (k, o), n in counts.items() if o == head and kind in (k, "all")) for head in heads]
        _say(f"{kind:<28}" + "".join(f"{number:>11,}" for number in numbers))


def _say(text: str) -> None:
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
