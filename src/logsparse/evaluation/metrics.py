"""Results of a backtest -> scores, overall or in groups. Samples -> CRPS.

Groups are series, steps, cutoffs, categories and models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from logsparse.data.columns import CUTOFF, ID, MODEL, NAIVE, SCALE, TARGET, TIME, refuse_duplicates
from logsparse.data.frame import Data
from logsparse.data.grid import to_native
from logsparse.errors import ConfigError, DataError, suggest
from logsparse.evaluation.actuals import beside_actuals
from logsparse.evaluation.results import ResultColumns, open_results

MEAN, STEP = "mean", "step"
NEEDS = {None: (ID, TARGET), ID: (ID, TARGET), CUTOFF: (ID, CUTOFF, TARGET), STEP: (ID, TIME, CUTOFF, TARGET)}
SLICE = 250_000
# Models are ranked by the first of these that all of them have.
RANKS = ("wql", "crps_quantiles", "nd", "mae", "rmse")
# Name of the grouping column during the sums, where "size" and others are taken.
_GROUP = "\0group"
# First columns of a leaderboard; the others follow as usual.
_FRONT = ("count", "wql", "skill", "nd", "mase")
Levels = dict[str, float]  # column -> quantile level, in ascending order of level


def score(
    results: Data, *, by: str | None = None, actuals: Data | None = None, **columns: Unpack[ResultColumns]
) -> Any:
    """Score forecasts against the true values.

    Scores are pooled over all values of a row. Rows without y are not scored. A score is left out if its columns are
    missing, and null if it is not defined (sum |y| = 0, nothing observed):

    - `count`: number of scored values.
    - `R0.1`, ...: 2 * sum D_rho / sum |y|, D_rho the quantile loss, as in the paper.
    - `wql`: the mean of these over the levels.
    - `crps_quantiles`: 2 * integral of D_rho over rho, in units of y. Each level has the weight of the part of (0, 1)
      nearest to it, so levels may be spread unevenly; few levels make it coarse.
    - `coverage_80`, `width_80`, ...: share of values within [q0.1, q0.9], ends included; sum of widths / sum |y|.
    - `nd`, `mase`, `smape`, `mae`: of the median q0.5 if available, else of the mean. nd is sum |error| / sum |y|; mase
      the mean of |error| / `seasonal_error` over values where that is finite and above 0; smape the mean of
      |error| / (|y| + |forecast|), from 0 to 1 (0 where both are 0; M4 and GluonTS report twice this); mae the mean
      of |error|, in units of y.
    - `rmse`: of the mean.

    Results of several models (a column `model`, as `backtest([a, b], frame)` returns) give a leaderboard: one row per
    model, best `wql` first, or the best of `crps_quantiles`, `nd`, `mae`, `rmse` if a model has no `wql`. All models
    must be scored on the same rows. There,

    - `skill` is 1 - `mae` / that of the column `seasonal_naive`: 0 is as good as seasonal naive, 1 is perfect;
    - a quantile that is null in all rows of a model is not scored for it, and a model without some of the quantiles
      that another has gets no `wql` and no `crps_quantiles`, which could not be compared.

    Parameters
    ----------
    results
        Frame or file as `backtest` returns it: unique_id, ds, cutoff, y, and mean or quantiles; others are ignored. A
        folder of parts, as `backtest_shards` writes it, is read part by part.
    by
        None for one row, or "unique_id" (or the name of the ids), "step" (1 ... horizon), "cutoff", or another column
        of the results, such as a static one, for one row each (per model).
    actuals
        Frame or file with the values that came after a forecast: then `results` is what `predict` returned.
    **columns
        `id_col`, `time_col`, `target_col`: names of columns. A frame of `backtest` needs none: its first columns are
        id, time, cutoff and target.

    Returns
    -------
    frame
        Of the library of `results`, sorted by `by`, and then as the leaderboard is.

    Raises
    ------
    ConfigError, DataError
        If `by` is unknown, columns are missing, rows are duplicated, a forecast is not finite where y is known, or
        models have different rows.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> results = pl.DataFrame({"unique_id": "a", "y": [1.0, 3.0], "q0.5": [2.0, 3.0]})
    >>> ls.score(results).select("count", "R0.5", "mae").rows()
    [(2, 0.25, 0.5)]
    """
    if actuals is not None:
        results, columns = beside_actuals(results, actuals, by, **columns)
    tables, library, ids = open_results(results, **columns)
    table = next(tables)
    if not isinstance(by, str | None):
        raise _unknown_by(by, ids, [])
    if by == ids:
        by = ID
    if by is not None and by not in NEEDS and by not in _groups(table):
        raise _unknown_by(by, ids, _groups(table))
    compared, every = MODEL in table.columns, chain([table], tables)
    scores = _leaderboard(every, None if by == MODEL else by) if compared else _score(every, by)
    return to_native(scores.rename({ID: ids}) if by == ID else scores, library)


def crps_samples(samples: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """Compute the CRPS of sample paths, in units of y.

    It is exactly mean |X - y| - mean |X - X'| / 2 over all n^2 pairs, computed in O(n log n) as the sum of the
    quantile losses of the sorted samples at levels (i - 1/2) / n. No term is negative, so nothing cancels.

    Parameters
    ----------
    samples
        Array (..., n).
    y
        True values (...); NaN gives NaN.

    Returns
    -------
    ndarray
        Array (...).

    Raises
    ------
    DataError
        If the shapes do not match.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.crps_samples([[0.0, 2.0]], [1.0]).tolist()
    [0.5]
    """
    x = np.asarray(samples, dtype=np.float64)
    target = np.asarray(y, dtype=np.float64)
    if x.ndim != target.ndim + 1 or x.shape[:-1] != target.shape or x.shape[-1] == 0:
        raise DataError(
            "samples must have the shape of y and a last axis of at least one sample.",
            got=f"samples {x.shape} and y {target.shape}",
            hint="move the sample axis to the end: np.moveaxis(samples, axis, -1).",
        )
    error = np.sort(x - target[..., None], axis=-1)
    level = (np.arange(error.shape[-1]) + 0.5) / error.shape[-1]
    return np.asarray(2.0 * np.mean(((error > 0) - level) * error, axis=-1))


def _groups(table: pl.DataFrame) -> list[str]:
    """Return the columns that results can be grouped by, besides those of `NEEDS`."""
    levels = quantile_columns(table.columns)
    scores = [name for name, (_, over) in _terms(table.columns, levels).items() if over or name == "count"]
    taken = {*NEEDS, TARGET, MEAN, NAIVE, SCALE, *levels, *scores}
    return [name for name in table.columns if name not in taken]


def _unknown_by(by: object, ids: str, others: list[str]) -> ConfigError:
    return ConfigError(
        f"by must be None, {ids!r}, {STEP!r}, {CUTOFF!r} or another column of the results, such as a static one.",
        got=repr(by),
        hint=suggest(by, [ids, STEP, CUTOFF, *others], "keep static columns with backtest(..., static=[...])."),
    )


def by_model(table: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the results per model, in order of appearance, each without the forecasts that it does not have."""
    refuse_duplicates(table.columns, [MODEL])
    if missing := table[MODEL].null_count():
        raise DataError(
            "Every row of the results of several models needs a model.",
            got=f"none in {missing:,} rows",
            hint=f"fill the column {MODEL!r}, or drop it.",
        )
    parts = {}
    for name in table[MODEL].unique(maintain_order=True):
        part = table.filter(pl.col(MODEL) == name).drop(MODEL)
        forecasts = [MEAN, *quantile_columns(part.columns)]
        made = [column for column in forecasts if column in part.columns and _is_number(part, column)]
        empty = part.select(_number(column).is_null().all() for column in made).row(0, named=True) if made else {}
        parts[str(name)] = part.drop(column for column, is_empty in empty.items() if is_empty)
    _check_same_rows(parts)
    return parts


