"""Waves whose amplitudes lie 744 steps back -> sparse and full attention at L = 768, full attention at L = 293.

The argument behind table 3 without the noise of real data. A sparse row of L = 768 has 112 cells, so full attention of
the same memory has L = 293; its window does not contain the first two waves, whose larger amplitude is to be forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from logsparse.attention.pattern import full, restart
from logsparse.baselines.naive import SeasonalNaive
from logsparse.config import Config
from logsparse.data.panel import Panel
from logsparse.evaluation.backtest import backtest
from logsparse.evaluation.metrics import score
from logsparse.forecast import Forecaster
from logsparse.forecaster import LogSparse
from logsparse.paper.experiment import (
    NO_TRACES,
    SAMPLES,
    Experiment,
    Prepared,
    Table,
    Traces,
    facts_of,
    known_by,
    losses,
)
from logsparse.paper.ledger import Identity, Row, Run
from logsparse.paper.synthetic import HORIZON, TRANSFORMER, Study, study
from logsparse.paper.synthetic import config as config_of_study
from logsparse.paper.tables import Cell, cell, difference, sound

TASK, CASE = "long-waves", "t0=744"
T0 = 744
SHORT = 293
"""Length of full attention of the same memory: round(sqrt(768 * 112))."""
NAIVE, SPARSE, FULL_MEMORY, FULL_LENGTH = MODELS = ("seasonal-naive", "sparse", "full-memory", "full-length")
SEEDS = 3
EPOCHS, BATCH = 20, 32


def runs(seeds: int | None, models: Sequence[str], budget: float | None = None) -> list[Run]:
    """Return all runs of these models, seed by seed; seasonal naive runs once."""
    return [
        Run(TASK, CASE, model) if model == NAIVE else Run(TASK, CASE, model, seed, budget)
        for seed in range(SEEDS if seeds is None else seeds)
        for model in models
        if model != NAIVE or seed == 0
    ]


def config(model: str) -> Config:
    """Return the network of the synthetic study with as many layers as the sparse pattern needs to reach its window."""
    base, pattern = config_of_study(TRANSFORMER, T0), restart(96)
    layers = pattern.layers_to_reach(T0 + HORIZON)
    assert layers is not None, "a restart reaches every past"
    network = replace(base.model, layers=layers, patterns=(pattern if model == SPARSE else full(),))
    train = replace(base.train, epochs=EPOCHS, batch=BATCH)
    return replace(base, context=_length(model) - HORIZON, model=network, train=train)


def identify(wanted: Sequence[Run]) -> dict[Run, Identity]:
    """Identify runs by their config and all series, cut to what the model sees."""
    whole = _whole()
    panels = {run.model: _seen(whole, run.model) for run in wanted}
    return {run: known_by(_forecaster(run), panels[run.model].training, *panels[run.model]) for run in wanted}


def prepare(run: Run) -> Prepared:
    """Return the model of a run, and its series."""
    sets = _seen(_whole(), run.model)
    return Prepared(_forecaster(run), sets.training, sets.validation)


def run_one(run: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
    """Train, forecast the test series and score."""
    sets, model = _seen(_whole(), run.model), _forecaster(run)
    facts: dict[str, Any] = {"minutes": 0.0, "trace": {}}
    if isinstance(model, LogSparse):
        model.minutes, model.verbose = run.budget, verbose
        model.fit(sets.training, validation=sets.validation, folder=folder)
        facts = facts_of(model)
    results = backtest(model, sets.test, season=HORIZON)
    facts["trace"]["losses"] = {run.model: losses(results)}
    found = score(results).row(0, named=True)
    return {"R0.5": found["R0.5"], "R0.9": found["R0.9"], **facts}


def _length(model: str) -> int:
    return SHORT if model == FULL_MEMORY else T0 + HORIZON


def _whole() -> Study:
    return study(T0, np.random.default_rng(T0))


def _seen(whole: Study, model: str) -> Study:
    """The last steps of every series, as many as the model's window has: one window per series for every model."""
    return Study(*(_last(panel, _length(model)) for panel in whole))


def _last(panel: Panel, steps: int) -> Panel:
    length = int(panel.lengths[0])
    values = panel.values.reshape(len(panel), length)[:, -steps:]
    return replace(
        panel,
        values=np.ascontiguousarray(values).ravel(),
        indptr=np.arange(len(panel) + 1) * steps,
        lengths=np.full(len(panel), steps),
        starts=np.full(len(panel), length - steps),
    )


def _forecaster(run: Run) -> Forecaster:
    if run.model == NAIVE:
        return SeasonalNaive(HORIZON, season=HORIZON)
    return LogSparse(HORIZON, config=config(run.model), seed=run.seed, samples=SAMPLES)


def tables(rows: Sequence[Row], traces: Traces = NO_TRACES) -> list[Table]:
    """Show the error of each model, and its difference from the sparse one."""
    found = {model: one for model in MODELS if (one := cell(rows, traces, CASE, model))}
    lines = [
        [
            model,
            str(_length(model)),
            f"{one.error:.4f}",
            f"{one.windows:,}" if one.windows else "-",
            str(len(one.rows)),
            {None: "-", True: "yes", False: "no"}[one.flat],
            _against_sparse(found, model),
        ]
        for model, one in found.items()
    ]
    head = ["model", "L", "R0.5", "windows", "seeds", "flat", "sparse against it"]
    return [Table("Waves with amplitudes 744 steps back; the noise alone has R0.5 = 0.011", head, lines)]


def _against_sparse(found: dict[str, Cell], model: str) -> str:
    if model == SPARSE or SPARSE not in found:
        return "-"
    return str(difference(found[SPARSE], found[model]) or "-")


LONG_WAVES = Experiment(TASK, MODELS, runs, identify, run_one, tables, fits=sound, every_seed=True, prepare=prepare)
