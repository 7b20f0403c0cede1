"""Training panel -> SeriesIndex, which encodes later panels as the model knows them; Panel <-> JSON and arrays.

`SeriesIndex` numbers the series that a model was trained on. `pack_panel` and `unpack_panel` save and load the history
that a model keeps to forecast from; what is loaded is validated, since files may be damaged or edited. `read_like`
reads new data for a fitted model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self, Unpack

import numpy as np

from logsparse.data.calendar import FARTHEST, Freq, Ints
from logsparse.data.columns import Columns, ColumnSpec
from logsparse.data.frame import Data, read_as
from logsparse.data.localtime import with_clock
from logsparse.data.panel import Floats, Origin, Panel, SeriesId, Static
from logsparse.data.scale import Doubles, mean_sizes
from logsparse.data.times import NAIVE, to_wall
from logsparse.errors import DataError, StepUnknownError
from logsparse.storage import array, entries, ids, numbers, require, text, texts, wholes

# S series of the panel, A series of the index

_COVARIATE = "covariate/"
_ORIGINS = {
    "library": ("pandas", "polars", "pyarrow"),
    "layout": ("long", "wide"),
    "time_type": ("integer", "date", "datetime"),
}
# Bound of the number of steps per series, including those before the panel, so that times fit into 64 bits.
_MOST_STEPS = 2**40


@dataclass(frozen=True, eq=False)
class SeriesIndex:
    """Series and categories that a model was trained on.

    `first_A` and `end_A` are the times of the first and last step per series, `size_A` is the mean absolute value of
    its training part, 0 if that is all zeros.
    """

    ids: tuple[SeriesId, ...]
    first_A: Ints
    end_A: Ints
    size_A: Doubles
    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, panel: Panel, learned_S: Ints) -> Self:
        """Index a training panel, of which the first `learned_S` steps per series are trained on."""
        first_A = panel.starts if panel.elapsed is None else panel.freq.add(panel.starts, -panel.elapsed)
        static = {name: column.categories for name, column in panel.static.items()}
        return cls(panel.ids, first_A, panel.ends(), mean_sizes(panel, learned_S), static)

    @property
    def unit(self) -> float:
        """Median size of the series that are not all zeros; 1 if there are none."""
        live_A = self.size_A[self.size_A > 0]
        return float(np.median(live_A)) if len(live_A) else 1.0

    def encode(self, panel: Panel) -> Panel:
        """Return the panel with the numbers, ages, units and categories that its series had in training, -1 if unknown.

        The values of the panel are not used: a forecast does not depend on how much of the past the panel holds.
        """
        where = dict(zip(self.ids, range(len(self.ids)), strict=True))
        number_S = np.array([where.get(name, -1) for name in panel.ids], np.int64)
        first_S = np.where(number_S < 0, panel.starts, self.first_A[number_S])
        size_S = np.where(number_S < 0, 0, self.size_A[number_S])
        units_S = np.where(size_S > 0, size_S, self.unit)
        static = {name: _recode(panel.static[name], self.categories[name]) for name in self.categories}
        elapsed_S = panel.freq.steps(first_S, panel.starts)
        return replace(panel, numbers=number_S, elapsed=elapsed_S, units=units_S, static=static)

    def joined(self, panel: Panel, learned_S: Ints) -> SeriesIndex:
        """Return the index extended by the new series and categories of a panel, which are appended.

        Known sizes stay, since the trained weights depend on them.
        """
        known = set(self.ids)
        new = [i for i, name in enumerate(panel.ids) if name not in known]
        categories = {
            name: (*old, *(c for c in panel.static[name].categories if c not in old))
            for name, old in self.categories.items()
        }
        first_A = np.concatenate([self.first_A, panel.starts[new]])
        ends = dict(zip(panel.ids, panel.ends().tolist(), strict=True))
        ids = (*self.ids, *(panel.ids[i] for i in new))
        old_A = np.concatenate([self.end_A, panel.ends()[new]])
        end_A = np.maximum(old_A, [ends.get(name, end) for name, end in zip(ids, old_A.tolist(), strict=True)])
        new_S = mean_sizes(panel, learned_S)
        sizes = dict(zip(panel.ids, new_S.tolist(), strict=True))
        old_A = np.concatenate([self.size_A, new_S[new]])
        size_A = np.array([size or sizes.get(name, 0.0) for name, size in zip(ids, old_A.tolist(), strict=True)])
        return SeriesIndex(ids, first_A, end_A, size_A, categories)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and strings, ready for JSON."""
        categories = {name: list(values) for name, values in self.categories.items()}
        times = {"born": self.first_A.tolist(), "end": self.end_A.tolist()}
        return {"ids": list(self.ids), **times, "size": self.size_A.tolist(), "categories": categories}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Validate and load the output of `to_dict`."""
        entries("known", state, "ids", "born", "categories")
        names = ids("known/ids", state["ids"])
        categories = {
            name: texts(f"known/categories/{name}", values)
            for name, values in entries("known/categories", state["categories"]).items()
        }
        # Early models lack end and sizes; they were trained with scale 1 for histories of zeros.
        first_A, end_A = (
            wholes(f"known/{key}", state.get(key, state["born"]), len(names), -FARTHEST, FARTHEST)
            for key in ("born", "end")
        )
        size_A = np.array(numbers("known/size", state.get("size", [0.0] * len(names)), len(names), least=0))
        return cls(names, first_A, end_A, size_A, categories)


def _recode(column: Static, categories: tuple[str, ...]) -> Static:
    where = dict(zip(categories, range(len(categories)), strict=True))
    code = np.array([where.get(name, -1) for name in column.categories], np.int64)
    return Static(np.where(column.codes < 0, -1, code[column.codes]), categories)


def pack_panel(panel: Panel, steps: int | None = None) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Return facts for JSON, and the values and covariates of the last `steps` visible steps per series (None: all).

    Missing values at the end of a series are kept but not counted: the scale is computed from the steps before them.
    """
    left_S = np.zeros_like(panel.lengths) if steps is None else np.maximum(panel.to_last_value().lengths - steps, 0)
    kept_S = panel.lengths - left_S
    cells = _cells(panel.indptr[:-1] + left_S, kept_S)
    elapsed_S = left_S if panel.elapsed is None else left_S + panel.elapsed
    facts = {
        "ids": list(panel.ids),
        "starts": panel.freq.add(panel.starts, left_S).tolist(),
        "lengths": kept_S.tolist(),
        "elapsed": elapsed_S.tolist(),
        "freq": str(panel.freq),
        "origin": {**asdict(panel.origin), "names": None if panel.origin.names is None else list(panel.origin.names)},
        "static": {
            name: {"codes": column.codes.tolist(), "categories": list(column.categories)}
            for name, column in panel.static.items()
        },
    }
    return facts, {"values": panel.values[cells], **{f"{_COVARIATE}{n}": x[cells] for n, x in panel.covariates.items()}}


