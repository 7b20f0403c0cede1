"""Result frame of a backtest -> the numbers of its report, and the series and windows that it draws.

H steps of a window, Q quantile levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.columns import CUTOFF, ID, MODEL, NAIVE, SCALE, TARGET, TIME
from logsparse.data.times import from_text
from logsparse.errors import DataError
from logsparse.evaluation.actuals import ResultColumns
from logsparse.evaluation.metrics import MEAN, STEP, by_model, quantile_columns, read_results, score

# Scores of seasonal naive, which has no quantiles; in a table of scores their columns have this prefix.
POINT_SCORES = ("nd", "mase", "mae", "rmse")
NAIVE_PREFIX = "naive_"
# In order of preference. If anything can be scored, one of the last two has a value.
RANKINGS = ("mase", "nd", "wql", "mae", "crps_quantiles")
# Most steps of a series that are drawn.
STEPS_SHOWN = 720

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Level:
    """Share of values below a quantile (`observed`, ties in proportion), and share equal to it (`tied`)."""

    level: float
    observed: float
    tied: float


@dataclass(frozen=True)
class Interval:
    """A central interval: nominal and observed coverage (ends included), and width as a share of mean |y|."""

    nominal: float
    coverage: float
    width: float | None


class Results:
    """A validated result frame, and the numbers computed from it."""

    def __init__(self, frame: Any, **columns: Unpack[ResultColumns]) -> None:
        table, *_ = read_results(frame, **columns)
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
                "A report needs values of y to score the forecasts.",
                got=f"none in {self.table.height:,} rows",
                hint="report on the result of backtest, over a span that has values.",
            )
        known = self.table[TARGET].is_not_nan() & self.table[TARGET].is_not_null()
        naive = self.table.filter(known)[NAIVE].cast(pl.Float64, strict=False) if self.with_naive else pl.Series([0.0])
        if not naive.is_finite().fill_null(value=False).all():
            raise DataError(
                f"{NAIVE} must be finite wherever y has a value.",
                got="missing or infinite values",
                hint=f"drop the column {NAIVE} to report without it.",
            )

    @cached_property
    def overall(self) -> dict[str, Any]:
        """Return each score; those of seasonal naive have the prefix `naive_`."""
        return self.scores(None).row(0, named=True)

    def scores(self, by: str | None) -> pl.DataFrame:
        """Return `score` of the frame, with columns such as `naive_nd` if there is a seasonal naive forecast."""
        scores: pl.DataFrame = score(self.table, by=by)
        if not self.with_naive:
            return scores
        keys = [name for name in (ID, TIME, CUTOFF, TARGET, SCALE) if name in self.table.columns]
        naive: pl.DataFrame = score(self.table.select(*keys, pl.col(NAIVE).alias(MEAN)), by=by)
        shared = [pl.col(name).alias(NAIVE_PREFIX + name) for name in POINT_SCORES if name in scores.columns]
        naive = naive.select(*shared, *([by] if by else []))
        return scores.join(naive, on=by, how="left", maintain_order="left") if by else scores.hstack(naive)

    @cached_property
    def mean_size(self) -> float:
        """Return mean |y|, the unit in which errors are comparable."""
        return float(self._values().select(pl.col(TARGET).abs().mean()).collect().item())

    def _values(self) -> pl.LazyFrame:
        """Return the observed values of y and their quantiles; lazy, so that a large frame is not copied."""
        numbers = pl.col(TARGET, *self.levels).cast(pl.Float64).fill_nan(None)
        return self.table.lazy().select(numbers).filter(pl.col(TARGET).is_not_null())

    @cached_property
    def by_step(self) -> pl.DataFrame:
        """Return step, error, naive_error: MAE (CRPS without a point forecast) divided by mean |y| unless that is 0.

        mean |y| is over all steps: with values that are 0 every night, a mean per step could be 0.
        """
        scores = self.scores(STEP)
        error = "mae" if "mae" in scores.columns else "crps_quantiles"
        renamed = {error: "error", f"{NAIVE_PREFIX}mae": "naive_error"}
        unit = self.mean_size or 1.0
        return scores.select(STEP, *(pl.col(name).alias(new) / unit for name, new in renamed.items() if name in scores))

    @cached_property
    def by_series(self) -> pl.DataFrame:
        """Return the scores per series, best first; series without a value of the ranking score come last."""
        return self.scores(ID).sort(self.ranking, nulls_last=True, maintain_order=True)

    @cached_property
    def ranking(self) -> str:
        """Return the name of the score by which series are ranked: one without a unit, if available."""
        return next(name for name in RANKINGS if self.overall.get(name) is not None)

    @cached_property
    def calibration(self) -> list[Level]:
        """Return the calibration of each quantile, in ascending order.

        A value that equals several quantiles, such as a zero predicted exactly, is spread evenly over their levels:
        an exact forecast counts neither as too high nor as too low.
        """
        y = pl.col(TARGET)
        lower = pl.max_horizontal(
            pl.when(y > pl.col(name)).then(level).otherwise(0) for name, level in self.levels.items()
        )
        upper = pl.min_horizontal(
            pl.when(y < pl.col(name)).then(level).otherwise(1) for name, level in self.levels.items()
        )
        bounds = self._values().with_columns(lower.alias("lower"), (upper - lower).alias("apart"))
        shares: dict[str, pl.Expr] = {}
        for name, level in self.levels.items():
            # Crossing quantiles can leave no distance between the bounds.
            part = pl.when(pl.col("apart") > 0).then((level - pl.col("lower")) / pl.col("apart")).otherwise(0.5)
            below = pl.when(y == pl.col(name)).then(part.clip(0, 1)).otherwise(y < pl.col(name))
            shares |= {f"observed {name}": below.mean(), f"tied {name}": (y == pl.col(name)).mean()}
        row = bounds.select(**shares).collect(engine="streaming").row(0, named=True)
        return [Level(level, row[f"observed {name}"], row[f"tied {name}"]) for name, level in self.levels.items()]

    @cached_property
    def intervals(self) -> list[Interval]:
        """Return the central intervals, narrowest first."""
        names = [name.removeprefix("coverage_") for name in self.overall if name.startswith("coverage_")]
        parts = [(float(name) / 100, self.overall[f"coverage_{name}"], self.overall[f"width_{name}"]) for name in names]
        return [Interval(*part) for part in sorted(parts)]

    @cached_property
    def wins(self) -> tuple[int, int] | None:
        """Return the number of series on which the model's MAE is below seasonal naive's, and that of all series."""
        naive = f"{NAIVE_PREFIX}mae"
        if not {"mae", naive} <= set(self.overall):
            return None
        pair = self.by_series.select("mae", naive).drop_nulls()
        return int((pair["mae"] < pair[naive]).sum()), pair.height


@dataclass(frozen=True)
class Compared:
    """Results of several models, best first, and their leaderboard."""

    models: dict[str, Results]
    board: pl.DataFrame

    @classmethod
    def of(cls, table: pl.DataFrame) -> Compared:
        """Validate a result frame with a column of models."""
        _check_columns(table, {*quantile_columns(table.columns)})
        if not table.height:
            raise DataError("A report needs results.", got="no rows", hint="report on the frame that backtest returns.")
        board: pl.DataFrame = score(table)
        parts = by_model(table)
        return cls({name: Results(parts[name]) for name in board[MODEL]}, board)

    @property
    def best(self) -> tuple[str, Results]:
        """Name and results of the first model."""
        return next(iter(self.models.items()))

    @cached_property
    def error(self) -> str:
        """Name of the score that series and cutoffs are compared by: without a unit, if all models have one."""
        shared = [name for name in RANKINGS if name in self.board.columns and not self.board[name].null_count()]
        return next(iter(shared), "crps_quantiles")

    def errors(self, by: str) -> dict[str, pl.DataFrame]:
        """Return `by` and `error` (null where undefined) of each model, all in the same order."""
        tables = {name: results.scores(by) for name, results in self.models.items()}
        return {
            name: table.select(by, (pl.col(self.error) if self.error in table.columns else pl.lit(None)).alias("error"))
            for name, table in tables.items()
        }


def _check_columns(table: pl.DataFrame, levels: set[str]) -> None:
    missing = [name for name in (ID, TIME, CUTOFF, TARGET) if name not in table.columns]
    if not levels and MEAN not in table.columns:
        missing.append("mean or quantiles such as q0.5")
    if missing:
        raise DataError(
            "Results must have the columns unique_id, ds, cutoff, y and a forecast.",
            got=f"no {', '.join(missing)} among {', '.join(table.columns) or 'no columns'}",
            hint="report on the frame that backtest returns, or rename the columns.",
        )


@dataclass(frozen=True)
class Window:
    """The forecast at one cutoff, and the actual values."""

    times: NDArray[Any]
    truth_H: Doubles
    quantiles_QH: Doubles
    mean_H: Doubles | None
    naive_H: Doubles | None


@dataclass(frozen=True)
class Shown:
    """A series to draw: its role (best, median, worst), its error, and its windows from old to new."""

    role: str
    name: Any
    error: float | None
    windows: list[Window]
    of_windows: int


def shown_series(results: Results) -> list[Shown]:
    """Return the best, the median and the worst series; fewer if there are fewer than three."""
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
    return Shown(role, name, error, [_window(results, part) for part in _without_overlap(parts)], len(parts))


def _without_overlap(parts: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Return the newest windows that do not overlap, up to `STEPS_SHOWN` steps; longer windows are thinned."""
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
        _local_times(part[TIME]).to_numpy(),
        numbers(TARGET),
        np.array([numbers(name) for name in results.levels]).reshape(len(results.levels), part.height),
        numbers(MEAN) if MEAN in part.columns else None,
        numbers(NAIVE) if results.with_naive else None,
    )


def _local_times(times: pl.Series) -> pl.Series:
    """Return local times without their zone: matplotlib would draw them in UTC."""
    return times.dt.replace_time_zone(None) if isinstance(times.dtype, pl.Datetime) else times


def format_time(time: Any) -> str:
    """Return the time as text, without seconds if they are zero."""
    text = str(time)
    return text[:16] if text[16:] in (":00", ":00.000000") else text
