"""Result frame of a backtest -> the numbers of its report, and the few windows that it has room to draw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.columns import CUTOFF, ID, NAIVE, SCALE, TARGET, TIME
from logsparse.data.grid import from_native
from logsparse.data.times import from_text
from logsparse.errors import DataError
from logsparse.evaluation.metrics import MEAN, STEP, quantile_columns, score

# What seasonal naive is scored by too; it has no quantiles. In a table of scores its columns begin with this.
POINT_SCORES = ("nd", "mase", "mae", "rmse")
BESIDE = "naive_"
# One of the last two has a value wherever anything can be scored.
RANKINGS = ("mase", "nd", "wql", "mae", "crps_quantiles")


@dataclass(frozen=True)
class Level:
    """How many values lay below a quantile, and how many equal it exactly (`tied`, counted in proportion)."""

    level: float
    observed: float
    tied: float


@dataclass(frozen=True)
class Interval:
    """A central interval: what it promises, what it held (ends included), its width as a share of mean |y|."""

    promised: float
    held: float
    width: float | None


class Results:
    """A checked result frame that answers for its numbers."""

    def __init__(self, frame: Any) -> None:
        table, _ = from_native(frame, ids=ID)
        self.levels = quantile_columns(table.columns)
        _check_columns(table, {*self.levels})
        texts = [name for name in (TIME, CUTOFF) if table.schema[name] == pl.String]
        self.table = table.with_columns(from_text(table[name]) for name in texts)
        self.with_naive = NAIVE in table.columns
        self._check_rows()

    def _check_rows(self) -> None:
        for name in (ID, TIME, CUTOFF):
            if self.table[name].null_count():
                raise DataError(
                    f"Every row of the results needs a {name}.",
                    got=f"none in {self.table[name].null_count():,} rows",
                    hint="drop those rows.",
                )
        if not score(self.table)["count"].item():
            raise DataError(
                "A report needs values of y to judge the forecasts by.",
                got=f"none in {self.table.height:,} rows",
                hint="report on what backtest gives, over a span that has values.",
            )
        known = self.table[TARGET].is_not_nan() & self.table[TARGET].is_not_null()
        naive = self.table.filter(known)[NAIVE].cast(pl.Float64, strict=False) if self.with_naive else pl.Series([0.0])
        if not naive.is_finite().fill_null(value=False).all():
            raise DataError(
                f"{NAIVE} must be finite wherever y is there.",
                got="missing or infinite values",
                hint=f"drop the column {NAIVE} to report without it.",
            )

    @cached_property
    def overall(self) -> dict[str, Any]:
        """Each score, and seasonal naive's under `naive_...`."""
        return self.scores(None).row(0, named=True)

    def scores(self, by: str | None) -> pl.DataFrame:
        """`score` of the frame, with columns `naive_nd`, ... where seasonal naive is there."""
        ours: pl.DataFrame = score(self.table, by=by)
        if not self.with_naive:
            return ours
        keys = [name for name in (ID, TIME, CUTOFF, TARGET, SCALE) if name in self.table.columns]
        naive: pl.DataFrame = score(self.table.select(*keys, pl.col(NAIVE).alias(MEAN)), by=by)
        shared = [pl.col(name).alias(BESIDE + name) for name in POINT_SCORES if name in ours.columns]
        theirs = naive.select(*shared, *([by] if by else []))
        return ours.join(theirs, on=by, how="left", maintain_order="left") if by else ours.hstack(theirs)

    @cached_property
    def mean_size(self) -> float:
        """Mean |y|, the unit of errors that can be compared."""
        return float(self._values().select(pl.col(TARGET).abs().mean()).collect().item())

    def _values(self) -> pl.LazyFrame:
        """The values of y that are there, and their quantiles; lazy, so that a large frame is not copied."""
        numbers = pl.col(TARGET, *self.levels).cast(pl.Float64).fill_nan(None)
        return self.table.lazy().select(numbers).filter(pl.col(TARGET).is_not_null())

    @cached_property
    def by_step(self) -> pl.DataFrame:
        """step, error, naive_error: MAE (CRPS without a point forecast) as a share of mean |y|, unless every y is 0.

        The whole span's mean |y|, not the step's own: values that are 0 every night would make an error infinite.
        """
        scores = self.scores(STEP)
        ours = "mae" if "mae" in scores.columns else "crps_quantiles"
        found = {name: new for name, new in {ours: "error", f"{BESIDE}mae": "naive_error"}.items() if name in scores}
        return scores.select(STEP, *(pl.col(name).alias(new) / (self.mean_size or 1.0) for name, new in found.items()))

    @cached_property
    def by_series(self) -> pl.DataFrame:
        """Scores a series, the best first; those without a value of the ranking score come last."""
        return self.scores(ID).sort(self.ranking, nulls_last=True, maintain_order=True)

    @cached_property
    def ranking(self) -> str:
        """The score by which series are compared: one without a unit where there is one."""
        return next(name for name in RANKINGS if self.overall.get(name) is not None)

    @cached_property
    def calibration(self) -> list[Level]:
        """Of each quantile, from the lowest.

        A value that equals several quantiles, as a zero that was foreseen does, is spread evenly over their levels: a
        forecast that is exactly right counts neither as too high nor as too low.
        """
        y = pl.col(TARGET)
        lower = pl.max_horizontal(
            pl.when(y > pl.col(name)).then(level).otherwise(0) for name, level in self.levels.items()
        )
        upper = pl.min_horizontal(
            pl.when(y < pl.col(name)).then(level).otherwise(1) for name, level in self.levels.items()
        )
        found = self._values().with_columns(lower.alias("lower"), (upper - lower).alias("apart"))
        shares: dict[str, pl.Expr] = {}
        for name, level in self.levels.items():
            # Where quantiles cross, nothing lies between the two.
            part = pl.when(pl.col("apart") > 0).then((level - pl.col("lower")) / pl.col("apart")).otherwise(0.5)
            below = pl.when(y == pl.col(name)).then(part.clip(0, 1)).otherwise(y < pl.col(name))
            shares |= {f"observed {name}": below.mean(), f"tied {name}": (y == pl.col(name)).mean()}
        row = found.select(**shares).collect(engine="streaming").row(0, named=True)
        return [Level(level, row[f"observed {name}"], row[f"tied {name}"]) for name, level in self.levels.items()]

    @cached_property
    def intervals(self) -> list[Interval]:
        """Central intervals, the narrowest first."""
        found = [name.removeprefix("coverage_") for name in self.overall if name.startswith("coverage_")]
        both = [(float(name) / 100, self.overall[f"coverage_{name}"], self.overall[f"width_{name}"]) for name in found]
        return [Interval(*parts) for parts in sorted(both)]

    @cached_property
    def beaten(self) -> tuple[int, int] | None:
        """On how many series the model's MAE is below seasonal naive's, and of how many."""
        if not {"mae", f"{BESIDE}mae"} <= set(self.overall):
            return None
        pair = self.by_series.select("mae", f"{BESIDE}mae").drop_nulls()
        return int((pair["mae"] < pair[f"{BESIDE}mae"]).sum()), pair.height