def unpack_panel(facts: Mapping[str, Any], arrays: Mapping[str, Floats] | None) -> Panel:
    """Validate and load the output of `pack_panel`; without arrays, only the last step per series, as missing."""
    entries("panel", facts, "ids", "starts", "lengths", "elapsed", "freq", "origin", "static")
    names = ids("panel/ids", facts["ids"])
    starts_S = wholes("panel/starts", facts["starts"], len(names), -FARTHEST, FARTHEST)
    lengths_S = wholes("panel/lengths", facts["lengths"], len(names), 1, _MOST_STEPS)
    elapsed_S = wholes("panel/elapsed", facts["elapsed"], len(names), 0, _MOST_STEPS)
    freq = Freq.parse(text("panel/freq", facts["freq"]))
    ends_S = freq.add(starts_S, lengths_S - 1)
    if arrays is None:
        elapsed_S, starts_S, lengths_S = elapsed_S + lengths_S - 1, ends_S, np.ones_like(lengths_S)
        arrays = {"values": np.full(len(names), np.nan, np.float32)}
    indptr = np.concatenate([[0], np.cumsum(lengths_S)])
    values = _flat("values", arrays.get("values"), int(indptr[-1]))
    # A model saved without its history has no value at all; if only some series have none, the file is damaged.
    seen_S = np.add.reduceat(~np.isnan(values), indptr[:-1])
    require("values", "there for every series", "a series without any", holds=bool(seen_S.all() or not seen_S.any()))
    return Panel(
        values=values,
        indptr=indptr,
        lengths=lengths_S,
        ids=names,
        starts=starts_S,
        freq=freq,
        covariates={_covariate(n): _flat(n, x, values.size) for n, x in arrays.items() if n != "values"},
        static={name: _static(name, column, len(names)) for name, column in entries("static", facts["static"]).items()},
        origin=_origin(facts["origin"]),
        elapsed=elapsed_S,
    )


