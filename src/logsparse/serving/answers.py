"""Model and panel -> answers as JSON: check, backtest, attention, description of a model; model -> an example."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.columns import CUTOFF, NAIVE, result_names
from logsparse.data.findings import Rules
from logsparse.data.panel import Panel
from logsparse.data.times import stamps
from logsparse.errors import ConfigError, suggest
from logsparse.evaluation.backtest import past_forecasts
from logsparse.evaluation.check import examined, readable, rows_of
from logsparse.evaluation.metrics import score
from logsparse.forecast import Forecaster
from logsparse.serving.schema import AttentionQuery, BacktestQuery, CheckQuery
from logsparse.serving.tables import Limits, TooLargeError, as_json, check_series, names_of, past_of, texts

# Ids that the description of a model lists.
_LISTED = 100
# Quantiles of a backtest: median and 80 % band.
_LEVELS = (0.1, 0.5, 0.9)
# Scores that people are shown.
_SCORES = {
    "coverage_80": "share of values in the 80 % band",
    "width_80": "width of the 80 % band",
    "wql": "quantile error (wql)",
    "nd": "absolute error (nd)",
    "mase": "scaled absolute error (mase)",
}
_FARTHEST = 2**62
# Rows of an example, about.
_EXAMPLE_ROWS = 100_000


def chosen(panel: Panel, series: str | None) -> Panel:
    """Return the panel with one series only, or all if none is named."""
    if series is None:
        return panel
    names = np.array([str(name) == series for name in panel.ids])
    if not names.any():
        raise ConfigError(
            "series must be the id of a series in the data.",
            got=repr(series),
            hint=suggest(series, panel.ids, f"name one such as {panel.ids[0]!r}."),
        )
    return panel.keep(names)


def _seen(panel: Panel) -> Panel:
    """Return the panel without rows that are the future of its covariates."""
    return panel.to_last_value() if panel.ahead else panel


def check_answer(name: str, model: Forecaster, table: Any, query: CheckQuery, limits: Limits) -> dict[str, Any]:
    """Return what `logsparse check` prints, as `CheckAnswer` describes it."""
    columns: Any = query.columns()
    panel = check_series(readable(table, model, columns), limits)
    health, facts = examined(panel, model, {}, Rules(), None)
    spec = names_of(model, columns)
    shown = None
    if query.series is not None:
        one = _seen(chosen(panel, query.series))
        first = max(0, int(one.lengths[0]) - query.last)
        steps = np.arange(first, int(one.lengths[0]))
        values = [None if np.isnan(value) else float(value) for value in one[0][first:]]
        times = texts(one, one.freq.add(np.full(len(steps), one.starts[0]), steps))
        shown = {"id": one.ids[0], "times": times, "values": values}
    return {
        "model": name,
        "data": {**facts, "ids": list(panel.ids)},
        "rows": rows_of(facts),
        "columns": {
            "id_col": None if panel.origin.layout == "wide" else spec.id_col,
            "time_col": spec.time_col,
            "target_col": None if panel.origin.layout == "wide" else spec.target_col,
            "covariates": spec.covariates,
            "past_covariates": spec.past_covariates,
            "static": spec.static,
        },
        "fits": panel.freq == model.panel_.freq,
        "summary": health.summary(),
        **{key: value for key, value in health.to_dict().items() if key != "series"},
        "history": shown,
    }


def backtest_answer(name: str, model: Forecaster, panel: Panel, query: BacktestQuery, limits: Limits) -> dict[str, Any]:
    """Return forecasts at past cutoffs and scores, as `BacktestAnswer` describes them."""
    if query.windows * (1 if query.alone and query.series is not None else len(panel)) > limits.series:
        raise TooLargeError(
            f"A backtest may have at most {limits.series:,} forecasts.",
            got=f"{len(panel):,} series at {query.windows:,} cutoffs",
            hint="ask for fewer windows; --max-series of the server sets the limit.",
        )
    one = chosen(_seen(panel), query.series)
    panel = one if query.alone else _seen(panel)
    levels = (0.5,) if model.point_only else _LEVELS
    found, seen = past_forecasts(model, panel, query.windows, levels)
    scores = [
        {"model": name if who == "model" else who, **score(table).row(0, named=True)} for who, table in found.items()
    ]
    clean = json.loads(json.dumps(scores), parse_constant=lambda _: None)
    id_col, time_col, target_col = result_names(panel.origin)
    own, naive = found["model"], found[NAIVE]
    table = own.with_columns(naive["mean"].alias(NAIVE))
    wanted = panel.ids[:1] if query.series is None else one.ids
    series = []
    for (who, _), part in table.group_by([id_col, CUTOFF], maintain_order=True):
        if who in wanted:
            quantiles = {f"{level:g}": as_json(part[f"q{level:g}"]) for level in levels}
            series.append(
                {
                    "id": who,
                    "cutoff": as_json(part[CUTOFF])[0],
                    "times": as_json(part[time_col]),
                    "actual": as_json(part[target_col]),
                    "mean": as_json(part["mean"]),
                    "quantiles": quantiles,
                    NAIVE: as_json(part[NAIVE]),
                }
            )
    return {
        "model": name,
        "windows": query.windows,
        "seen": seen,
        "scores": clean,
        "coverage": scores[0].get("coverage_80"),
        "summary": _verdict(query.windows, seen, *scores),
        "rows": [
            (label, *(plain[key] for plain in clean)) for key, label in _SCORES.items() if clean[0].get(key) is not None
        ],
        "series": series,
    }


def _verdict(windows: int, seen: bool, own: dict[str, Any], naive: dict[str, Any]) -> str:
    """Return what the scores of all series say, in sentences."""
    parts = [f"All series, the last {'window' if windows == 1 else f'{windows:,} windows'}:"]
    if (inside := own.get("coverage_80")) is not None:
        parts.append(f"{100 * inside:.0f} % of the actual values lie in the 80 % band.")
    metric = next((name for name in ("wql", "nd") if own.get(name) is not None and naive.get(name)), None)
    if metric is not None:
        more = 100 * (own[metric] / naive[metric] - 1)
        word = f"{abs(more):.0f} % {'larger' if more > 0 else 'smaller'} than" if abs(more) >= 0.5 else "about"
        parts.append(f"The error ({metric}) is {word} that of seasonal naive.")
    known = "The model was trained on some of these values, so this looks better than it is."
    return " ".join([*parts, known if seen else "The model was not trained on these values."])


def has_attention(model: Forecaster) -> bool:
    """Return whether `/v1/attention` can answer for a model."""
    return hasattr(getattr(model, "network_", None), "queries_keys")


def attention_answer(name: str, model: Any, panel: Panel, query: AttentionQuery) -> dict[str, Any]:
    """Return the weights of one step of a forecast, as `AttentionAnswer` describes them."""
    one = chosen(panel, query.series)
    found = model.attention(past_of(model, one, model.horizon), series=one.ids[0], step=query.step)
    table = found.table()
    return {
        "model": name,
        "series": found.series,
        "what": found.what,
        "caption": found.caption(),
        "times": as_json(table[found.names[1]]),
        "values": as_json(table["value"]),
        "weights": as_json(table["weight"]),
    }


def card(name: str, model: Forecaster) -> dict[str, Any]:
    """Return what is known of a model, as `ModelCard` describes it."""
    panel, course, held = model.panel_, getattr(model, "history_", None), getattr(model, "calibration_", None)
    network, spec = getattr(model, "network_", None), names_of(model, {})
    config = getattr(model, "config_", None)
    settings = json.loads(json.dumps(model.settings() if config is None else config.to_dict(), default=str))
    ends = np.array([max(model.learned_until().values())])
    return {
        "name": name,
        "kind": type(model).__name__,
        "horizon": model.horizon,
        "step": str(panel.freq),
        "season": panel.freq.season,
        "series": len(panel),
        "ids": list(panel.ids[:_LISTED]),
        "trained_until": str(stamps(panel, ends)[0]),
        "covariates": list(panel.ahead),
        "past_covariates": list(panel.past),
        "static": list(panel.static),
        "columns": [spec.id_col, spec.time_col, spec.target_col, *spec.timed, *spec.static],
        "context": None if config is None else config.context,
        "attention": has_attention(model),
        "parameters": None if network is None else sum(weight.numel() for weight in network.parameters()),
        "validation_loss": None if course is None else course.best,
        "warning": None if course is None else course.warning,
        "coverage": None if held is None else held.coverage,
        "settings": settings,
    }


def example(model: Forecaster) -> pl.DataFrame:
    """Return made-up values that a model can forecast: its columns, ids and step, waves of one season and of seven."""
    panel, spec, season = model.panel_, names_of(model, {}), model.panel_.freq.season
    steps = min(int(panel.lengths.max()), 1000) + 4 * (season + model.horizon)
    ids = panel.ids[: max(1, _EXAMPLE_ROWS // steps)]
    # For a model with covariates, rows without a value are the future.
    future = model.horizon if spec.covariates else 0
    offsets = np.arange(1 - steps, future + 1)
    # The last three windows lie after the training.
    clock = panel.freq.add(np.full(len(offsets), max(model.learned_until().values())), offsets + 3 * model.horizon)
    times = stamps(panel, clock)
    parts, rng = [], np.random.default_rng(0)
    for number, name in enumerate(ids):
        turns = 2 * np.pi * (offsets / max(season, 2) + number / 7)
        noise = rng.normal(size=len(offsets))
        shape = 1 + 0.45 * np.sin(turns) + 0.15 * np.sin(2 * turns) + 0.12 * np.sin(turns / 7) + 0.07 * noise
        # Whole numbers above zero have a density under every likelihood.
        values = np.maximum(np.round((60 + 40 * (number % 5)) * shape), 1.0)
        columns = {spec.id_col: name, spec.time_col: times, spec.target_col: np.where(offsets > 0, np.nan, values)}
        extra = {covariate: _made_up(panel.words.get(covariate, ()), turns) for covariate in spec.timed}
        static = {key: panel.static[key].categories[0] for key in spec.static}
        parts.append(pl.DataFrame({**columns, **extra, **static}).with_columns(pl.col(spec.target_col).fill_nan(None)))
    return pl.concat(parts)


def _made_up(words: Sequence[str], turns: NDArray[np.float64]) -> pl.Series:
    """Return values of a covariate: numbers, or its words in turn."""
    if words:
        return pl.Series(words).gather(np.arange(len(turns)) % len(words))
    return pl.Series(np.sin(turns).round(3))
