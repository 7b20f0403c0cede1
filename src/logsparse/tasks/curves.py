"""The runs of table 2 -> the paper's training curves (figure 5): loss against the step for k = 1, 3 and 9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logsparse.data.panel import Floats
from logsparse.pictures import new_panels
from logsparse.tasks.cases import TABLES
from logsparse.tasks.experiment import Experiment, Table
from logsparse.tasks.ledger import Row
from logsparse.tasks.tables import KERNELS_TABLE
from logsparse.tasks.traces import Traces, are_numbers, array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = {"k=1": "#c8553d", "k=3": "#3a8f4d", "k=9": "#1f6fb2"}
PARTS = ("step", "nll", "validation_nll")
# Of all looks, those that one point of the smooth curve is the mean of.
_SHARE = 0.1


def smooth(losses: Sequence[float]) -> Floats:
    """Mean over the tenth of all looks around each; at the ends over what is there."""
    values, half = array(losses), max(1, round(_SHARE * len(losses))) // 2
    return np.array([values[max(0, i - half) : i + half + 1].mean() for i in range(len(values))])


def fits(trace: Mapping[str, Any]) -> bool:
    """Whether its curve is one: as many steps as losses, at least one, all of them numbers."""
    curve = trace.get("curve")
    if not isinstance(curve, dict) or not are_numbers(curve.get("step")):
        return False
    return all(are_numbers(curve.get(name), len(curve["step"])) for name in PARTS)


def tables(_rows: Sequence[Row], traces: Traces) -> list[Table]:
    """Where each curve ends."""
    lines = []
    for case in _cases(traces):
        for model in MODELS:
            if trace := traces.get((case, model)):
                curve = trace["curve"]
                ends = (smooth(curve["nll"])[-1], min(curve["validation_nll"]))
                lines.append([case, model, str(curve["step"][-1]), *(f"{loss:.4f}" for loss in ends)])
    return [Table("Figure 5, training curves", ["case", "model", "steps", "training nll", "best validation"], lines)]


def figure(_rows: Sequence[Row], traces: Traces) -> Figure | None:
    """A panel a set: the losses of single batches pale, their mean over a tenth of the looks bold."""
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
    KERNELS_TABLE.carry_out,
    tables,
    figure,
    shows="Figure 5, training curves of k = 1, 3, 9",
    tasks=("kernels",),
    sets=KERNELS_TABLE.sets,
    fits=fits,
)