def _check_columns(table: pl.DataFrame, levels: set[str]) -> None:
    missing = [name for name in (ID, TIME, CUTOFF, TARGET) if name not in table.columns]
    if not levels and MEAN not in table.columns:
        missing.append("mean or quantiles such as q0.5")
    if missing:
        raise DataError(
            "Results to report on must have the columns unique_id, ds, cutoff, y and a forecast.",
            got=f"no {', '.join(missing)} among {', '.join(table.columns) or 'no columns'}",
            hint="report on the frame that backtest gives, or rename the columns of yours.",
        )


# H steps of a window, Q quantile levels

# Steps of a series that can be told apart on a page.
STEPS_SHOWN = 720

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """What was forecast at one cutoff, and what came."""

    times: NDArray[Any]
    truth_H: Doubles
    quantiles_QH: Doubles
    mean_H: Doubles | None
    naive_H: Doubles | None


@dataclass(frozen=True)
class Shown:
    """A series to draw: which one it is among all, its error, and its windows from old to new."""

    role: str
    name: Any
    error: float | None
    windows: list[Window]
    of_windows: int


def shown_series(results: Results) -> list[Shown]:
    """The best, the median and the worst series; fewer where there are fewer."""
    ranked = results.by_series
    count = ranked[results.ranking].drop_nulls().len()
    roles = {0: "Best", (count - 1) // 2: "Median", count - 1: "Worst"}
    if count == 1:
        roles = {0: "The only"}
    elif count == 2:
        roles = {0: "Best", 1: "Worst"}
    return [_shown(results, role, *ranked.select(ID, results.ranking).row(place)) for place, role in roles.items()]


def _shown(results: Results, role: str, name: Any, error: float | None) -> Shown:
    rows = results.table.filter(pl.col(ID) == name).sort(CUTOFF, TIME)
    parts = rows.partition_by(CUTOFF, maintain_order=True)
    return Shown(role, name, error, [_window(results, part) for part in _apart(parts)], len(parts))


def _apart(parts: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """The newest windows that do not overlap, as many as there is room for; of a very long one, every so many steps."""
    kept: list[pl.DataFrame] = []
    room = STEPS_SHOWN
    for part in reversed(parts):
        if kept and (part.height > room or part[TIME].max() >= kept[-1][TIME].min()):  # type: ignore[operator]
            continue
        kept.append(part)
        room -= part.height
    return [part.gather_every(-(-part.height // STEPS_SHOWN)) for part in reversed(kept)]


def _window(results: Results, part: pl.DataFrame) -> Window:
    def numbers(name: str) -> Doubles:
        values = part[name].cast(pl.Float64).to_numpy().astype(np.float64)
        return np.where(np.isfinite(values), values, np.nan)

    return Window(
        _on_the_wall(part[TIME]).to_numpy(),
        numbers(TARGET),
        np.array([numbers(name) for name in results.levels]).reshape(len(results.levels), part.height),
        numbers(MEAN) if MEAN in part.columns else None,
        numbers(NAIVE) if results.with_naive else None,
    )


def _on_the_wall(times: pl.Series) -> pl.Series:
    """Times of a zone as its clocks show them: a chart knows no zones."""
    return times.dt.replace_time_zone(None) if isinstance(times.dtype, pl.Datetime) else times


def when(time: Any) -> str:
    """A time as people write it, without seconds that are none."""
    text = str(time)
    return text[:16] if text[16:] in (":00", ":00.000000") else text
