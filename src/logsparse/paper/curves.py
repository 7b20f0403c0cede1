"""Trained models -> the paper's training curves (figure 5) and pictures of learned attention (figures 2 and 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from logsparse.data.panel import Floats
from logsparse.errors import is_whole
from logsparse.paper.cases import TABLES
from logsparse.paper.experiment import NO_TRACES, Experiment, Table, Traces, are_numbers, array, whole_matrix
from logsparse.paper.ledger import Row, Run
from logsparse.paper.tables import KERNELS_TABLE, SPARSE_TABLE, TEN_LAYERS_TABLE
from logsparse.pictures import START, draw_attention_matrix, new_panels

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


def tables(_rows: Sequence[Row], traces: Traces) -> list[Table]:
    """Return where each curve ends."""
    lines = []
    for case in _cases(traces):
        for model in MODELS:
            if trace := traces.get((case, model)):
                curve = trace["curve"]
                ends = (smooth(curve["nll"])[-1], min(curve["validation_nll"]))
                lines.append([case, model, str(curve["step"][-1]), *(f"{loss:.4f}" for loss in ends)])
    return [Table("Figure 5, training curves", ["case", "model", "steps", "training nll", "best validation"], lines)]


def figure(_rows: Sequence[Row], traces: Traces) -> Figure | None:
    """Draw one panel per set: losses of single batches pale, their moving average bold."""
    cases = _cases(traces)
    if not cases:
        return None
    drawn, panels = new_panels((7, 3.2 * len(cases)), [1] * len(cases))
    for axes, case in zip(panels, cases, strict=True):
        for model, colour in MODELS.items():
            if trace := traces.get((case, model)):
                curve = trace["curve"]
                axes.plot(curve["step"], curve["nll"], color=colour, linewidth=0.6, alpha=0.3)
                axes.plot(curve["step"], smooth(curve["nll"]), color=colour, linewidth=1.8, label=model)
        axes.set_title(case, loc="left", fontsize=10)
        axes.set_ylabel("training nll")
        axes.legend(frameon=False, fontsize=8)
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
    tables,
    figure,
    shows="Figure 5, training curves of k = 1, 3, 9",
    tasks=("kernels",),
    sets=KERNELS_TABLE.sets,
    fits=fits,
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
    """Return case and trace of the first trace that has this part, in the order of the sets."""
    return next(((case, trace) for (case, _), trace in traces.items() if part in trace), None)


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
    lines = []
    if found is not None:
        case, trace = found
        for layer in trace["layers"]:
            weights, start = array(layer["weights"]), trace["window"]["context"]
            most = np.sort(weights)[::-1]
            few = f"{100 * most[:10].sum():.0f} %"
            lines.append([case, str(layer["layer"]), str(layer["head"] + 1), str(start - int(weights.argmax())), few])
    head = ["case", "layer", "head", "steps back to the most attended", "weight of the ten most attended"]
    return [Table("Figure 2, learned attention", head, lines), *TEN_LAYERS_TABLE.tables(_of_ten(rows), NO_TRACES)]


def _of_ten(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["task"] == TEN_LAYERS_TABLE.name]


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
)
