"""Experiments, trained models, a folder of results -> the paper's figures as FOLDER/NAME.svg.

Training curves (figure 5), learned attention (figures 2 and 6), kinds of attention (figure 3), all experiments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from logsparse.attention.pattern import full, local, logsparse, restart
from logsparse.data.panel import Floats
from logsparse.errors import DataError, is_whole
from logsparse.paper.cases import TABLES
from logsparse.paper.claims import CLAIMS_TABLE
from logsparse.paper.experiment import (
    NO_TRACES,
    Experiment,
    Table,
    Traces,
    anything,
    are_numbers,
    array,
    never,
    nothing_known,
    nothing_to_run,
    whole_matrix,
)
from logsparse.paper.ledger import Row, Run, run_of, unfinished
from logsparse.paper.shapes import MATCHING
from logsparse.paper.synthetic import LONG_WAVES, SYNTHETIC
from logsparse.paper.tables import (
    KERNELS_TABLE,
    PATTERNS_TABLE,
    SPARSE_TABLE,
    STATISTICS,
    TABLES_OF_THE_PAPER,
    TEN_LAYERS_TABLE,
)
from logsparse.pictures import INK, START, draw_attention_matrix, new_panels, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# L positions of the window, J positions attended to (= L)

MODELS = {"k=1": "#c8553d", "k=3": "#3a8f4d", "k=9": "#1f6fb2"}
PARTS = ("step", "nll", "validation_nll")
# Share of all validations that one point of the smooth curve averages.
_SHARE = 0.1


def smooth(losses: Sequence[float]) -> Floats:
    """Return the moving average over a tenth of all points, truncated at the ends."""
    values, half = array(losses), max(1, round(_SHARE * len(losses))) // 2
    return np.array([values[max(0, i - half) : i + half + 1].mean() for i in range(len(values))])


def fits(trace: Mapping[str, Any]) -> bool:
    """Return True if the trace has a curve: as many steps as losses, at least one, all numbers."""
    if "losses" in trace and "curve" not in trace:  # not a trained model
        return True
    curve = trace.get("curve")
    if not isinstance(curve, dict) or not are_numbers(curve.get("step")):
        return False
    return all(are_numbers(curve.get(name), len(curve["step"])) for name in PARTS)


def _curve_tables(_rows: Sequence[Row], traces: Traces) -> list[Table]:
    """Return where each curve ends."""
    lines = []
    for case in _cases(traces):
        for model in MODELS:
            if trace := traces.get((case, model)):
                curve = trace["curve"]
                ends = (smooth(curve["nll"])[-1], min(curve["validation_nll"]))
                lines.append([case, model, str(curve["step"][-1]), *(f"{loss:.4f}" for loss in ends)])
    return [Table("Figure 5, training curves", ["case", "model", "steps", "training nll", "best validation"], lines)]


def draw_curves(_rows: Sequence[Row], traces: Traces) -> Figure | None:
    """Draw one panel per set: losses of single batches pale, their moving average bold, those of validation dashed."""
    cases = _cases(traces)
    if not cases:
        return None
    drawn, panels = new_panels((7, 3.2 * len(cases)), [1] * len(cases))
    for axes, case in zip(panels, cases, strict=True):
        seen: list[float] = []
        for model, colour in MODELS.items():
            if trace := traces.get((case, model)):
                curve = trace["curve"]
                axes.plot(curve["step"], curve["nll"], color=colour, linewidth=0.6, alpha=0.3)
                axes.plot(curve["step"], smooth(curve["nll"]), color=colour, linewidth=1.8, label=model)
                axes.plot(curve["step"], curve["validation_nll"], color=colour, linewidth=1.4, linestyle="--")
                seen += [*smooth(curve["nll"]), *curve["validation_nll"]]
        axes.set_title(case, loc="left", fontsize=10)
        axes.set_ylabel("nll")
        # The first steps, and a training that comes apart, would flatten all else.
        axes.set_ylim(min(seen) - 0.1, float(np.quantile(seen, 0.95)) + 0.5)
        axes.plot([], [], color=INK, linewidth=1.4, linestyle="--", label="validation")
        axes.legend(frameon=False, fontsize=8, ncols=2)
    panels[-1].set_xlabel("step")
    return drawn


def _cases(traces: Traces) -> list[str]:
    return [case for case in TABLES["kernels"][1] if any((case, model) in traces for model in MODELS)]


CURVES = Experiment(
    "curves",
    tuple(MODELS),
    KERNELS_TABLE.runs,
    KERNELS_TABLE.identify,
    KERNELS_TABLE.run,
    _curve_tables,
    draw_curves,
    shows="Figure 5, training curves of k = 1, 3, 9",
    tasks=("kernels",),
    sets=KERNELS_TABLE.sets,
    fits=fits,
    prepare=KERNELS_TABLE.prepare,
)


COLOURS = {2: "#1f4fd8", 6: "#17b1c4", 10: "#d62728"}
"""Blue, cyan, red, as in the paper."""
CANONICAL = "k=1"


def _first_set(
    experiments: Sequence[Experiment], seeds: int | None, models: Sequence[str], budget: float | None = None
) -> list[Run]:
    """Return the runs on the paper's own set of traffic where it is available, else on its stand-in."""
    runs = [run for one in experiments for run in one.runs(seeds, models, budget)]
    runs = [run for run in runs if TABLES[run.task][1][run.case].leaves]
    return [run for run in runs if run.case == runs[0].case]


