"""Rows and traces of the seeds of a cell -> how far it was trained, whether it counts, how two cells differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from logsparse.data.scale import Doubles
from logsparse.paper.experiment import Traces, are_numbers
from logsparse.paper.ledger import Row

# K seeds, U units (forecast starts, or series where there is one start), R replicates

REPLICATES = 4000
# A quarter of the validations that lowers the loss by less than this share of its range counts as flat.
_FLAT = 0.01


class Interval(NamedTuple):
    """Relative difference of R0.5 with its 95 % interval: -0.1 is an error lower by a tenth."""

    change: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.change:+.1f} % [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"


@dataclass(frozen=True)
class Cell:
    """All recorded seeds of one model in one case, and what they left."""

    rows: Sequence[Row]
    traces: Mapping[str, Any]
    """By seed."""

    @property
    def error(self) -> float:
        """R0.5, mean over seeds."""
        return fmean(float(row["R0.5"]) for row in self.rows)

    @property
    def windows(self) -> int | None:
        """Training windows seen by each seed; None for a model without steps."""
        found = [_windows(row) for row in self.rows if row["steps"]]
        return min((count for count in found if count), default=None)

    @property
    def flat(self) -> bool | None:
        """True if the validation loss of every seed had stopped falling; None where no seed has a curve."""
        found = [
            _stopped(row) or _is_flat(curve["validation_nll"])
            for row in self.rows
            if (curve := self.traces.get(row["seed"], {}).get("curve"))
        ]
        return all(found) if found else None

    def beats(self, naive: float | None) -> bool | None:
        """True if its error is below seasonal naive's; None where that is not recorded."""
        return None if naive is None else self.error < naive


def cell(rows: Sequence[Row], traces: Traces, case: str, model: str) -> Cell | None:
    """Return the seeds of a model in a case, or None where there are none."""
    found = [row for row in rows if (row["case"], row["model"]) == (case, model)]
    return Cell(found, traces.get((case, model), {})) if found else None


def difference(one: Cell, other: Cell) -> Interval | None:
    """Return the relative difference of R0.5 by a paired bootstrap over units and seeds.

    Units are forecast starts (days) or series, resampled for both models together; seeds are resampled for each.
    None where the runs left no losses, or not on the same units.
    """
    units = {tuple(found["of"]) for found in (*_losses(one), *_losses(other))}
    if not _losses(one) or not _losses(other) or len(units) != 1 or len(next(iter(units))) < 2:
        return None
    mine_KU, theirs_KU = (np.array([found["R0.5"] for found in _losses(each)]) for each in (one, other))
    generator = np.random.default_rng(0)
    weights_RU = _resampled(mine_KU.shape[1], generator)
    sums = [
        np.einsum("rk,ku,ru->r", _resampled(len(losses_KU), generator) / len(losses_KU), losses_KU, weights_RU)
        for losses_KU in (mine_KU, theirs_KU)
    ]
    if not mine_KU.sum() or not sums[1].all():
        return None
    ratios_R = sums[0] / sums[1]
    low, high = np.quantile(ratios_R, (0.025, 0.975)).tolist()
    change = float(mine_KU.mean(0).sum() / theirs_KU.mean(0).sum())
    return Interval(change - 1, low - 1, high - 1)


def sound(trace: Mapping[str, Any]) -> bool:
    """Return True if the losses and the curve of a trace, where it has them, can be read."""
    curve, losses = trace.get("curve"), trace.get("losses")
    if curve is not None and not (isinstance(curve, dict) and are_numbers(curve.get("validation_nll"))):
        return False
    if losses is None:
        return True
    return isinstance(losses, dict) and bool(losses) and all(map(_are_losses, losses.values()))


def _are_losses(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("of"), list)
        and are_numbers(found.get("R0.5"), len(found["of"]))
    )


def _losses(of: Cell) -> list[Mapping[str, Any]]:
    """The losses behind each seed's row: those of the first method, where there are several."""
    left = [of.traces.get(row["seed"], {}).get("losses") for row in of.rows]
    return [next(iter(found.values())) for found in left if found]


def _resampled(count: int, generator: np.random.Generator) -> Doubles:
    """(R, count): how often each is drawn in a replicate."""
    return generator.multinomial(count, np.full(count, 1 / count), REPLICATES).astype(np.float64)


def _train(row: Row) -> Mapping[str, Any]:
    found = json.loads(row["config"] or "{}").get("train", {})
    return found if isinstance(found, dict) else {}


def _windows(row: Row) -> int | None:
    batch = _train(row).get("batch")
    return int(row["steps"]) * batch if batch else None


def _stopped(row: Row) -> bool:
    """True if patience ended the training: fewer steps than planned."""
    train = _train(row)
    if not train or train.get("patience") is None:
        return False
    per_epoch = train["windows"] // train["batch"] if train.get("windows") else train["steps_per_epoch"]
    return int(row["steps"]) < int(per_epoch * train["epochs"])


def _is_flat(losses: Sequence[float]) -> bool:
    """True if the last quarter of the validations lowers the best loss by at most a hundredth of its range."""
    quarter = max(1, len(losses) // 4)
    before, last = losses[:-quarter], losses[-quarter:]
    return bool(before) and min(before) - min(last) <= _FLAT * (max(losses) - min(losses))
