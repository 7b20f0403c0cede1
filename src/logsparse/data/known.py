"""What training knew of its series, and a panel retold in its terms: numbers, ages and categories as in training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from logsparse.data.calendar import FARTHEST, Ints
from logsparse.data.panel import Panel, SeriesId, Static
from logsparse.facts import entries, ids, texts, wholes

# S series of the panel, A series known


@dataclass(frozen=True, eq=False)
class Known:
    """The series of the training panel: `born_A` and `end_A` are the times of each one's first and last step."""

    ids: tuple[SeriesId, ...]
    born_A: Ints
    end_A: Ints
    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, panel: Panel) -> Self:
        """What there is to know of a training panel."""
        born_A = panel.starts if panel.elapsed is None else panel.freq.add(panel.starts, -panel.elapsed)
        static = {name: column.categories for name, column in panel.static.items()}
        return cls(panel.ids, born_A, panel.ends(), static)

    def retell(self, panel: Panel) -> Panel:
        """The panel with the numbers, ages and categories that its series had in training; new ones are unknown."""
        where = dict(zip(self.ids, range(len(self.ids)), strict=True))
        number_S = np.array([where.get(name, -1) for name in panel.ids], np.int64)
        born_S = np.where(number_S < 0, panel.starts, self.born_A[number_S])
        static = {name: _recode(panel.static[name], self.categories[name]) for name in self.categories}
        return replace(panel, numbers=number_S, elapsed=panel.freq.steps(born_S, panel.starts), static=static)

    def joined(self, panel: Panel) -> Known:
        """The known series in their places, then the new ones of this panel; new categories come last too."""
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
        return Known(ids, born_A, end_A, categories)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and strings, ready for JSON."""
        categories = {name: list(found) for name, found in self.categories.items()}
        times = {"born": self.born_A.tolist(), "end": self.end_A.tolist()}
        return {"ids": list(self.ids), **times, "categories": categories}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """What `to_dict` gave, or what a stranger made of it: nothing is built before it is known to fit."""
        entries("known", state, "ids", "born", "categories")
        names = ids("known/ids", state["ids"])
        categories = {
            name: texts(f"known/categories/{name}", found)
            for name, found in entries("known/categories", state["categories"]).items()
        }
        # Models of the first days did not tell the end.
        born_A, end_A = (
            wholes(f"known/{key}", state.get(key, state["born"]), len(names), -FARTHEST, FARTHEST)
            for key in ("born", "end")
        )
        return cls(names, born_A, end_A, categories)


def _recode(column: Static, categories: tuple[str, ...]) -> Static:
    where = dict(zip(categories, range(len(categories)), strict=True))
    code = np.array([where.get(name, -1) for name in column.categories], np.int64)
    return Static(np.where(column.codes < 0, -1, code[column.codes]), categories)
