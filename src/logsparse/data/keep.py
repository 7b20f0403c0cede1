"""Panel <-> plain facts for JSON and flat arrays: what a saved model remembers of its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from logsparse.data.calendar import FARTHEST, Freq
from logsparse.data.columns import Meaning
from logsparse.data.panel import Floats, Origin, Panel, Static
from logsparse.data.times import to_wall
from logsparse.facts import array, entries, ids, require, text, texts, wholes

# S series

_COVARIATE = "covariate/"
_ORIGINS = {
    "library": ("pandas", "polars", "pyarrow"),
    "layout": ("long", "wide"),
    "time_type": ("integer", "date", "datetime"),
}
# Steps of a series, those before its first one here included: what times of 64 bits have room for.
_MOST_STEPS = 2**40


def keep(panel: Panel, steps: int | None = None) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Facts, and values and covariates of the last `steps` visible steps of each series; none: of all.

    A gap at the end of a series does not count: the steps before it tell its unit.
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
        "origin": asdict(panel.origin),
        "static": {
            name: {"codes": column.codes.tolist(), "categories": list(column.categories)}
            for name, column in panel.static.items()
        },
    }
    return facts, {"values": panel.values[cells], **{f"{_COVARIATE}{n}": x[cells] for n, x in panel.covariates.items()}}


def recall(facts: Mapping[str, Any], arrays: Mapping[str, Floats] | None) -> Panel:
    """What `keep` gave, as a panel again; without arrays, the last step of each series and nothing observed.

    Both may come from a stranger: nothing is built before it is known to fit.
    """
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
    # None at all is a model that was saved without its history; but none of one series is a damage.
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
    found = entries(f"static/{name}", column, "codes", "categories")
    categories = texts(f"static/{name}/categories", found["categories"])
    return Static(wholes(f"static/{name}/codes", found["codes"], count, -1, len(categories) - 1), categories)


def _origin(facts: Any) -> Origin:
    origin = Origin(**entries("panel/origin", facts))
    for name, kinds in _ORIGINS.items():
        require(f"panel/origin/{name}", f"one of {', '.join(kinds)}", facts, holds=getattr(origin, name) in kinds)
    if origin.zone is not None:
        # Read once, so that a zone that does not exist is found here.
        to_wall(np.zeros(1, np.int64), text("panel/origin/zone", origin.zone))
    return origin


def check_columns(meant: Meaning, panel: Panel, *, history: bool) -> None:
    """What columns mean must fit the panel that was read by them; without history there are no covariates in it."""
    require("columns/static", f"{list(panel.static)}", meant.static, holds=set(meant.static) == set(panel.static))
    fits = not history or set(meant.covariates) == set(panel.covariates)
    require("columns/covariates", f"{list(panel.covariates)}", meant.covariates, holds=fits)


def forget(panel: Panel) -> Panel:
    """The same series with their ends, and nothing that was observed."""
    facts, arrays = keep(panel, 1)
    return recall(facts, {name: np.full_like(known, np.nan) for name, known in arrays.items()})


def _cells(begin_S: Any, count_S: Any) -> Any:
    """begin, begin + 1, ... of each series, one after the other."""
    ends_S = np.cumsum(count_S)
    return np.arange(ends_S[-1]) + np.repeat(begin_S - (ends_S - count_S), count_S)