def _flat(name: str, values: Any, size: int) -> Floats:
    return array(f"history/{name}", values, (size,), np.float32)


def _covariate(name: str) -> str:
    require("history", "values and covariates", name, holds=name.startswith(_COVARIATE))
    return name.removeprefix(_COVARIATE)


def _static(name: str, column: Any, count: int) -> Static:
    state = entries(f"static/{name}", column, "codes", "categories")
    categories = texts(f"static/{name}/categories", state["categories"])
    return Static(wholes(f"static/{name}/codes", state["codes"], count, -1, len(categories) - 1), categories)


def _origin(facts: Any) -> Origin:
    state = entries("panel/origin", facts)
    names = state.get("names")  # models of version 0.1.0 have none
    if names is not None:
        names = texts("panel/origin/names", names)
        require("panel/origin/names", "three names", names, holds=len(set(names)) == 3 == len(names))
    origin = Origin(**{**state, "names": names})
    for name, kinds in _ORIGINS.items():
        require(f"panel/origin/{name}", f"one of {', '.join(kinds)}", facts, holds=getattr(origin, name) in kinds)
    for name in ("zone", "written"):
        if (zone := getattr(origin, name)) is not None and zone != NAIVE:
            # Raises for an unknown zone.
            to_wall(np.zeros(1, np.int64), text(f"panel/origin/{name}", zone))
    return origin


def read_with(data: Data, fitted: Panel, columns: Columns) -> Panel:
    """Read data as those of a fitted panel were read, whatever their step; series without any value are kept."""
    spec = replace(ColumnSpec.of(columns), home=fitted.origin.zone)
    try:
        return read_as(data, spec)
    except StepUnknownError:
        # A history of single values does not show its step; it can only be the fitted one.
        return read_as(data, replace(spec, freq=str(fitted.freq)))


def read_like(fitted: Panel, data: Data, **columns: Unpack[Columns]) -> Panel:
    """Return new data as a panel with the step and on the clock of the panel that a model was fitted on, or raise."""
    panel = read_with(data, fitted, columns)
    if panel.freq != fitted.freq:
        raise DataError(
            "New data must have the step that was fitted.",
            got=f"steps of {panel.freq} after {fitted.freq}",
            hint="resample it, or fit again; freq= at fit() holds for later histories too.",
        )
    return with_clock(panel, fitted.origin)


def check_columns(spec: ColumnSpec, panel: Panel, *, history: bool) -> None:
    """Raise if the columns do not match the panel; a panel without history has no covariates."""
    require("columns/static", f"{list(panel.static)}", spec.static, holds=set(spec.static) == set(panel.static))
    fits = not history or set(spec.covariates) == set(panel.covariates)
    require("columns/covariates", f"{list(panel.covariates)}", spec.covariates, holds=fits)


def _cells(begin_S: Any, count_S: Any) -> Any:
    """Return begin, begin + 1, ..., begin + count - 1 of each series, concatenated."""
    ends_S = np.cumsum(count_S)
    return np.arange(ends_S[-1]) + np.repeat(begin_S - (ends_S - count_S), count_S)