def _check_same_rows(parts: Mapping[str, pl.DataFrame]) -> None:
    """Raise unless all models have the same rows: else the one with the easier windows would win."""
    key = [ID, TIME, CUTOFF, TARGET]
    (first, rows), *others = parts.items() if parts else [("", pl.DataFrame())]
    if not set(key) <= set(rows.columns):
        return
    for name, part in others:
        for owner, left, right in ((first, rows, part), (name, part, rows)):
            alone = left.join(right, on=key, how="anti", nulls_equal=True)
            if alone.height:
                where = ", ".join(f"{column} {alone[column][0]}" for column in key)
                raise DataError(
                    "Models that are compared must have the same series, times, cutoffs and y.",
                    got=f"{rows.height:,} rows of {first} and {part.height:,} of {name}; only {owner} has {where}",
                    hint="test them together, backtest([a, b], frame), or score each by itself.",
                )


def _leaderboard(tables: Iterable[pl.DataFrame], by: str | None) -> pl.DataFrame:
    columns: list[str] = []
    every: set[str] = set()
    pooled: dict[str, dict[str | None, _Pooled]] = {}
    for table in tables:
        columns = columns or table.columns
        parts = by_model(table)
        naive = all(map(_has_naive, parts.values()))
        every |= {*chain(*(quantile_columns(part.columns) for part in parts.values()))}
        for name, part in parts.items():
            for sums in pooled.setdefault(name, {key: _Pooled(key) for key in {None, by}}).values():
                sums.add(part, naive=naive)
    if not pooled:
        return _score([table.drop(MODEL)], by).clear().insert_column(0, pl.Series(MODEL, [], pl.String))

    def scored(sums: _Pooled) -> pl.DataFrame:
        found = sums.scores()
        return found if every <= sums.columns else found.drop("wql", "crps_quantiles", strict=False)

    def joined(by: str | None) -> pl.DataFrame:
        tables = (scored(sums[by]).with_columns(pl.lit(name).alias(MODEL)) for name, sums in pooled.items())
        return pl.concat(tables, how="diagonal")

    scores = joined(None)
    if (rank := ranking(scores)) is not None:
        scores = scores.sort(rank, maintain_order=True)
    if by is not None:
        order = pl.Enum(scores[MODEL])
        scores = joined(by).sort(by, pl.col(MODEL).cast(order))
    usual = [*_FRONT, *_terms(columns, quantile_columns(columns))]
    shown = dict.fromkeys([*([by] if by else []), MODEL, *usual])
    return scores.select(name for name in shown if name in scores.columns)


