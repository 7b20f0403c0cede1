"""Panel <-> plain facts for JSON and flat arrays: what a saved model remembers of its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from logsparse.data.calendar import Freq
from logsparse.data.panel import Floats, Origin, Panel, Static

# S series


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
    return facts, {"values": panel.values[cells], **{f"covariate/{n}": x[cells] for n, x in panel.covariates.items()}}


def recall(facts: Mapping[str, Any], arrays: Mapping[str, Floats]) -> Panel:
    """What `keep` gave, as a panel again."""
    lengths_S = np.array(facts["lengths"], np.int64)
    static = {
        name: Static(np.array(column["codes"], np.int64), tuple(column["categories"]))
        for name, column in facts["static"].items()
    }
    return Panel(
        values=arrays["values"],
        indptr=np.concatenate([[0], np.cumsum(lengths_S)]),
        lengths=lengths_S,
        ids=tuple(facts["ids"]),
        starts=np.array(facts["starts"], np.int64),
        freq=Freq.parse(facts["freq"]),
        covariates={n.removeprefix("covariate/"): x for n, x in arrays.items() if n.startswith("covariate/")},
        static=static,
        origin=Origin(**facts["origin"]),
        elapsed=np.array(facts["elapsed"], np.int64),
    )


def forget(panel: Panel) -> Panel:
    """The same series with their ends, and nothing that was observed."""
    facts, arrays = keep(panel, 1)
    return recall(facts, {name: np.full_like(array, np.nan) for name, array in arrays.items()})


def _cells(begin_S: Any, count_S: Any) -> Any:
    """begin, begin + 1, ... of each series, one after the other."""
    ends_S = np.cumsum(count_S)
    return np.arange(ends_S[-1]) + np.repeat(begin_S - (ends_S - count_S), count_S)
