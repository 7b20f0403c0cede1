"""The paper's synthetic study (section 5.1): waves; runs of Transformer and DeepAR over t0 -> rows, a table, a figure.

Two waves of 12 steps have amplitudes A1 and A2, the rest of the history has A3, and the 24 steps after t0 have the
larger of A1 and A2: a model must look back t0 steps to know it. Values are around 72, with noise N(0, 1).

Long waves make the argument behind table 3 without the noise of real data: amplitudes lie 744 steps back. A sparse row
of L = 768 has 112 cells, so full attention of the same memory has L = 293; its window does not contain the amplitudes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from logsparse.attention.pattern import full, restart
from logsparse.baselines.naive import SeasonalNaive
from logsparse.baselines.recurrent import DeepAR
from logsparse.config import Config, ModelConfig, TrainConfig
from logsparse.data.calendar import Freq
from logsparse.data.panel import Origin, Panel
from logsparse.data.scale import Doubles
from logsparse.errors import ConfigError
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
from logsparse.paper.tables import Cell, cell, difference, sound
from logsparse.pictures import INK, new_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# S series, X = t0 + 24 steps

HORIZON = 24
SIZES = (4500, 500, 1000)

LONG_TASK, LONG_CASE = "long-waves", "t0=744"
LONG_T0 = 744
UNSEEN = 0.104
"""R0.5 of a forecaster that knows the waves but not their amplitudes: the median of all series at each step."""
SHORT = 293
"""Length of full attention of the same memory: round(sqrt(768 * 112))."""
NAIVE, SPARSE, FULL_MEMORY, FULL_LENGTH = LONG_MODELS = ("seasonal-naive", "sparse", "full-memory", "full-length")
LONG_SEEDS = 3
EPOCHS, BATCH = 20, 32


class Study(NamedTuple):
    """One of the paper's eight sets."""

    training: Panel
    validation: Panel
    test: Panel


def signal(t0: int, amplitudes_S3: Doubles) -> Doubles:
    """Return the waves without noise, (S, X), for amplitudes A1, A2, A3; at t0 = 24 the third segment is empty."""
    if t0 < 24:
        raise ConfigError(
            "t0 must leave room for the first two waves.", got=f"t0={t0}", hint="use 24, 48, ..., 192 as in the paper."
        )
    x_X = np.arange(t0 + HORIZON)
    segment_X = np.digitize(x_X, (12, 24, t0))
    last_S1 = amplitudes_S3[:, :2].max(axis=1, keepdims=True)
    amplitude_SX = np.concatenate((amplitudes_S3, last_S1), axis=1)[:, segment_X]
    return np.asarray(amplitude_SX * np.sin(np.pi * x_X / np.where(x_X < t0, 6, 12)) + 72)


def synthetic(t0: int, series: int, generator: np.random.Generator) -> Panel:
    """Generate series of t0 + 24 steps at integer times 0, 1, ...; amplitudes are drawn first, then the noise."""
    mean_SX = signal(t0, generator.uniform(0, 60, (series, 3)))
    values_SX = mean_SX + generator.standard_normal(mean_SX.shape)
    length = t0 + HORIZON
    return Panel(
        values=values_SX.astype(np.float32).ravel(),
        indptr=np.arange(series + 1) * length,
        lengths=np.full(series, length),
        ids=tuple(range(series)),
        starts=np.zeros(series, np.int64),
        freq=Freq("index", 1),
        origin=Origin(time_type="integer"),
    )


def study(t0: int, generator: np.random.Generator) -> Study:
    """Generate 4500 training, 500 validation and 1000 test series, all different and numbered consecutively."""
    panels = [synthetic(t0, size, generator) for size in SIZES]
    begins = np.cumsum((0, *SIZES)).tolist()
    return Study(
        *(replace(panel, ids=tuple(range(*ends))) for panel, ends in zip(panels, pairwise(begins), strict=True))
    )


TASK = "synthetic"
# The ends and the middle first: an experiment that is stopped early covers the whole range.
T0 = (24, 96, 192, 48, 144, 72, 120, 168)
HIDDEN = (20, 40, 80, 140, 200)
TRANSFORMER = "transformer"
MODELS = (TRANSFORMER, *(f"deepar-{hidden}" for hidden in HIDDEN))
NOISE = (0.0111, 0.0049)
"""R0.5 and R0.9 of a forecaster that knows each wave, at any t0."""
SEASONAL_NAIVE = 0.41
"""R0.5 of seasonal naive, at least, at any t0."""