def ranking(scores: pl.DataFrame) -> str | None:
    """Return the score by which models are ranked: the first of `RANKS` that all of them have."""
    complete = [name for name in RANKS if name in scores.columns and not scores[name].null_count()]
    return next(iter(complete), None)


def _has_naive(table: pl.DataFrame) -> bool:
    """Return True if there is a seasonal naive forecast of every known value."""
    if NAIVE not in table.columns or not (_is_number(table, NAIVE) and _is_number(table, TARGET)):
        return False
    known = table.select(_number(TARGET).is_null() | _number(NAIVE).is_finite())
    return bool(known.to_series().fill_null(value=False).all())


def _score(tables: Iterable[pl.DataFrame], by: str | None) -> pl.DataFrame:
    pooled = _Pooled(by)
    for table in tables:
        pooled.add(table)
    return pooled.scores()


class _Pooled:
    """Sums of the terms of scores over tables, of which each has whole series."""

    def __init__(self, by: str | None) -> None:
        self.by, self.key = by, [] if by is None else [_GROUP]
        self.sums: list[pl.DataFrame] = []
        self.terms: dict[str, str] = {}
        self.columns: set[str] = set()

    def add(self, table: pl.DataFrame, *, naive: bool = False) -> None:
        """Check the rows of a table and add their terms."""
        by, levels = self.by, quantile_columns(table.columns)
        _check_columns(table, levels, by)
        measures = (TARGET, SCALE, *([NAIVE] if naive else []), MEAN)
        numbers = [name for name in measures if name in table.columns] + list(levels)
        refuse_duplicates(table.columns, [ID, TIME, CUTOFF, *numbers])
        _check_numbers(table, numbers)
        _check_rows(table)
        if by == STEP:
            # Ranked before rows without y are dropped, so that a gap does not shift the steps after it.
            table = table.with_columns(pl.col(TIME).rank("dense").over(ID, CUTOFF).cast(pl.Int64).alias(STEP))
        group = [] if by is None else [pl.col(by).alias(_GROUP)]
        terms = _terms(numbers, levels)
        self._agree({name: over for name, (_, over) in terms.items()}, {*table.columns})
        rows = [term.alias(name) for name, (term, _) in terms.items()]
        # Slices bound the memory and fix the order of the sums: the streaming engine is as fast, but its last digits
        # differ from run to run.
        slices = (table.slice(start, SLICE).lazy() for start in range(0, max(table.height, 1), SLICE))
        self.sums += [
            _sums(part.select(*group, *map(_number, numbers)).select(*self.key, *rows), self.key) for part in slices
        ]

    def _agree(self, terms: dict[str, str], columns: set[str]) -> None:
        """Keep the terms that all tables have; only the comparison with seasonal naive may be missing in some."""
        before = self.terms or terms
        if other := ({*terms} ^ {*before}) - {"naive", "skill"}:
            raise DataError(
                "The parts of a folder of results must have the same forecasts.",
                got=f"parts with and without {', '.join(sorted(other))}",
                hint="score the parts of one backtest at a time.",
            )
        self.terms = {name: over for name, over in before.items() if name in terms}
        self.columns = columns & (self.columns or columns)

    def scores(self) -> pl.DataFrame:
        """Return the scores, one row per group."""
        every = [part.select(*self.key, *self.terms) for part in self.sums]
        sums = _sums(pl.concat(every).lazy(), self.key)
        ratios = [
            pl.col(name) / pl.when(pl.col(over) > 0).then(pl.col(over)) for name, over in self.terms.items() if over
        ]
        table = sums.select(*self.key, pl.col("count").cast(pl.Int64), *ratios).sort(self.key or "count")
        table = table.with_columns(pl.col("rmse").sqrt()) if "rmse" in self.terms else table
        table = table.with_columns(skill=1 - pl.col("skill")) if "skill" in self.terms else table
        return table if self.by is None else table.rename({_GROUP: self.by})