def _shown(traces: Traces, part: str) -> tuple[str, Any] | None:
    """Return case and trace of the first trace that has this part, in the order of the sets; not of former cases."""
    cases = [case for _, known, _ in TABLES.values() for case in known]
    found = {case: trace for (case, _), trace in traces.items() if part in trace}
    return next(((case, found[case]) for case in cases if case in found), None)


def draw_layers(_rows: Sequence[Row], traces: Traces) -> Figure | None:
    """Draw one panel per layer: the history in grey, and over it the attention weights of the first forecast step."""
    found = _shown(traces, "layers")
    if found is None:
        return None
    case, trace = found
    window, layers = trace["window"], trace["layers"]
    start = window["context"]
    times, values = _times(window), array(window["values"])
    drawn, panels = new_panels((8, 1.9 * len(layers)), [1] * len(layers))
    for axes, layer in zip(panels, layers, strict=True):
        colour, weights = COLOURS[layer["layer"]], array(layer["weights"])
        behind = axes.twinx()
        behind.plot(times[:start], values[:start], color="#8a8a8a", linestyle="--", linewidth=0.8)
        behind.set_yticks([])
        behind.spines[["top", "right"]].set_visible(False)
        axes.plot(times[: start + 1], weights[: start + 1], color=colour, linewidth=1.3)
        axes.axvline(times[start], color=START, linestyle="--", linewidth=1.4)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("weight")
        # Weights are drawn over the history.
        axes.set_zorder(behind.get_zorder() + 1)
        axes.patch.set_visible(False)
        axes.set_title(f"layer {layer['layer']}, head {layer['head'] + 1}", loc="left", fontsize=9, color=colour)
    panels[0].set_title(f"{case.split(',')[0]}, series {window['series']}", loc="right", fontsize=9)
    return drawn


def draw_matrix(_rows: Sequence[Row], traces: Traces) -> Figure | None:
    """Draw the window and below it the attention weights of every position."""
    found = _shown(traces, "matrix")
    if found is None:
        return None
    case, trace = found
    window, matrix = trace["window"], trace["matrix"]
    title = f"{case.split(',')[0]}, series {window['series']}: last layer, head {matrix['head'] + 1}"
    return draw_attention_matrix(
        _times(window), array(window["values"]), whole_matrix(matrix["weights"]), window["context"], (title, "")
    )


def layers_fit(trace: Mapping[str, Any]) -> bool:
    """Return True if the layers of a trace, if any, are among those shown and have a weight per step of the window."""
    if "layers" not in trace:
        return True
    window, layers = trace.get("window"), trace["layers"]
    if not (_is_window(window) and isinstance(layers, list) and layers):
        return False
    return all(_is_head(layer) and layer.get("layer") in COLOURS
               and are_numbers(layer.get("weights"), len(window["values"])) for layer in layers)  # fmt: skip


def matrix_fits(trace: Mapping[str, Any]) -> bool:
    """Return True if the matrix of a trace, if any, has a row for every step of the window, up to that step."""
    if "matrix" not in trace:
        return True
    window, matrix = trace.get("window"), trace["matrix"]
    if not (_is_window(window) and _is_head(matrix)):
        return False
    rows = matrix.get("weights")
    if not isinstance(rows, list) or len(rows) != len(window["values"]):
        return False
    return all(are_numbers(row, position + 1) for position, row in enumerate(rows))


def _is_head(found: Any) -> bool:
    return isinstance(found, dict) and is_whole(found.get("head")) and found["head"] >= 0


