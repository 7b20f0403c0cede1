"""Lines "first die_at" on stdin -> a child that saves checkpoints first, first + 1, ... until it is killed.

With die_at = n the child kills itself at the n-th file operation; with 0 it waits to be killed.
The checkpoints go to the folder given as argument; torch is imported once, each child is a fork.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import torch

from logsparse.train.checkpoint import save

SIZE = 300_000
FILE_OPERATIONS = {"open", "os.rename", "os.remove", "os.listdir", "os.scandir"}


def die_at(operation: int) -> None:
    seen = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in FILE_OPERATIONS and str(arguments[0]).startswith(sys.argv[1]):
            seen += 1
            if seen == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        first, operation = map(int, line.split())
        child = os.fork()
        if child == 0:
            sys.stdout.write(f"child {os.getpid()}\n")
            sys.stdout.flush()
            if operation:
                die_at(operation)
            step = first
            while True:
                save(sys.argv[1], {"weight": torch.full((SIZE,), float(step))}, {"step": step})
                sys.stdout.write(f"saved {step}\n")
                sys.stdout.flush()
                step += 1
        os.waitpid(child, 0)
        sys.stdout.write("dead\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
