"""Experiment: what every table or figure of the paper offers, so that one command runs and shows them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from logsparse.errors import DataError
from logsparse.tasks.ledger import Identity, Row, Run, counted, rows, trials
from logsparse.tasks.traces import NO_TRACES, Fits, Traces, anything, traces

if TYPE_CHECKING:
    from matplotlib.figure import Figure


UNIDENTIFIED = "not a finished run: its row does not record its data"
"""What tables note beside such a row."""


class Runs(Protocol):
    """How many seeds of which models, and minutes of training at most -> the runs to do.

    Without a number of seeds, as many as each model has by default. A model that is not trained has no budget.
    """

    def __call__(
        self, seeds: int | None, models: Sequence[str], budget: float | None = None, /
    ) -> list[Run]: ...  # pragma: no cover


class CarryOut(Protocol):
    """A run and a folder to go on in -> what the ledger records of it.

    Under `trace` it may give what a figure needs beside the row: plain JSON.
    """

    def __call__(self, run: Run, /, *, folder: Path, verbose: bool = True) -> dict[str, Any]: ...  # pragma: no cover


@dataclass(frozen=True)
class Table:
    """What a person reads."""

    title: str
    head: list[str]
    lines: list[list[str]]


@dataclass(frozen=True)
class Experiment:
    """Runs to do, how each is done, and what their rows and traces show; without models there is nothing to run."""

    name: str
    models: tuple[str, ...]
    runs: Runs
    identify: Callable[[Sequence[Run]], dict[Run, Identity]]
    """What each of these runs is known by, before any of them is done; in their order."""
    carry_out: CarryOut
    tables: Callable[[Sequence[Row], Traces], list[Table]]
    figure: Callable[[Sequence[Row], Traces], Figure | None] | None = None
    """None comes out of it where nothing is left to draw."""
    shows: str = ""
    """What its figure is in the paper."""
    tasks: tuple[str, ...] = ()
    """Whose rows these are, where the same runs serve several experiments; none: its own."""
    sets: tuple[str, ...] = ()
    """Data sets of its runs, each of which is left out where it is not here; none: it makes its own data."""
    fits: Fits = anything
    """Whether a trace has what its figure reads."""

    def recorded(self, folder: Path) -> list[Row]:
        """Its rows that count: no trials."""
        return [row for task in self.tasks or (self.name,) for row in counted(rows(folder, task))]

    def trials(self, folder: Path) -> Table:
        """Its runs under a budget, apart: they are no results."""
        found = [
            row
            for task in self.tasks or (self.name,)
            for row in trials(rows(folder, task))
            if row["model"] in self.models
        ]
        names = ("case", "model", "seed", "budget", "R0.5", "R0.9", "steps")
        lines = [[row[name] or "-" for name in names] for row in found]
        return Table(f"Trials of {self.name}: ended by a budget of minutes, no results", list(names), lines)

    def traced(self, folder: Path) -> tuple[Traces, list[DataError]]:
        """What its runs left, and what of it cannot be used; a table without a figure needs none of it."""
        return (NO_TRACES, []) if self.figure is None else traces(folder, self.recorded(folder), self.fits)


def nothing_to_run(_seeds: int | None, _models: Sequence[str], _budget: float | None = None) -> list[Run]:
    """The runs of an experiment that has none."""
    return []


def nothing_known(_runs: Sequence[Run]) -> dict[Run, Identity]:
    """The identities of no runs."""
    return {}


def never(run: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
    """How a run is done where there is none."""
    del folder, verbose
    raise AssertionError(f"{run} is no run of this experiment")