def _is_window(window: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return True for a window with a time per value and a forecast start among them."""
    if not isinstance(window, dict) or not are_numbers(window.get("values"), holes=True):
        return False
    times: Any = window.get("times")
    context: Any = window.get("context")
    length = len(window["values"])
    if not isinstance(times, list) or {type(time) for time in times} not in ({str}, {int}):
        return False
    try:
        _times(window)
    except (ValueError, OverflowError):
        return False
    return len(times) == length and is_whole(context) and 0 < context < length and "series" in window


def _times(window: Mapping[str, Any]) -> Any:
    times = window["times"]
    return np.array(times, "datetime64[m]") if isinstance(times[0], str) else np.array(times)


def _layer_tables(rows: Sequence[Row], traces: Traces) -> list[Table]:
    """Return how far back each layer's head attends, and the scores of the model."""
    found = _shown(traces, "layers")
    lines, own = [], [row for row in rows if row["task"] == TEN_LAYERS_TABLE.name]
    if found is not None:
        case, trace = found
        for layer in trace["layers"]:
            weights, start = array(layer["weights"]), trace["window"]["context"]
            most = np.sort(weights)[::-1]
            few = f"{100 * most[:10].sum():.0f} %"
            lines.append([case, str(layer["layer"]), str(layer["head"] + 1), str(start - int(weights.argmax())), few])
    head = ["case", "layer", "head", "steps back to the most attended", "weight of the ten most attended"]
    return [Table("Figure 2, learned attention", head, lines), *TEN_LAYERS_TABLE.tables(own, NO_TRACES)]


def same_hour(weights_LJ: Floats, day: int) -> tuple[float, float]:
    """Return the weight on cells whole days back, including its own, and the same for uniform weights.

    Both are means over the positions with at least a day before them.
    """
    length = len(weights_LJ)
    back_LJ = np.arange(length)[:, None] - np.arange(length)
    same_LJ = (back_LJ >= 0) & (back_LJ % day == 0)
    alike_L = same_LJ.sum(1) / np.arange(1, length + 1)
    return float((weights_LJ * same_LJ).sum(1)[day:].mean()), float(alike_L[day:].mean())


def _matrix_tables(_rows: Sequence[Row], traces: Traces) -> list[Table]:
    """Return the weight at the same hour beside its share under uniform weights; the paper says it is larger."""
    found = _shown(traces, "matrix")
    lines = []
    if found is not None:
        case, trace = found
        matrix, window = trace["matrix"], trace["window"]
        # The horizon of these sets is a day.
        day = len(window["values"]) - window["context"]
        shares = same_hour(whole_matrix(matrix["weights"]), day)
        lines.append([case, str(matrix["head"] + 1), *(f"{share:.3f}" for share in shares)])
    head = ["case", "head", "weight at the same hour", "were all cells alike"]
    return [Table("Figure 6, attention matrix of the last layer", head, lines)]


LEARNED = Experiment(
    TEN_LAYERS_TABLE.name,
    TEN_LAYERS_TABLE.models,
    partial(_first_set, (SPARSE_TABLE, TEN_LAYERS_TABLE)),
    TEN_LAYERS_TABLE.identify,
    TEN_LAYERS_TABLE.run,
    _layer_tables,
    draw_layers,
    shows="Figure 2, attention learned in layers 2, 6 and 10",
    tasks=("sparse", TEN_LAYERS_TABLE.name),
    sets=("traffic-f", *TEN_LAYERS_TABLE.sets),
    fits=layers_fit,
    prepare=TEN_LAYERS_TABLE.prepare,
)
MATRIX = Experiment(
    "attention-matrix",
    (CANONICAL,),
    partial(_first_set, (KERNELS_TABLE,)),
    KERNELS_TABLE.identify,
    KERNELS_TABLE.run,
    _matrix_tables,
    draw_matrix,
    shows="Figure 6, the attention matrix of a head",
    tasks=("kernels",),
    sets=tuple(name for name in KERNELS_TABLE.sets if name.startswith("traffic")),
    fits=matrix_fits,
    prepare=KERNELS_TABLE.prepare,
)


LENGTH = 16
KINDS = {
    "full": full(),
    "LogSparse": logsparse(),
    "local + LogSparse": local(4),
    "restart + local + LogSparse": restart(8),
}


def _kinds_tables(_rows: Sequence[Row], _traces: Traces) -> list[Table]:
    """Return the cells of each kind of attention and the layers it needs."""
    lines = [
        [name, str(kind.cells(LENGTH)), str(kind.row_cells(LENGTH)), str(kind.layers_to_reach(LENGTH))]
        for name, kind in KINDS.items()
    ]
    title = f"Figure 3, kinds of attention, length {LENGTH}"
    return [Table(title, ["kind", "cells", "fullest row", "layers to reach"], lines)]


def draw_kinds(_rows: Sequence[Row], _traces: Traces) -> Figure:
    """Draw one panel per kind: rows of cells, the input lowest, and the paths into the last cell."""
    from matplotlib.figure import Figure

    from logsparse.attention.draw import draw_reach

    drawn = Figure(figsize=(13, 8), layout="constrained")
    for letter, axes, (name, kind) in zip("abcd", drawn.subplots(2, 2).flat, KINDS.items(), strict=True):
        draw_reach(axes, kind, LENGTH)
        axes.set_title(f"({letter}) {name}\n{axes.get_title(loc='left')}", loc="left", fontsize=10, color=INK)
    return drawn


ATTENTION_KINDS = Experiment(
    "attention-kinds",
    (),
    nothing_to_run,
    nothing_known,
    never,
    _kinds_tables,
    draw_kinds,
    shows="Figure 3, four kinds of attention",
)


FIGURES_OF_THE_PAPER = [MATCHING, LEARNED, ATTENTION_KINDS, CURVES, MATRIX]
EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (
        SYNTHETIC,
        *TABLES_OF_THE_PAPER,
        LONG_WAVES,
        PATTERNS_TABLE,
        STATISTICS,
        *FIGURES_OF_THE_PAPER,
        CLAIMS_TABLE,
    )
}