def _is_number(table: pl.DataFrame, name: str) -> bool:
    return table.schema[name].is_numeric() or table.schema[name] == pl.Null


def _number(name: str) -> pl.Expr:
    # Float64 before any sum: sums of 10 million float32 values would lose digits that matter.
    return pl.col(name).cast(pl.Float64).fill_nan(None)


def _sums(rows: pl.LazyFrame, key: Sequence[str]) -> pl.DataFrame:
    # Without maintain_order, the order of a sum depends on the threads.
    grouped = rows.group_by(key, maintain_order=True).agg(pl.all().sum()) if key else rows.select(pl.all().sum())
    return grouped.collect()


def _terms(columns: Sequence[str], levels: Levels) -> dict[str, tuple[pl.Expr, str]]:
    """Return name -> (term of a row, name of the term whose sum divides its sum; "" if it is not a score).

    Every term is null or 0 in rows without y.
    """
    y = pl.col(TARGET)
    terms = {"count": (y.is_not_null(), ""), "size": (y.abs(), "")}
    errors = {name: y - pl.col(name) for name in columns if name in (MEAN, *levels)}
    loss = {name: quantile_loss(errors[name], level) for name, level in levels.items()}
    terms |= {f"R{level:g}": (2 * loss[name], "size") for name, level in levels.items()}
    if levels:
        terms["wql"] = (sum(loss.values(), start=pl.lit(0.0)) * (2 / len(levels)), "size")
        edges = [0.0, *((low + high) / 2 for low, high in pairwise(levels.values())), 1.0]
        cells = (high - low for low, high in pairwise(edges))
        parts = (2 * cell * part for part, cell in zip(loss.values(), cells, strict=True))
        terms["crps_quantiles"] = (sum(parts, start=pl.lit(0.0)), "count")
    mirror = {f"{1 - level:.9f}": name for name, level in levels.items() if level > 0.5}
    for name, level in levels.items():
        if level < 0.5 and (upper := mirror.get(f"{level:.9f}")):
            low, high, percent = pl.col(name), pl.col(upper), f"{100 * (1 - 2 * level):g}"
            terms[f"coverage_{percent}"] = (y.is_between(low, high), "count")
            terms[f"width_{percent}"] = (pl.when(y.is_not_null()).then(high - low), "size")

    point = next((name for name, level in levels.items() if level == 0.5), MEAN)
    if point in errors:
        error, both = errors[point].abs(), y.abs() + pl.col(point).abs()
        terms["nd"] = (error, "size")
        if SCALE in columns:
            scale = pl.col(SCALE)
            scaled = error / pl.when((scale > 0) & scale.is_finite()).then(scale)
            terms |= {"scaled": (scaled.is_not_null(), ""), "mase": (scaled, "scaled")}
        terms["smape"] = (pl.when(both == 0).then(0.0).otherwise(error / both), "count")
        terms["mae"] = (error, "count")
        if NAIVE in columns:
            terms |= {"naive": ((y - pl.col(NAIVE)).abs(), ""), "skill": (error, "naive")}
    if MEAN in errors:
        terms["rmse"] = (errors[MEAN].pow(2), "count")
    return terms


