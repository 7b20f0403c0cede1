"""What training knew of its series, and a panel retold in its terms: numbers, ages and categories as in training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from logsparse.data.calendar import Ints
from logsparse.data.panel import Panel, SeriesId, Static

# S series of the panel, A series known


@dataclass(frozen=True, eq=False)
class Known:
    """The series of the training panel: `born_A` is the time of each one's first step."""

    ids: tuple[SeriesId, ...]
    born_A: Ints
    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, panel: Panel) -> Self:
        """What there is to know of a training panel."""
        born_A = panel.starts if panel.elapsed is None else panel.freq.add(panel.starts, -panel.elapsed)
        return cls(panel.ids, born_A, {name: column.categories for name, column in panel.static.items()})

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
        return Known((*self.ids, *(panel.ids[i] for i in new)), born_A, categories)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and strings, ready for JSON."""
        categories = {name: list(found) for name, found in self.categories.items()}
        return {"ids": list(self.ids), "born": self.born_A.tolist(), "categories": categories}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """What `to_dict` gave."""
        categories = {name: tuple(found) for name, found in state["categories"].items()}
        return cls(tuple(state["ids"]), np.array(state["born"], np.int64), categories)


def _recode(column: Static, categories: tuple[str, ...]) -> Static:
    where = dict(zip(categories, range(len(categories)), strict=True))
    code = np.array([where.get(name, -1) for name in column.categories], np.int64)
    return Static(np.where(column.codes < 0, -1, code[column.codes]), categories)
