"""Lines "first die_at" on stdin -> a child that saves numbers first, first + 1, ... until it is killed.

With die_at = n the child kills itself at the n-th file operation; with 0 it waits to be killed.
Arguments: what is saved (a checkpoint or a model) and where; torch is imported once, each child is a fork.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from logsparse import folder
from logsparse.train import checkpoint

SIZE = 300_000
FILE_OPERATIONS = {"open", "os.rename", "os.remove", "os.listdir", "os.scandir", "os.mkdir", "os.rmdir"}


def save(what: str, path: Path, step: int) -> None:
    """A checkpoint or a model in which every number is `step`."""
    tensors = {"weight": torch.full((SIZE,), float(step))}
    if what == "checkpoint":
        checkpoint.save(path, tensors, {"step": step})
    else:
        # Every other model has a history, so that one has to come or go with each save.
        history = {"y": torch.full((9, 9), float(step))} if step % 2 else None
        folder.write(path, folder.ModelFolder("Small", {"step": step}, {"ids": [step]}, tensors, history))


def saved_step(what: str, path: Path) -> int:
    """The number of the checkpoint or model there, all of whose parts must be of one save."""
    if what == "checkpoint":
        got = checkpoint.load(path)
        step, parts = got.state["step"], list(got.tensors.values())
    else:
        model = folder.read(path)
        step = model.config["step"]
        assert model.series == {"ids": [step]}
        assert (model.history is not None) == step % 2
        parts = [*model.weights.values(), *(model.history or {}).values()]
    assert all((part == step).all() for part in parts), "parts of different saves"
    return int(step)


def die_at(operation: int, path: str) -> None:
    seen = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in FILE_OPERATIONS and str(arguments[0]).startswith(path):
            seen += 1
            if seen == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def main(what: str, path: str) -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        first, operation = map(int, line.split())
        child = os.fork()
        if child == 0:
            sys.stdout.write(f"child {os.getpid()}\n")
            sys.stdout.flush()
            if operation:
                die_at(operation, path)
            step = first
            while True:
                save(what, Path(path), step)
                sys.stdout.write(f"saved {step}\n")
                sys.stdout.flush()
                step += 1
        os.waitpid(child, 0)
        sys.stdout.write("dead\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
