"""The folder of a training's checkpoints -> whether the training goes on there; what is not its own is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from logsparse.errors import DataError


def claim(folder: Path, seeds: Iterable[int]) -> bool:
    """Make the folder; whether one of these seeds left a checkpoint there before.

    A checkpoint knows its own settings and data; but the folder is removed in the end, so nothing else may be in it.
    """
    if folder.exists() and not folder.is_dir():
        raise _foreign(folder, "something that no training wrote")
    folder.mkdir(parents=True, exist_ok=True)
    there = {path.name for path in folder.iterdir()}
    if not all(re.fullmatch(r"seed-\d+", name) for name in there):
        raise _foreign(folder, "something that no training wrote")
    if there - {f"seed-{seed}" for seed in seeds}:
        raise _foreign(folder, "a training with other seed")
    return any(any(path.iterdir()) for path in folder.iterdir())


def _foreign(folder: Path, what: str) -> DataError:
    return DataError(
        f"Checkpoints of this training go to {folder}, which must be new or its own.",
        got=what,
        hint=f"give the same command as before to go on, or remove {folder} to begin anew.",
    )
