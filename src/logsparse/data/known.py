"""What training knew of its series, and a panel retold in its terms: numbers, ages and categories as in training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from logsparse.data.calendar import FARTHEST, Ints
from logsparse.data.panel import Panel, SeriesId, Static
from logsparse.data.scale import Doubles, mean_sizes
from logsparse.facts import entries, ids, numbers, texts, wholes

# S series of the panel, A series known


@dataclass(frozen=True, eq=False)
class Known:
    """The series of the training panel: `born_A` and `end_A` are the times of each one's first and last step.

    `size_A` is the mean size of what was learned of each, 0 where that was nothing but zeros.
    """

    ids: tuple[SeriesId, ...]
    born_A: Ints
    end_A: Ints
    size_A: Doubles
    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, panel: Panel, learned_S: Ints) -> Self:
        """What there is to know of a training panel, of which the first so many steps of each series are learned."""
        born_A = panel.starts if panel.elapsed is None else panel.freq.add(panel.starts, -panel.elapsed)
        static = {name: column.categories for name, column in panel.static.items()}
        return cls(panel.ids, born_A, panel.ends(), mean_sizes(panel, learned_S), static)

    @property
    def unit(self) -> float:
        """The size of a typical series; 1 where all were zero."""
        live_A = self.size_A[self.size_A > 0]
        return float(np.median(live_A)) if len(live_A) else 1.0

    def retell(self, panel: Panel) -> Panel:
        """The panel with the numbers, ages, units and categories that its series had in training; or unknown ones.

        Nothing of the panel's own values enters: a forecast does not depend on how much of the past it holds.
        """
        where = dict(zip(self.ids, range(len(self.ids)), strict=True))
        number_S = np.array([where.get(name, -1) for name in panel.ids], np.int64)
        born_S = np.where(number_S < 0, panel.starts, self.born_A[number_S])
        size_S = np.where(number_S < 0, 0, self.size_A[number_S])
        units_S = np.where(size_S > 0, size_S, self.unit)
        static = {name: _recode(panel.static[name], self.categories[name]) for name in self.categories}
        elapsed_S = panel.freq.steps(born_S, panel.starts)
        return replace(panel, numbers=number_S, elapsed=elapsed_S, units=units_S, static=static)

    def joined(self, panel: Panel, learned_S: Ints) -> Known:
        """The known series in their places, then the new ones of this panel; new categories come last too.

        A size once known stays, as what is learned already rests on it.
        """
        known = set(self.ids)
        new = [i for i, name in enumerate(panel.ids) if name not in known]
        categories = {
            name: (*old, *(c for c in panel.static[name].categories if c not in old))
            for name, old in self.categories.items()
        }
        born_A = np.concatenate([self.born_A, panel.starts[new]])
        ends = dict(zip(panel.ids, panel.ends().tolist(), strict=True))
        ids = (*self.ids, *(panel.ids[i] for i in new))
        old_A = np.concatenate([self.end_A, panel.ends()[new]])
        end_A = np.maximum(old_A, [ends.get(name, end) for name, end in zip(ids, old_A.tolist(), strict=True)])
        new_S = mean_sizes(panel, learned_S)
        sizes = dict(zip(panel.ids, new_S.tolist(), strict=True))
        old_A = np.concatenate([self.size_A, new_S[new]])
        size_A = np.array([size or sizes.get(name, 0.0) for name, size in zip(ids, old_A.tolist(), strict=True)])
        return Known(ids, born_A, end_A, size_A, categories)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and strings, ready for JSON."""
        categories = {name: list(found) for name, found in self.categories.items()}
        times = {"born": self.born_A.tolist(), "end": self.end_A.tolist()}
        return {"ids": list(self.ids), **times, "size": self.size_A.tolist(), "categories": categories}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """What `to_dict` gave, or what a stranger made of it: nothing is built before it is known to fit."""
        entries("known", state, "ids", "born", "categories")
        names = ids("known/ids", state["ids"])
        categories = {
            name: texts(f"known/categories/{name}", found)
            for name, found in entries("known/categories", state["categories"]).items()
        }
        # Models of the first days did not tell the end, nor sizes: they learned zeros with scale 1.
        born_A, end_A = (
            wholes(f"known/{key}", state.get(key, state["born"]), len(names), -FARTHEST, FARTHEST)
            for key in ("born", "end")
        )
        size_A = np.array(numbers("known/size", state.get("size", [0.0] * len(names)), len(names), least=0))
        return cls(names, born_A, end_A, size_A, categories)


def _recode(column: Static, categories: tuple[str, ...]) -> Static:
    where = dict(zip(categories, range(len(categories)), strict=True))
    code = np.array([where.get(name, -1) for name in column.categories], np.int64)
    return Static(np.where(column.codes < 0, -1, code[column.codes]), categories)