def runs(seeds: int | None, models: Sequence[str], budget: float | None = None) -> list[Run]:
    """Return all runs of these models, seed by seed."""
    return [Run(TASK, f"t0={t0}", model, seed, budget) for seed in range(seeds or 1) for t0 in T0 for model in models]


def config(model: str, t0: int) -> Config:
    """Return three layers of canonical attention or LSTM cells; inputs, passes and decoding are the same for all.

    Each kind has the learning rate that did best on validation (docs/LOG.md).
    """
    network = ModelConfig(heads=4, kernel=1, width=32, head_width="split", norm="pre", embed_series=False, dropout=0.0)
    if model != TRANSFORMER:
        network = replace(network, width=int(model.removeprefix("deepar-")), head_width="full")
    rate = 4e-3 if model == TRANSFORMER else 1e-2
    train = TrainConfig(
        windows=4500,
        epochs=34,
        weighted=False,
        loss_on="horizon",
        optimiser="adamw",
        schedule="one-cycle",
        lr=rate,
        average=0.98,
        patience=None,
        validation_windows=500,
    )
    return Config(context=t0, horizon=HORIZON, method="mean-path", features=("age",), model=network, train=train)


def identify(wanted: Sequence[Run]) -> dict[Run, Identity]:
    """Identify runs by config and all series of their t0."""
    sets = {run.case: _sets(run) for run in wanted}
    return {run: known_by(_model(run), sets[run.case].training, *sets[run.case]) for run in wanted}


def _t0(run: Run) -> int:
    return int(run.case.removeprefix("t0="))


def _sets(run: Run) -> Study:
    """The same set for all models and seeds of a t0."""
    return study(_t0(run), np.random.default_rng(_t0(run)))


def _model(run: Run) -> LogSparse:
    kind = LogSparse if run.model == TRANSFORMER else DeepAR
    return kind(HORIZON, config=config(run.model, _t0(run)), seed=run.seed, samples=SAMPLES)


def prepare(run: Run) -> Prepared:
    """Return the model of a run, and its series."""
    sets = _sets(run)
    return Prepared(_model(run), sets.training, sets.validation)


