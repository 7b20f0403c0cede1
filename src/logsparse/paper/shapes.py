"""Series of one shape that returns at uneven distances -> the paper's first figure: k = 1 against k = 6.

Every series has its own shape, so what follows a point can be known only from its earlier occurrences. The history also
has lone spikes as high as the top of the shape. A query or key of one step cannot distinguish the two, one of six steps
can. The table shows whether training uses that, over many series and not only the one that is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from logsparse.config import Config, ModelConfig, TrainConfig
from logsparse.data.calendar import Freq
from logsparse.data.panel import Floats, Origin, Panel
from logsparse.data.scale import Doubles
from logsparse.errors import is_whole
from logsparse.evaluation.backtest import backtest
from logsparse.evaluation.metrics import score
from logsparse.forecaster import LogSparse
from logsparse.paper.experiment import (
    SAMPLES,
    Experiment,
    Prepared,
    Table,
    Traces,
    are_numbers,
    are_places,
    array,
    facts_of,
    known_by,
    plain,
)
from logsparse.paper.ledger import Identity, Row, Run, best
from logsparse.pictures import INK, START, TRUTH, new_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# S series, X steps, J positions of the window

CONTEXT, HORIZON = 84, 12
SHAPE = 9
"""Steps of the shape."""
LENGTH = CONTEXT + HORIZON
SIZES = (4000, 300, 200)
_GAPS = (5, 13)
_SPIKES = 0.6
"""Share of gaps of at least seven steps that have a spike."""
_NOISE = 0.02

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Shapes:
    """Series, and the positions of tops and spikes in them."""

    panel: Panel
    tops_SX: Bools
    spikes_SX: Bools


class Sets(NamedTuple):
    """Training, validation and test series; the history of a test series ends at a top."""

    training: Shapes
    validation: Shapes
    test: Shapes


def sets(generator: Generator) -> Sets:
    """Generate the three sets; all series differ."""
    training, validation, test = SIZES
    return Sets(
        shapes(training, generator),
        shapes(validation, generator, first=training),
        shapes(test, generator, first=training + validation, history_ends_at_a_top=True),
    )


def shapes(series: int, generator: Generator, *, first: int = 0, history_ends_at_a_top: bool = False) -> Shapes:
    """Generate series with ids from `first` on, cut at random or so that the history ends at the shape's top."""
    cut = [_window(generator, at_top=history_ends_at_a_top) for _ in range(series)]
    values_SX, tops_SX, spikes_SX = (np.stack(part) for part in zip(*cut, strict=True))
    panel = Panel(
        values=values_SX.astype(np.float32).ravel(),
        indptr=np.arange(series + 1) * LENGTH,
        lengths=np.full(series, LENGTH),
        ids=tuple(range(first, first + series)),
        starts=np.zeros(series, np.int64),
        freq=Freq("index", 1),
        origin=Origin(time_type="integer"),
    )
    return Shapes(panel, tops_SX, spikes_SX)


def _window(generator: Generator, *, at_top: bool) -> tuple[Doubles, Bools, Bools]:
    """Cut values, tops and spikes of LENGTH steps from a longer series."""
    while True:
        values, tops, spikes = _series(generator)
        starts = np.arange(len(values) - LENGTH)
        if at_top:
            seen = np.array([spikes[start : start + CONTEXT - SHAPE].any() for start in starts])
            starts = starts[tops[starts + CONTEXT - 1] & seen]
        if len(starts):
            start = int(generator.choice(starts))
            part = slice(start, start + LENGTH)
            return values[part], tops[part], spikes[part]


