"""Network + a window of one series -> the attention weights of its forecast, as a table and a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import polars as pl
import torch
from torch import Tensor

from logsparse.attention.inputs import without_padding
from logsparse.attention.pattern import Pattern, full
from logsparse.attention.plain import pattern_weights
from logsparse.data.columns import ID, TIME, result_names
from logsparse.data.grid import Library, to_native
from logsparse.data.panel import Floats, SeriesId
from logsparse.data.times import stamps
from logsparse.data.windows import Batch, Windows
from logsparse.errors import ConfigError, is_whole, suggest, whole
from logsparse.model.decode import along_the_mean
from logsparse.model.network import Network
from logsparse.model.transformer import Block, Transformer
from logsparse.pictures import draw_attention, draw_attention_matrix

if TYPE_CHECKING:
    from logsparse.canvas import Picture

# B batch, H heads, L positions of the window (queries), J positions attended to (= L), M cells of a row,
# D channels of q and k

# Times that a caption names.
_NAMED = 3


def weights_row(q: Tensor, k: Tensor, pattern: Pattern, row: int, starts_B: Tensor | None = None) -> Tensor:
    """Return the weights of one row, (B, H, J), 0 outside its pattern; no other row is computed.

    Cells before each start are padding and have weight 0; the row itself must not be padding.
    """
    cells_M = torch.tensor(pattern.row(row), device=q.device)
    scores_BHM = (k[:, :, cells_M] @ q[:, :, row, :, None])[..., 0] / math.sqrt(q.shape[-1])
    if starts_B is not None:
        scores_BHM = scores_BHM.masked_fill((cells_M < starts_B[:, None])[:, None], -math.inf)
    weights_BHJ = q.new_zeros(q.shape[:3])
    weights_BHJ[:, :, cells_M] = scores_BHM.softmax(-1)
    return weights_BHJ


def weights_matrix(q: Tensor, k: Tensor, pattern: Pattern, starts_B: Tensor | None = None) -> Tensor:
    """Return the weights of all rows, (B, H, L, J), dense first rows included; rows of padding are 0."""
    length = q.shape[2]
    distances = pattern.distances(length)
    clean_q, clean_k = without_padding(q, starts_B), without_padding(k, starts_B)
    weights_BHLM = pattern_weights(clean_q, clean_k, distances, starts_B)
    matrix_BHLJ = weights_BHLM.new_zeros(*q.shape[:3], length)
    for m, s in enumerate(distances):
        matrix_BHLJ.diagonal(-s, 2, 3).copy_(weights_BHLM[:, :, s:, m])
    if corner := min(pattern.dense_rows, length):
        matrix_BHLJ[:, :, :corner, :corner] = weights_matrix(q[:, :, :corner], k[:, :, :corner], full(), starts_B)
    return matrix_BHLJ


class Attending(NamedTuple):
    """Weights and values of one window: history, then the mean path."""

    weights: Floats
    """(H, J) for one step of the horizon, or (H, L, J) for all positions."""
    values_L: Floats
    """NaN if missing."""


@torch.no_grad()
def attending(network: Transformer, batch: Batch, layer: int, step: int | None) -> Attending:
    """Return the weights of all heads of one layer; the horizon before the step is filled with the mean path."""
    filled = along_the_mean(network, batch)
    q, k = network.queries_keys(filled, layer)
    starts_B = filled.starts_B
    pattern = cast("Block", network.blocks[layer]).attention.pattern
    if step is None:
        weights = weights_matrix(q, k, pattern, starts_B)
    else:
        weights = weights_row(q, k, pattern, batch.context + step, starts_B)
    values_L = filled.values_BL[0] + batch.centre_B[0]
    unseen_L = ~batch.observed_BL[0]
    unseen_L[batch.context :] = False
    values_L[unseen_L] = torch.nan
    return Attending(weights[0].cpu().numpy(), values_L.cpu().numpy())


@dataclass(frozen=True, repr=False, eq=False)
class Attention:
    """Attention weights of one step of a forecast, or of every position of its window.

    A position stands for the time whose value it predicts: it has read the values before it, not its own. The horizon
    holds the mean path. The weights of a position sum to 1; they are 0 outside its pattern and after itself.
    """

    weights: Floats
    """(J,) for one step, or (L, J) for every position."""
    values: Floats
    """(L,): history, then the mean path; NaN if missing."""
    times: pl.Series
    """(L,)"""
    context: int
    """Position of the forecast start."""
    series: SeriesId
    step: int | None
    """Step of the horizon that attends; None: every position."""
    what: str
    """Layer and head, as text, counted from 1."""
    library: Library
    names: tuple[str, str] = (ID, TIME)
    """Columns of ids and times."""

    def __repr__(self) -> str:
        return f"Attention({self._who()}, series {self.series!r} over {len(self.values)} positions, {self.what})"

    def _who(self) -> str:
        """Return what attends, as text, counted from 1."""
        horizon = len(self.values) - self.context
        return "every position" if self.step is None else f"step {self.step + 1} of {horizon}"

    def table(self) -> pl.DataFrame:
        """Return id, time, value and weight of the positions up to the step.

        For every position: one row per cell, with the attending time, the attended one in `attended`, and the weight.
        The id and time columns have the names that they had in the data; unique_id and ds after a wide table.
        """
        id_col, time_col = self.names
        if self.step is not None:
            seen = self.context + self.step + 1
            columns = {time_col: self.times, "value": pl.Series(self.values), "weight": pl.Series(self.weights)}
            table = pl.DataFrame(columns).head(seen).with_columns(pl.col("value").fill_nan(None))
        else:
            rows, cells = np.nonzero(self.weights)
            columns = {time_col: self.times[rows], "attended": self.times[cells]}
            table = pl.DataFrame({**columns, "weight": self.weights[rows, cells]})
        return table.select(pl.lit(self.series).alias(id_col), pl.all())

    def frame(self) -> Any:
        """Return the table as a frame of the library that the data came from."""
        return to_native(self.table(), self.library)

    def top(self, count: int = 10) -> pl.DataFrame:
        """Return time, value and weight of the times that are attended most, the largest weight first.

        For every position: the mean weights over the steps of the forecast.

        Parameters
        ----------
        count
            Number of rows at most.
        """
        most = whole("count", count, hint="count the times to return.")
        weights = self._of_forecast()
        cells = np.argsort(-weights, kind="stable")[: min(most, np.count_nonzero(weights))]
        values = pl.Series(self.values[cells]).fill_nan(None)
        return pl.DataFrame({self.names[1]: self.times[cells], "value": values, "weight": weights[cells]})

    def _of_forecast(self) -> Floats:
        """Return the weights of the step, or the mean of those of all steps of the forecast."""
        return self.weights if self.step is not None else self.weights[self.context :].mean(0)

    def caption(self) -> str:
        """Return the times that are attended most, and their share of the weight, in one line."""
        top = self.top(_NAMED)
        own = None if self.step is None else self.times[self.context + self.step]
        named = [
            f"{'itself' if time == own else text} ({weight:.0%})"
            for time, text, weight in zip(
                top[self.names[1]], self._texts(top[self.names[1]]), top["weight"], strict=True
            )
        ]
        return f"{'the forecast' if self.step is None else self._who()} looks most at {', '.join(named)}"

    def _texts(self, times: pl.Series) -> list[str]:
        """Return times as short text: without the parts that are alike in the whole window, integers as they are."""
        if not times.dtype.is_temporal():
            return [str(time) for time in times]
        year = " %Y" if self.times.dt.year().n_unique() > 1 else ""
        hour = "" if self.times.dtype == pl.Date or (self.times.dt.truncate("1d") == self.times).all() else " %H:%M"
        return times.dt.strftime(f"%a %d %b{year}{hour}").to_list()

    def plot(self) -> Picture:
        """Draw the weights below the history, like the paper's figures of learned patterns.

        Returns
        -------
        matplotlib.figure.Figure
            A figure, which a notebook displays if it is the last line of a cell. Its titles name layer and head,
            and the times that are attended most.
        """
        zoned = isinstance(self.times.dtype, pl.Datetime)
        # Local times: matplotlib would convert zoned ones.
        times = (self.times.dt.replace_time_zone(None) if zoned else self.times).to_numpy()
        titles = f"{self.series}: {self.what}", self.caption()
        if self.step is None:
            return draw_attention_matrix(times, self.values, self.weights, self.context, titles)
        position = self.context + self.step
        return draw_attention(times, self.values, self.weights, (self.context, position), titles)


def attention_of(
    network: Network, windows: Windows, *, series: SeriesId | None, layer: int, head: int | None, step: int | None
) -> Attention:
    """Return the attention of the last window of one series (default: the first), of one head or their mean."""
    if not isinstance(network, Transformer):
        raise ConfigError(
            "Only a network with attention can show it.",
            got=type(network).__name__,
            hint="use a LogSparse model.",
        )
    panel, layers, heads = windows.panel, network.config.layers, network.config.heads
    row = 0 if series is None else _place(series, panel.ids)
    layer_index = _counted("layer", layer, layers, "layer=-1 is the last.")
    head_index = None if head is None else _counted("head", head, heads, "head=None is the mean over all.")
    if step is not None and not (is_whole(step) and 0 <= step < windows.horizon):
        raise ConfigError(
            f"step must be a step of the horizon, 0 to {windows.horizon - 1}, or None.",
            got=f"{step!r}",
            hint="step=0 is the first step forecast; step=None returns the matrix of the whole window.",
        )
    end = panel.lengths[[row]]
    batch = windows(np.array([row]), end).to(next(network.parameters()).device)
    weights, values_L = attending(network, batch, layer_index, step)
    steps_L = end - windows.context + np.arange(len(values_L))
    return Attention(
        weights=weights.mean(0) if head_index is None else weights[head_index],
        values=values_L,
        times=stamps(panel, panel.freq.add(np.full_like(steps_L, panel.starts[row]), steps_L)),
        context=windows.context,
        series=panel.ids[row],
        step=step,
        what=f"layer {layer_index + 1} of {layers}, "
        + (f"mean of {heads} heads" if head_index is None else f"head {head_index + 1} of {heads}"),
        library=panel.origin.library,
        names=result_names(panel.origin)[:2],
    )


def _place(series: SeriesId, ids: tuple[SeriesId, ...]) -> int:
    if series not in ids:
        raise ConfigError(
            "series must be the id of a series in the data.",
            got=f"{series!r}",
            hint=suggest(series, ids, f"name one such as {ids[0]!r}."),
        )
    return ids.index(series)


def _counted(name: str, number: Any, count: int, hint: str) -> int:
    """Return an index of `count`, from 0 on or from -1 back, as one from 0 on."""
    if not is_whole(number) or not -count <= number < count:
        raise ConfigError(
            f"{name} must be 0 to {count - 1}, or -1 to -{count} counted from the last.",
            got=f"{number!r}",
            hint=hint,
        )
    return int(number) % count
