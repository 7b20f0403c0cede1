"""Experiment: what every table or figure of the paper offers, so that one command runs and shows them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from logsparse.tasks.ledger import Row, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class CarryOut(Protocol):
    """A run, minutes of training at most, and a folder to go on in -> what the ledger records of it."""

    def __call__(
        self, run: Run, *, budget: float | None, folder: Path, verbose: bool = True
    ) -> dict[str, Any]: ...  # pragma: no cover


@dataclass(frozen=True)
class Table:
    """What a person reads."""

    title: str
    head: list[str]
    lines: list[list[str]]


@dataclass(frozen=True)
class Experiment:
    """Runs to do, how each is done, and what their rows show."""

    name: str
    models: tuple[str, ...]
    runs: Callable[[int, Sequence[str]], list[Run]]
    carry_out: CarryOut
    tables: Callable[[Sequence[Row]], list[Table]]
    figure: Callable[[Sequence[Row]], Figure] | None = None
