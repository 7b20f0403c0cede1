"""Arrays -> matplotlib figures, and figures -> files. Looks only: nothing is computed here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from logsparse.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FORECAST, TRUTH = "#333333", "#1f6fb2", "#c8553d"


def new_figure(width: float = 8, height: float = 3) -> tuple[Figure, Axes]:
    """A figure that belongs to nobody: no global state, no window, safe in threads."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    return figure, axes


def draw_fan(axes: Axes, times: Any, levels: Sequence[float], quantiles_QH: Any) -> None:
    """Central intervals, one shade each, and the median."""
    outer_first = [i for i in range(len(levels) // 2) if np.isclose(levels[i] + levels[-1 - i], 1)]
    for shade, i in enumerate(outer_first, start=1):
        axes.fill_between(
            times,
            quantiles_QH[i],
            quantiles_QH[-1 - i],
            color=FORECAST,
            alpha=0.15 + 0.35 * (shade - 1) / len(outer_first),
            linewidth=0,
            label=f"{100 * (levels[-1 - i] - levels[i]):.0f} %" if shade in (1, len(outer_first)) else None,
        )
    if 0.5 in levels:
        axes.plot(times, quantiles_QH[list(levels).index(0.5)], color=FORECAST, linewidth=1.6, label="median")


def draw_losses(rows: Sequence[Mapping[str, float]], size: tuple[float, float] = (8, 3)) -> Figure:
    """Training and validation loss against the step, from the rows of a training's story; a star marks the best."""
    figure, axes = new_figure(*size)
    steps = [row["step"] for row in rows]
    validation = [row["validation_nll"] for row in rows]
    axes.plot(steps, [row["nll"] for row in rows], color=INK, linewidth=1, alpha=0.6, label="training")
    axes.plot(steps, validation, color=FORECAST, linewidth=1.6, label="validation")
    best = int(np.argmin(validation))
    axes.plot(steps[best], validation[best], "*", color=TRUTH, markersize=10, label=f"best: {validation[best]:.4g}")
    axes.set_xlabel("step")
    axes.set_ylabel("negative log-likelihood")
    axes.legend(frameon=False, fontsize=8)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """SVG, PNG or PDF by the ending of the name, the same bytes every time; written beside, then renamed."""
    import matplotlib as mpl

    if path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise DataError("A picture is written as svg, png or pdf.", got=f"{path}", hint="end the name in .svg.")
    beside = path.with_name(f".{path.name}.{os.getpid()}{path.suffix}")
    undated = {"CreationDate": None} if path.suffix == ".pdf" else {"Date": None} if path.suffix == ".svg" else {}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context({"svg.hashsalt": "logsparse"}):
            figure.savefig(beside, metadata=undated, dpi=150)
        beside.replace(path)
    except OSError as error:
        raise DataError(
            "The picture must be writable.", got=f"{path}: {error.strerror or error}", hint="give another path."
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink()