def draw(experiment: Experiment, folder: Path) -> Path | None:
    """Draw from what is recorded, without training; return None where there is nothing to draw."""
    found = experiment.recorded(folder)
    if experiment.figure is None or (experiment.models and not found):
        return None
    if (drawn := experiment.figure(found, experiment.traced(folder)[0])) is None:
        return None
    save_figure(drawn, path(experiment, folder), about=drawn_from(experiment, folder))
    return path(experiment, folder)


def drawn_from(experiment: Experiment, folder: Path) -> str:
    """Return a digest of all rows and traces that a figure is drawn from; the figure has it in its description."""
    left = [[*cell, trace] for cell, trace in experiment.traced(folder)[0].items()]
    return (
        f"results {sha256(json.dumps([experiment.recorded(folder), left], sort_keys=True).encode()).hexdigest()[:16]}"
    )


def path(experiment: Experiment, folder: Path) -> Path:
    """Return the path of its figure."""
    return folder / f"{experiment.name}.svg"


def figures(experiments: Iterable[Experiment], folder: Path) -> Table:
    """Return a table of all figures: drawn, or what is missing and how to get it."""
    drawn = sorted((one for one in experiments if one.figure is not None), key=lambda one: one.shows)
    lines = [[one.name, one.shows, _state_if_known(one, folder)] for one in drawn]
    return Table("Figures", ["name", "figure", "here"], lines)


def state(experiment: Experiment, folder: Path) -> str:
    """Return the state of a figure in words, with the command that draws it."""
    command = f"`logsparse reproduce {experiment.name}{'' if folder == Path('results') else f' -o {folder}'}`"
    runs = experiment.runs(None, experiment.models)
    todo, there = unfinished(folder, runs), path(experiment, folder).exists()
    todo_in_words = f"{len(todo)} of {len(runs)} runs"
    if there:
        rest = (
            "" if drawn_from(experiment, folder) in path(experiment, folder).read_text() else ", drawn from other runs"
        )
        rest += f", {todo_in_words} still to do: {command}" if todo else f": {command}" if rest else ""
        return f"{path(experiment, folder)}{rest}{without(experiment, folder)}"
    if experiment.models and not runs:
        return "no data: `logsparse data list` says how to get them"
    if todo:
        return f"{todo_in_words} still to do: {command}"
    if not drawable(experiment, folder):
        again = f"`logsparse reproduce {experiment.name} -o ANOTHER`"
        return f"no traces of its runs, whose scores stay: {again}, copy ANOTHER/traces here, then {command}"
    return f"not drawn yet: {command}"


def without(experiment: Experiment, folder: Path) -> str:
    """Return the recorded models that the figure cannot show, in words: their traces are gone or unusable."""
    if experiment.fits is anything:
        return ""
    left, runs = experiment.traced(folder)[0], set(experiment.runs(None, experiment.models))
    trained = {run_of(row) for row in experiment.recorded(folder) if row["steps"]}
    shown = [run.model for run in sorted(trained & runs, key=str) if (run.case, run.model) not in left]
    lacking = list(dict.fromkeys(shown))
    return f", without {', '.join(lacking)}, of which there is no trace" if lacking else ""


def _state_if_known(experiment: Experiment, folder: Path) -> str:
    try:
        return state(experiment, folder)
    except DataError:
        return "not known: its results cannot be read"


def drawable(experiment: Experiment, folder: Path) -> bool:
    """Return True if the recorded runs left what the figure needs."""
    figure, found = experiment.figure, experiment.recorded(folder)
    return figure is not None and figure(found, experiment.traced(folder)[0]) is not None
