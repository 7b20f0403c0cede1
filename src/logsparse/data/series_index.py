"""Training panel -> SeriesIndex, which encodes later panels as the model knows them; Panel <-> JSON and arrays.

`SeriesIndex` numbers the series that a model was trained on. `pack_panel` and `unpack_panel` save and load the history
that a model keeps to forecast from; what is loaded is validated, since files may be damaged or edited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np

from logsparse.data.calendar import FARTHEST, Freq, Ints
from logsparse.data.columns import ColumnSpec
from logsparse.data.mapped import empty_like, gathered, pieces
from logsparse.data.panel import Floats, Origin, Panel, SeriesId, Static
from logsparse.data.scale import Doubles, mean_moments, mean_sizes
from logsparse.data.times import NAIVE, to_wall
from logsparse.errors import DataError
from logsparse.storage import a_list, array, entries, ids, numbers, require, text, texts, wholes

# S series of the panel, A series of the index, N series of both, G groups of them, C static columns

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
    its training part, 0 if that is all zeros, `moments_A2` the means of its values and of their squares. `codes_AC` are
    its categories, and `words` those of covariates that are text.
    """

    ids: tuple[SeriesId, ...]
    first_A: Ints
    end_A: Ints
    size_A: Doubles
    categories: Mapping[str, tuple[str, ...]]
    moments_A2: Doubles
    codes_AC: Ints
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, panel: Panel, learned_S: Ints) -> Self:
        """Index a training panel, of which the first `learned_S` steps per series are trained on."""
        first_A = panel.starts if panel.elapsed is None else panel.freq.add(panel.starts, -panel.elapsed)
        static = {name: column.categories for name, column in panel.static.items()}
        sizes = (mean_sizes(panel, learned_S), static, mean_moments(panel, learned_S))
        return cls(panel.ids, first_A, panel.ends(), *sizes, _codes(panel), panel.words)

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
        static = {name: recode(panel.static[name], self.categories[name]) for name in self.categories}
        elapsed_S = panel.freq.steps(first_S, panel.starts)
        encoded = replace(panel, numbers=number_S, elapsed=elapsed_S, units=units_S, static=static)
        return _with_indicators(replace(encoded, typical=self._typical(number_S, _codes(encoded))), self.words)

    def _typical(self, number_S: Ints, codes_SC: Ints) -> Doubles:
        """Return mean size, mean and standard deviation of the training series most like each series, (S, 3).

        These share the categories of as many static columns as possible, those with the fewest categories first. A
        series is not like itself: what is typical must be as vague for a known series as for a new one.
        """
        live_A = self.size_A > 0
        parts_A4 = np.column_stack([live_A, self.size_A, self.moments_A2]) * live_A[:, None]
        own_S4 = np.where(number_S[:, None] < 0, 0, parts_A4[number_S])
        typical_S3 = np.zeros((len(number_S), 3))
        typical_S3[:, [0, 2]] = self.unit
        group_N = np.zeros(len(live_A) + len(number_S), np.int64)
        codes_NC = np.concatenate([self.codes_AC, codes_SC])
        broad_first = np.argsort([len(categories) for categories in self.categories.values()], kind="stable")
        for column in (None, *broad_first.tolist()):
            if column is not None:
                pairs_N2 = np.column_stack([group_N, codes_NC[:, column]])
                group_N = np.unique(pairs_N2, axis=0, return_inverse=True)[1].ravel()
            group_A, group_S = np.split(group_N, [len(live_A)])
            sums = [np.bincount(group_A, part_A, int(group_N.max()) + 1)[group_S] for part_A in parts_A4.T]
            count_S, *sums_S = (np.stack(sums, axis=1) - own_S4).T
            size_S, level_S, square_S = (sum_S / np.maximum(count_S, 1) for sum_S in sums_S)
            spread_S = np.sqrt(np.maximum(square_S - level_S**2, 0))
            alike_S = count_S >= 1
            typical_S3[alike_S] = np.column_stack([size_S, level_S, spread_S])[alike_S]
        return typical_S3

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
        where = dict(zip(panel.ids, range(len(panel)), strict=True))
        moments_S2 = mean_moments(panel, learned_S)
        moments_A2 = np.concatenate([self.moments_A2, moments_S2[new]])
        for number in np.flatnonzero((old_A == 0) & (size_A > 0)).tolist():
            moments_A2[number] = moments_S2[where[ids[number]]]
        static = {name: recode(panel.static[name], values) for name, values in categories.items()}
        codes_AC = np.concatenate([self.codes_AC, _codes(replace(panel, static=static))[new]])
        return SeriesIndex(ids, first_A, end_A, size_A, categories, moments_A2, codes_AC, self.words)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and strings, ready for JSON."""
        categories = {name: list(values) for name, values in self.categories.items()}
        times = {"born": self.first_A.tolist(), "end": self.end_A.tolist()}
        return {
            "ids": list(self.ids),
            **times,
            "size": self.size_A.tolist(),
            "categories": categories,
            "moments": self.moments_A2.tolist(),
            "codes": self.codes_AC.tolist(),
            "words": {name: list(words) for name, words in self.words.items()},
        }

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
        # Models of 0.1.0 do not forecast series without a history.
        moments = a_list("known/moments", state.get("moments", [[0.0, 0.0]] * len(names)), len(names))
        codes = a_list("known/codes", state.get("codes", [[-1] * len(categories)] * len(names)), len(names))
        most = max((len(values) for values in categories.values()), default=0) - 1
        return cls(
            names,
            first_A,
            end_A,
            size_A,
            categories,
            np.array([numbers("known/moments", row, 2) for row in moments]),
            np.array([wholes("known/codes", row, len(categories), -1, most) for row in codes], np.int64),
            _words("known/words", state),
        )


def recode(column: Static, categories: tuple[str, ...]) -> Static:
    """Return the column with codes of these categories, -1 for others."""
    where = dict(zip(categories, range(len(categories)), strict=True))
    code = np.array([where.get(name, -1) for name in column.categories], np.int64)
    return Static(np.where(column.codes < 0, -1, code[column.codes]), categories)


def _codes(panel: Panel) -> Ints:
    """Return the code of each series in each static column, (S, C)."""
    return np.array([column.codes for column in panel.static.values()], np.int64).reshape(-1, len(panel)).T


def _with_indicators(panel: Panel, words: Mapping[str, tuple[str, ...]]) -> Panel:
    """Return the panel with one covariate of 0 and 1 per word instead of each text; missing for an unknown word."""
    covariates: dict[str, Floats] = {}
    past: list[str] = []
    for name, flat in panel.covariates.items():
        found = panel.words.get(name, ())
        if bool(found) != (name in words) and not np.isnan(flat).all():
            kinds = ("text", "numbers")[:: 1 if name in words else -1]
            raise DataError.other_kind(name, *kinds)
        parts = {name: flat}
        if name in words:
            where = dict(zip(words[name], range(len(words[name])), strict=True))
            code = np.array([where.get(word, np.nan) for word in (*found, "")], np.float32)
            parts = {f"{name}\0{word}": empty_like(flat, len(flat)) for word in where}
            for piece in pieces(len(flat)):
                known = code[np.where(np.isnan(flat[piece]), len(found), flat[piece]).astype(np.int64)]
                # A word of the frame may be "", but none of the words of training is.
                hidden = np.where(np.isnan(known), np.float32(np.nan), np.float32(0))
                for number, indicator in enumerate(parts.values()):
                    indicator[piece] = (known == number) + hidden
        covariates |= parts
        past += parts if name in panel.past else []
    return replace(panel, covariates=covariates, past=tuple(past), words={})


def _words(name: str, state: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the words of text covariates; models of 0.1.0 have none."""
    return {key: texts(f"{name}/{key}", words) for key, words in entries(name, state.get("words", {})).items()}


