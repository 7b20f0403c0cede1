"""Runs to do -> about how long they take on this machine: by earlier rows of the same cell, or by a few timed steps."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from logsparse.forecaster import LogSparse
from logsparse.paper.experiment import Experiment, Prepared
from logsparse.paper.ledger import Identity, Run, machine, rows, run_of
from logsparse.train.loop import INTERRUPTED

log = logging.getLogger("logsparse")

# Long enough for several steps of most networks; a step that takes longer is still finished.
_SECONDS = 2.0
_HOUR, _DAY = 60, 24 * 60
ROWS, BUDGET, TIMED = "earlier runs", "their budget", "timing a few steps"


def announce(experiment: Experiment, todo: Mapping[Run, Identity], folder: Path, say: Callable[[str], None]) -> None:
    """Say how many runs there are to do, about how long they take, and what that rests on."""
    runs = f"{experiment.name}: {len(todo):,} {'run' if len(todo) == 1 else 'runs'} to do"
    found = {run: _recorded(run, folder) for run in todo}
    # A model that is not trained has no steps to time.
    untold = {_cell(run): run for run in todo if found[run] is None and "train" in todo[run].config}
    if untold and experiment.prepare:
        say(f"{runs}; timing a few steps of {len(untold):,} {'model' if len(untold) == 1 else 'models'}")
        timed = {cell: timed_minutes(experiment.prepare(run)) for cell, run in untold.items()}
        found = {run: found[run] or ((timed[_cell(run)], TIMED) if _cell(run) in timed else None) for run in todo}
    say(f"{runs}, {_in_words(found)}")


def _cell(run: Run) -> tuple[str, str]:
    return run.case, run.model


def _recorded(run: Run, folder: Path) -> tuple[float, str] | None:
    """Return the usual minutes of the cell on this machine, or the budget if that is less, and what they rest on."""
    found = [
        float(row["minutes"])
        for row in rows(folder, run.task)
        if (row["case"], row["model"]) == _cell(run)
        and run_of(row).budget is None
        # A network that only other machines have run, or only a version that recorded no data, is timed instead.
        and (not row["steps"] or (row["data"] and row["machine"] == machine()))
    ]
    usual = median(found) if found else None
    if run.budget is not None and (usual is None or usual > run.budget):
        return run.budget, BUDGET
    return None if usual is None else (usual, ROWS)


def timed_minutes(prepared: Prepared) -> float:
    """Train for some seconds; return the minutes that the whole training takes."""
    model = prepared.forecaster
    assert isinstance(model, LogSparse), "only a network is timed"
    model.minutes, model.verbose = _SECONDS / 60, False
    plan = model.plan(prepared.training, validation=prepared.validation)
    level = log.level
    log.setLevel(logging.ERROR)  # that few steps were taken is no news
    try:
        history = model.fit(plan).history_
    finally:
        log.setLevel(level)
    if history.ended == INTERRUPTED:
        raise KeyboardInterrupt
    if history.steps >= plan.steps:
        return history.seconds / 60
    # The last validation comes after the last step; those before it are within the time of the steps.
    stepping = history.rows[-1]["seconds"]
    validation = history.seconds - stepping
    step = max(stepping - validation * (len(history.rows) - 1), 0) / history.steps
    train = plan.config.train
    every = min(train.validate_every, max(plan.steps // train.epochs, 1))
    return plan.steps * (step + validation / every) / 60


def _in_words(found: Mapping[Run, tuple[float, str] | None]) -> str:
    known = [estimate for estimate in found.values() if estimate is not None]
    unknown = dict.fromkeys(run.model for run, estimate in found.items() if estimate is None)
    if not known:
        return "of unknown length: no earlier run of them is recorded"
    by = ", ".join(f"{count:,} by {source}" for source, count in Counter(source for _, source in known).items())
    also = f"; unknown and not counted: {', '.join(unknown)}" if unknown else ""
    return f"about {_about(sum(minutes for minutes, _ in known))} on this machine, plus scoring ({by}{also})"


def _about(minutes: float) -> str:
    if minutes < 1.5:
        return "a minute or less"
    for size, name in ((_DAY, "days"), (_HOUR, "hours")):
        if minutes >= 1.5 * size:
            return f"{minutes / size:.2g} {name}"
    return f"{minutes:.0f} minutes"
