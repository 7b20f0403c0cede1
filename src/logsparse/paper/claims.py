"""Rows of the tables and of the synthetic study -> what became of the paper's claims, one comparison a line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from logsparse import presets
from logsparse.paper.experiment import UNIDENTIFIED, Experiment, Table, Traces, never, nothing_known, nothing_to_run
from logsparse.paper.ledger import Row, best
from logsparse.paper.synthetic import SYNTHETIC, TRANSFORMER, table
from logsparse.paper.tables import DEEPAR, KERNEL_SIZES, OURS, TABLES, Case

# Nearer than this is no difference.
_EQUAL = 0.01
_CONVOLVED = [(f"{kind}+conv{constraint}", f"{kind}{constraint}")
              for kind, constraint in (("full", "-memory"), ("full", "-length"), ("sparse", ""))]  # fmt: skip

Pair = tuple[str, str]
Errors = tuple[float, float]


@dataclass(frozen=True)
class Claim:
    """That one model is better than another, in these tables."""

    says: str
    pairs: Mapping[str, Sequence[Pair]]
    """The better and the worse model, by the table."""
    allowed: float | None = None
    """How many times the error of the other still counts; none: it must be better."""
    same_recipe: bool = False
    """Whether only rows are compared whose settings differ in the network alone."""

    def holds(self, better: float, worse: float) -> str:
        """In a word."""
        ratio = better / worse if worse else math.nan
        if math.isnan(ratio):
            return "-"
        if self.allowed is not None:
            return "yes" if ratio <= self.allowed else "no"
        return "about equal" if abs(ratio - 1) <= _EQUAL else "yes" if ratio < 1 else "no"


CLAIMS = (
    Claim("convolution helps", {"kernels": [(f"k={k}", "k=1") for k in KERNEL_SIZES[1:]], "sparse": _CONVOLVED}),
    Claim(
        "LogSparse beats full attention of the same memory",
        {"sparse": [("sparse", "full-memory"), ("sparse+conv", "full+conv-memory")]},
    ),
    Claim(
        "LogSparse is nearly as good (at most 7 % worse) as full attention of the same length",
        {"sparse": [("sparse", "full-length"), ("sparse+conv", "full+conv-length")]},
        # As much as it loses in the paper's own table: 0.079 against 0.074.
        allowed=1.07,
    ),
    Claim(
        "the Transformer beats DeepAR, both with the paper's settings",
        {name: [("paper", DEEPAR)] for name in ("main", "granularities")},
    ),
    Claim(
        "the Transformer beats DeepAR of the same recipe: only the network differs",
        {name: [(OURS, "deepar")] for name in ("main", "granularities")},
        same_recipe=True,
    ),
    # Each kind has the learning rate that suited it best on validation: no equal recipe.
    Claim("in the synthetic study the Transformer beats DeepAR, each with a learning rate of its own", {}),
)
_HEAD = ["claim", "case", "models", "here", "holds here", "paper", "holds there", "note"]


@dataclass(frozen=True)
class Comparison:
    """R0.5 of the better and the worse model of a claim, on one set."""

    claim: Claim
    case: str
    pair: Pair
    here: Errors
    there: Errors | None
    note: str

    def line(self) -> list[str]:
        """For a person."""
        told = (
            [f"{self.there[0]:.3f} / {self.there[1]:.3f}", self.claim.holds(*self.there)] if self.there else ["-"] * 2
        )
        ours = [f"{self.here[0]:.4f} / {self.here[1]:.4f}", self.claim.holds(*self.here)]
        return [self.claim.says, self.case, " / ".join(self.pair), *ours, *told, self.note]


def tables(rows: Sequence[Row], _traces: Traces) -> list[Table]:
    """What became of each claim, and the comparisons behind it; only of pairs that have run and may be compared."""
    found = [comparison for claim in CLAIMS for comparison in _comparisons(claim, rows)]
    found += list(_synthetic(CLAIMS[-1], [row for row in rows if row["task"] == SYNTHETIC.name]))
    if not found:
        return []
    sentences = [[claim.says, verdict([one for one in found if one.claim is claim])] for claim in CLAIMS]
    lines = [comparison.line() for comparison in found]
    return [
        Table("Claims of the paper, each in a sentence", ["claim", "here"], sentences),
        Table(f"Claims of the paper, R0.5 (about equal: within {100 * _EQUAL:g} %)", _HEAD, lines),
    ]


def verdict(comparisons: Sequence[Comparison]) -> str:
    """In how many comparisons it holds here, and by how much the error differs."""
    words = [one.claim.holds(*one.here) for one in comparisons]
    count = sum(word != "-" for word in words)
    if not count:
        return "not run yet"
    held = words.count("yes")
    result = "confirmed" if held == count else "in part" if held else "not confirmed"
    changes = sorted(100 * (one.here[0] / one.here[1] - 1) for one in comparisons if one.here[1])
    apart = f"{median(changes):+.0f} %"
    if count > 1:
        apart = f"{changes[0]:+.0f} to {changes[-1]:+.0f} %, in the median {apart}"
    return f"{result}: holds in {held} of {count} comparisons, R0.5 differs by {apart}"


def _comparisons(claim: Claim, rows: Sequence[Row]) -> Iterator[Comparison]:
    for task, pairs in claim.pairs.items():
        _, cases, published = TABLES[task]
        for title, case in cases.items():
            theirs = published.get(case.stands_in_for or title, {})
            ours = {model: _row(rows, task, title, model) for pair in pairs for model in pair}
            for better, worse in pairs:
                one, other = ours[better], ours[worse]
                if one is None or other is None or (claim.same_recipe and _recipe(one) != _recipe(other)):
                    continue
                here = (float(one["R0.5"]), float(other["R0.5"]))
                there = (theirs[better][0], theirs[worse][0]) if {better, worse} <= set(theirs) else None
                yield Comparison(claim, title, (better, worse), here, there, "; ".join(_notes(case, one, other)))


def _recipe(row: Row) -> dict[str, Any]:
    """All settings but those of the network itself."""
    settings = json.loads(row["config"])
    model = {name: value for name, value in settings["model"].items() if name not in presets.NETWORK}
    return {**settings, "model": model}


def _row(rows: Sequence[Row], task: str, case: str, model: str) -> Row | None:
    return best([row for row in rows if (row["task"], row["case"], row["model"]) == (task, case, model)])


def _notes(case: Case, *compared: Row) -> Iterator[str]:
    if case.stands_in_for:
        yield f"stands in for {case.stands_in_for}"
    if not all(row["data"] for row in compared):
        yield UNIDENTIFIED


def _synthetic(claim: Claim, rows: Sequence[Row]) -> Iterator[Comparison]:
    """The Transformer against the best DeepAR of each length of the history; the paper shows a curve, no numbers."""
    (_, *models), lines = table(rows)
    unidentified = [] if all(row["data"] for row in rows) else [UNIDENTIFIED]
    for t0, *cells in lines:
        found = {model: float(cell) for model, cell in zip(models, cells, strict=True) if cell != "-"}
        others = [model for model in found if model != TRANSFORMER]
        if TRANSFORMER in found and others:
            rival = min(others, key=lambda model: found[model])
            note = "; ".join([f"the best of {len(others)} sizes of DeepAR", *unidentified])
            here = (found[TRANSFORMER], found[rival])
            yield Comparison(claim, f"synthetic, t0={t0}", (TRANSFORMER, rival), here, None, note)


CLAIMS_TABLE = Experiment(
    "claims",
    (),
    nothing_to_run,
    nothing_known,
    never,
    tables,
    tasks=(SYNTHETIC.name, *(task for task in TABLES if task != "learned-attention")),
)