def quantile_loss(error: pl.Expr, level: float) -> pl.Expr:
    """Return D_rho of an error, y - quantile."""
    return pl.when(error > 0).then(level * error).otherwise((level - 1) * error)


def quantile_columns(columns: Sequence[str]) -> Levels:
    """Return the columns named like q0.5 and their levels, in ascending order."""
    levels: Levels = {}
    for name in columns:
        try:
            level = float(name.removeprefix("q")) if name.startswith("q") else 0.0
        except ValueError:
            continue
        if not 0 < level < 1:
            continue
        if f"{level:g}" in {f"{other:g}" for other in levels.values()}:
            raise DataError(
                "Each quantile must have one column.", got=f"a second for {level:g}, {name!r}", hint="drop one."
            )
        levels[name] = level
    return dict(sorted(levels.items(), key=lambda item: item[1]))


def _check_columns(table: pl.DataFrame, levels: Levels, by: str | None) -> None:
    needed = NEEDS.get(by, (ID, TARGET))
    missing = [name for name in needed if name not in table.columns]
    if missing:
        raise DataError(
            f"Results to score{f' by {by}' if by else ''} must have the columns {', '.join(needed)}.",
            got=f"no {', '.join(missing)} among {', '.join(table.columns)}",
            hint="score the frame that backtest returns; what predict returns needs actuals=, the values that came.",
        )
    if not levels and MEAN not in table.columns:
        raise DataError(
            "Results must have a forecast: a column mean, or quantiles such as q0.5.",
            got=f"only {', '.join(table.columns)}",
            hint="name a point forecast mean, and a quantile q followed by its level.",
        )


def _check_rows(table: pl.DataFrame) -> None:
    key = [ID, TIME, CUTOFF]
    if not set(key) <= set(table.columns):
        return
    # Counting is cheaper than marking duplicates, and nearly always enough.
    if table.lazy().select(key).unique().select(pl.len()).collect(engine="streaming").item() < table.height:
        name, time, cutoff = table.filter(pl.struct(key).is_duplicated()).select(key).row(0)
        raise DataError(
            "Results must have one row for each series, time and cutoff.",
            got=f"two for series {name!r} at {time}, cutoff {cutoff}",
            hint="score one backtest at a time, or drop the duplicates.",
        )


def _check_numbers(table: pl.DataFrame, numbers: Sequence[str]) -> None:
    for name in numbers:
        kind = table.schema[name]
        if not _is_number(table, name):
            raise DataError(f"Column {name!r} must hold numbers.", got=f"{kind}", hint="cast or drop it.")
    # Skipping a missing forecast would favour the model that failed to make it.
    known = _number(TARGET).is_not_null()
    rules = {
        name: known & ~_number(name).is_finite().fill_null(value=False)
        for name in numbers
        if name not in (SCALE, NAIVE)
    }
    broken = table.lazy().select(rule.any().alias(name) for name, rule in rules.items()).collect(engine="streaming")
    for name in (name for name in rules if broken[name].item()):
        rows = table.filter(rules[name])
        where = ", ".join(f"{key} {rows[key][0]}" for key in (TIME, CUTOFF) if key in rows.columns)
        raise DataError(
            "y must be finite or missing." if name == TARGET else "A forecast must be finite wherever y is known.",
            got=f"{name} = {rows[name][0]} in series {rows[ID][0]!r}{f' at {where}' if where else ''}, "
            f"in {rows.height} rows of {rows[ID].n_unique()} series",
            hint="set y to missing in rows that are not to be scored.",
        )