def pack_panel(panel: Panel, steps: int | None = None) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Return facts for JSON, and the values and covariates of the last `steps` visible steps per series (None: all).

    Missing values at the end of a series are kept but not counted: the scale is computed from the steps before them.
    """
    left_S = np.zeros_like(panel.lengths) if steps is None else np.maximum(panel.to_last_value().lengths - steps, 0)
    kept_S = panel.lengths - left_S
    begin_S = panel.indptr[:-1] + left_S
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
        "past": list(panel.past),
        "words": {name: list(words) for name, words in panel.words.items()},
    }
    flats = {"values": panel.values, **{f"{_COVARIATE}{name}": flat for name, flat in panel.covariates.items()}}
    return facts, {name: gathered(flat, begin_S, kept_S) for name, flat in flats.items()}


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
    covariates = {_covariate(n): _flat(n, x, values.size) for n, x in arrays.items() if n != "values"}
    words = {name: found for name, found in _words("panel/words", facts).items() if name in covariates}
    for name, found in words.items():
        codes = covariates[name][~np.isnan(covariates[name])]
        holds = bool(np.isin(codes, np.arange(len(found))).all())
        require(f"history/{_COVARIATE}{name}", f"indices of {len(found)} words", "another number", holds=holds)
    return Panel(
        values=values,
        indptr=indptr,
        lengths=lengths_S,
        ids=names,
        starts=starts_S,
        freq=freq,
        covariates=covariates,
        static={name: _static(name, column, len(names)) for name, column in entries("static", facts["static"]).items()},
        origin=_origin(facts["origin"]),
        elapsed=elapsed_S,
        past=tuple(name for name in texts("panel/past", facts.get("past", [])) if name in covariates),
        words=words,
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


def check_columns(spec: ColumnSpec, panel: Panel, *, history: bool) -> None:
    """Raise if the columns do not match the panel; a panel without history has no covariates."""
    require("columns/static", f"{list(panel.static)}", spec.static, holds=set(spec.static) == set(panel.static))
    for role, names, there in (
        ("covariates", spec.covariates, panel.ahead),
        ("past_covariates", spec.past_covariates, panel.past),
    ):
        require(f"columns/{role}", f"{list(there)}", names, holds=not history or set(names) == set(there))