def run_one(run: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
    """Train, forecast the test series and score. An interrupted run resumes from the folder."""
    sets, model = _sets(run), _model(run)
    model.minutes, model.verbose = run.budget, verbose
    model.fit(sets.training, validation=sets.validation, folder=folder)
    return _scored(model, sets.test, facts_of(model), model.method)


def _scored(model: Forecaster, test: Panel, facts: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the facts of a training with the scores of its forecasts; their losses are recorded under this name."""
    results = backtest(model, test, season=HORIZON)
    facts["trace"]["losses"] = {name: losses(results)}
    found = score(results).row(0, named=True)
    return {"R0.5": found["R0.5"], "R0.9": found["R0.9"], **facts}


def table(rows: Iterable[Row], name: str = "R0.5") -> tuple[list[str], list[list[str]]]:
    """Return head and lines: one line per t0, one column per model, means over seeds."""
    found: dict[tuple[int, str], list[float]] = {}
    known = {f"t0={t0}" for t0 in T0}
    for row in rows:
        if row["case"] not in known or not row[name]:
            continue
        found.setdefault((int(row["case"].removeprefix("t0=")), row["model"]), []).append(float(row[name]))
    models = [model for model in MODELS if any(model == there for _, there in found)]
    lines = []
    for t0 in sorted({t0 for t0, _ in found}):
        cells = [found.get((t0, model)) for model in models]
        lines.append([str(t0), *(f"{np.mean(cell):.4f}" if cell else "-" for cell in cells)])
    return ["t0", *models], lines


def tables(rows: Sequence[Row], _traces: Traces = NO_TRACES) -> list[Table]:
    """Return one table per score."""
    return [Table(f"Synthetic study, {name}", *table(rows, name)) for name in ("R0.5", "R0.9")]


def figure(rows: Iterable[Row], _traces: Traces = NO_TRACES) -> Figure:
    """Draw an example series; beside it error against t0, one line per model, and the error of the noise alone."""
    head, lines = table(rows)
    drawn, (example, axes) = new_grid(2)
    drawn.set_size_inches(11, 3.6)
    _draw_example(example)
    for column, model in enumerate(head[1:], start=1):
        points = [(int(line[0]), float(line[column])) for line in lines if line[column] != "-"]
        style: dict[str, Any] = {"color": "#c8553d", "linewidth": 2.2, "marker": "o"}
        if model != TRANSFORMER:
            size = HIDDEN.index(int(model.removeprefix("deepar-")))
            shade = 0.35 + 0.6 * size / (len(HIDDEN) - 1)
            style = {"color": "#1f6fb2", "alpha": shade, "linewidth": 1.4, "marker": "os^Dv"[size], "markersize": 5}
        axes.plot(*zip(*points, strict=True), label=model, **style)
    axes.axhline(NOISE[0], color=INK, linewidth=1, linestyle=":", label="the noise alone")
    axes.set(
        xlabel="t0, steps to look back", ylabel="R0.5", yscale="log", xticks=sorted(int(line[0]) for line in lines)
    )
    axes.legend(frameon=False, fontsize=8, ncols=2)
    return drawn


def _draw_example(axes: Axes) -> None:
    """Draw the first test series of t0 = 96: what a model is given, and dashed what it must forecast."""
    t0 = 96
    values_X = study(t0, np.random.default_rng(t0)).test.values[: t0 + HORIZON]
    axes.plot(np.arange(t0), values_X[:t0], color=INK, linewidth=1.2, label="history")
    axes.plot(np.arange(t0 - 1, t0 + HORIZON), values_X[t0 - 1 :], color="#c8553d", linestyle="--", label="target")
    axes.set(xlabel="step", title=f"t0 = {t0}")
    axes.legend(frameon=False, fontsize=8)


SYNTHETIC = Experiment(
    TASK,
    MODELS,
    runs,
    identify,
    run_one,
    tables,
    figure,
    shows="Figure 4, an example and error against t0",
    prepare=prepare,
)


def long_runs(seeds: int | None, models: Sequence[str], budget: float | None = None) -> list[Run]:
    """Return all runs of these models, seed by seed; seasonal naive runs once."""
    return [
        Run(LONG_TASK, LONG_CASE, model) if model == NAIVE else Run(LONG_TASK, LONG_CASE, model, seed, budget)
        for seed in range(LONG_SEEDS if seeds is None else seeds)
        for model in models
        if model != NAIVE or seed == 0
    ]


def long_config(model: str) -> Config:
    """Return the network of the synthetic study with as many layers as the sparse pattern needs to reach its window."""
    base, pattern = config(TRANSFORMER, LONG_T0), restart(96)
    layers = pattern.layers_to_reach(LONG_T0 + HORIZON)
    assert layers is not None, "a restart reaches every past"
    network = replace(base.model, layers=layers, patterns=(pattern if model == SPARSE else full(),))
    train = replace(base.train, epochs=EPOCHS, batch=BATCH)
    return replace(base, context=_length(model) - HORIZON, model=network, train=train)


def identify_long(wanted: Sequence[Run]) -> dict[Run, Identity]:
    """Identify runs by their config and all series, cut to what the model sees."""
    whole = _whole()
    panels = {run.model: _seen(whole, run.model) for run in wanted}
    return {run: known_by(_forecaster(run), panels[run.model].training, *panels[run.model]) for run in wanted}


def prepare_long(run: Run) -> Prepared:
    """Return the model of a run, and its series."""
    sets = _seen(_whole(), run.model)
    return Prepared(_forecaster(run), sets.training, sets.validation)


def run_long(run: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
    """Train, forecast the test series and score."""
    sets, model = _seen(_whole(), run.model), _forecaster(run)
    facts: dict[str, Any] = {"minutes": 0.0, "trace": {}}
    if isinstance(model, LogSparse):
        model.minutes, model.verbose = run.budget, verbose
        model.fit(sets.training, validation=sets.validation, folder=folder)
        facts = facts_of(model)
    return _scored(model, sets.test, facts, run.model)


def _length(model: str) -> int:
    return SHORT if model == FULL_MEMORY else LONG_T0 + HORIZON


def _whole() -> Study:
    return study(LONG_T0, np.random.default_rng(LONG_T0))


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
    return LogSparse(HORIZON, config=long_config(run.model), seed=run.seed, samples=SAMPLES)


def long_tables(rows: Sequence[Row], traces: Traces = NO_TRACES) -> list[Table]:
    """Show the error of each model, and its difference from the sparse one."""
    found = {model: one for model in LONG_MODELS if (one := cell(rows, traces, LONG_CASE, model))}
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


LONG_WAVES = Experiment(
    LONG_TASK,
    LONG_MODELS,
    long_runs,
    identify_long,
    run_long,
    long_tables,
    fits=sound,
    every_seed=True,
    prepare=prepare_long,
)