def _series(generator: Generator) -> tuple[Doubles, Bools, Bools]:
    shape = _shape(generator)
    parts: list[Doubles] = []
    kinds: list[NDArray[np.int_]] = []
    for _ in range(2 * LENGTH // SHAPE):
        gap = int(generator.integers(*_GAPS))
        between, kind = np.zeros(gap), np.zeros(gap, int)
        if gap >= 7 and generator.random() < _SPIKES:
            between[gap // 2], kind[gap // 2] = 1, 2
        parts += [shape, between]
        kinds += [(np.arange(SHAPE) == shape.argmax()).astype(int), kind]
    values, kind = np.concatenate(parts), np.concatenate(kinds)
    noisy = 1 + 3 * values + _NOISE * generator.normal(size=len(values))
    return noisy, kind == 1, kind == 2


def _shape(generator: Generator) -> Doubles:
    """Sum three waves of random size, scaled to (0, 1] with the top away from both ends."""
    x = np.arange(1, SHAPE + 1) * np.pi / (SHAPE + 1)
    while True:
        sizes = np.array([1, 0, 0]) + np.array([0, 0.5, 0.5]) * generator.normal(size=3)
        wave = sizes @ np.sin(np.arange(1, 4)[:, None] * x)
        raised = wave - wave.min() + 0.3
        shape: Doubles = raised / raised.max()
        if 2 <= shape.argmax() < SHAPE - 1:
            return shape


TASK, CASE = "matching", "shapes and spikes"
COLOURS = {"k=1": TRUTH, "k=6": "#1f6fb2"}
MODELS = tuple(COLOURS)
# Test series over which weights are averaged.
COUNTED = 50
MARKS = ("tops", "spikes")


def runs(seeds: int | None, models: Sequence[str], budget: float | None = None) -> list[Run]:
    """Return one run per kernel and seed, seed by seed."""
    return [Run(TASK, CASE, model, seed, budget) for seed in range(seeds or 1) for model in models]


def config(model: str) -> Config:
    """Return a network of one layer, so that queries and keys come from the series itself; only the kernel differs."""
    network = ModelConfig(
        layers=1,
        heads=4,
        kernel=int(model.removeprefix("k=")),
        width=32,
        head_width="split",
        norm="pre",
        embed_series=False,
        dropout=0.0,
    )
    train = TrainConfig(
        windows=4000,
        epochs=40,
        weighted=False,
        optimiser="adamw",
        schedule="one-cycle",
        lr=4e-3,
        patience=None,
        validation_windows=300,
    )
    return Config(context=CONTEXT, horizon=HORIZON, method="mean-path", features=("age",), model=network, train=train)


def identify(wanted: Sequence[Run]) -> dict[Run, Identity]:
    """Identify runs by config and all series."""
    found = _sets()
    panels = [part.panel for part in (found.training, found.validation, found.test)]
    return {run: known_by(_model(run), panels[0], *panels) for run in wanted}


def _sets() -> Sets:
    """The same sets for all models and seeds."""
    return sets(np.random.default_rng(0))


def _model(run: Run) -> LogSparse:
    return LogSparse(HORIZON, config=config(run.model), seed=run.seed, samples=SAMPLES)


def prepare(run: Run) -> Prepared:
    """Return the model of a run, and its series."""
    found = _sets()
    return Prepared(_model(run), found.training.panel, found.validation.panel)


def run_one(run: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
    """Train, score on the test series, and measure the attention of the step after the top."""
    found, model = _sets(), _model(run)
    model.minutes, model.verbose = run.budget, verbose
    model.fit(found.training.panel, validation=found.validation.panel, folder=folder)
    facts = facts_of(model)
    scores = score(backtest(model, found.test.panel, season=HORIZON)).row(0, named=True)
    facts["trace"] |= attended(model, found.test)
    return {"R0.5": scores["R0.5"], "R0.9": scores["R0.9"], **facts}


def attended(model: LogSparse, test: Shapes) -> dict[str, Any]:
    """Return the first series with its weights, and the mean weight of one head on tops and spikes over many series.

    The head is the one with the most weight on both together; how it divides that between the two is not selected.
    """
    history = test.panel.cut(test.panel.lengths - HORIZON)
    counted = history.ids[:COUNTED]
    earlier_SX = test.tops_SX.copy()
    earlier_SX[:, CONTEXT - SHAPE :] = False
    marked = dict(zip(MARKS, (earlier_SX, test.spikes_SX), strict=True))
    heads = []
    for head in range(model.config_.model.heads):
        weights = [model.attention(history, series=one, layer=0, head=head, step=0).weights for one in counted]
        shares = {
            name: float(np.mean([_share(weights_J, marks_SX[s]) for s, weights_J in enumerate(weights)]))
            for name, marks_SX in marked.items()
        }
        heads.append((sum(shares.values()), head, shares, weights[0]))
    _, head, shares, first_J = max(heads, key=lambda found: found[0])
    marks = {name: np.flatnonzero(marks_SX[0]).tolist() for name, marks_SX in marked.items()}
    drawn = {"values": plain(test.panel[0]), "head": head, "weights": plain(read_last(first_J)), **marks}
    return {**drawn, "shares": shares, "counted": len(counted)}


def read_last(weights_J: Floats) -> Floats:
    """Return each weight at the step whose value its position read last: the one before its own."""
    return weights_J[1 : CONTEXT + 1]


def _share(weights_J: Floats, marked_X: Bools) -> float:
    """Weight on positions that have just read a marked step or the one after it, where the shape continues."""
    near = marked_X[:CONTEXT] | np.concatenate([[False], marked_X[: CONTEXT - 1]])
    return float(read_last(weights_J)[near].sum())


def fits(trace: Mapping[str, Any]) -> bool:
    """Return True if a trace has a window with tops and spikes, a weight per step of the history, and both shares."""
    shares = trace.get("shares")
    return (
        are_numbers(trace.get("values"), CONTEXT + HORIZON)
        and are_numbers(trace.get("weights"), CONTEXT)
        and all(are_places(trace.get(name), CONTEXT + HORIZON) for name in MARKS)
        and isinstance(shares, dict)
        and are_numbers([shares.get(name) for name in MARKS])
        and all(is_whole(trace.get(name)) for name in ("head", "counted"))
    )


def tables(rows: Sequence[Row], traces: Traces) -> list[Table]:
    """Return the weight of each kernel on earlier tops and on spikes."""
    lines = []
    for model in MODELS:
        row, trace = best([row for row in rows if row["model"] == model]), traces.get((CASE, model))
        if row is not None:
            shares = [f"{trace['shares'][name]:.3f}" if trace else "-" for name in MARKS]
            scores = [f"{float(row[name]):.4f}" if row[name] else "-" for name in ("validation_nll", "R0.5")]
            lines.append([model, *scores, *shares, str(trace["counted"]) if trace else "-"])
    head = ["model", "validation nll", "R0.5", "weight on earlier tops", "weight on spikes", "series"]
    return [Table("Figure 1, what a query at the top of a shape attends to", head, lines)]


def figure(_rows: Sequence[Row], traces: Traces) -> Figure | None:
    """Draw the window, and below it the weights of the same query for each kernel, at the values that were read."""
    shown = {model: traces[CASE, model] for model in MODELS if (CASE, model) in traces}
    if not shown:
        return None
    first = next(iter(shown.values()))
    drawn, (above, *panels) = new_panels((8, 2 + 1.5 * len(shown)), [1.3, *[1] * len(shown)])
    values, steps = array(first["values"]), np.arange(CONTEXT + HORIZON)
    above.plot(steps[:CONTEXT], values[:CONTEXT], color=INK, linewidth=1.2)
    above.plot(steps[CONTEXT - 1 :], values[CONTEXT - 1 :], color=INK, linewidth=1.2, alpha=0.35)
    for name, marker, colour in (("tops", "o", START), ("spikes", "X", TRUTH)):
        at = [step for step in first[name] if step < CONTEXT]
        above.plot(at, values[at], marker, color=colour, markersize=6, label=f"earlier {name}")
    above.plot(CONTEXT - 1, values[CONTEXT - 1], "s", color="#1f6fb2", markersize=6, label="the query")
    above.legend(frameon=False, ncols=3, fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.98), borderaxespad=0)
    above.set_title("Figure 1: which steps look alike to a query", loc="left", fontsize=10)
    most = max(float(array(trace["weights"]).max()) for trace in shown.values())
    for axes, (model, trace) in zip(panels, shown.items(), strict=True):
        axes.vlines(steps[:CONTEXT], 0, array(trace["weights"]), color=COLOURS[model], linewidth=1.8)
        for step in first["spikes"]:
            if step < CONTEXT:
                axes.axvspan(step - 0.5, step + 0.5, color=TRUTH, alpha=0.12, linewidth=0)
        axes.set_ylim(0, 1.05 * most)
        axes.set_ylabel("weight")
        axes.set_title(f"{model}, head {trace['head'] + 1}", loc="left", fontsize=9, color=COLOURS[model])
    panels[-1].set_xlabel("step")
    return drawn


MATCHING = Experiment(
    TASK,
    MODELS,
    runs,
    identify,
    run_one,
    tables,
    figure,
    shows="Figure 1, what k = 1 and k = 6 attend to",
    fits=fits,
    prepare=prepare,
)
