"""Model and panel -> what is recognised and wrong, past forecasts, attention, facts about the model: as plain JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from logsparse.data.columns import CUTOFF, NAIVE, result_names
from logsparse.data.panel import Panel
from logsparse.data.times import stamps
from logsparse.errors import ConfigError, suggest
from logsparse.evaluation.backtest import past_forecasts
from logsparse.evaluation.check import check, readable, recognised
from logsparse.evaluation.metrics import score
from logsparse.forecast import Forecaster
from logsparse.serving.schema import AttentionQuery, BacktestQuery, CheckQuery
from logsparse.serving.tables import Limits, TooLargeError, as_json, check_series, names_of, past_of, texts

# Ids that the description of a model lists.
_LISTED = 100
# Quantiles of a backtest: median and 80 % band.
_LEVELS = (0.1, 0.5, 0.9)


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


def check_answer(name: str, model: Forecaster, table: Any, query: CheckQuery, limits: Limits) -> dict[str, Any]:
    """Return what `logsparse check` prints, as `CheckAnswer` describes it."""
    columns: Any = query.columns()
    panel = check_series(readable(table, model, columns), limits)
    health = check(panel, model=model)
    spec = names_of(model, columns)
    shown = None
    if query.series is not None:
        one = chosen(panel, query.series)
        first = max(0, int(one.lengths[0]) - query.last)
        steps = np.arange(first, int(one.lengths[0]))
        values = [None if np.isnan(value) else float(value) for value in one[0][first:]]
        times = texts(one, one.freq.add(np.full(len(steps), one.starts[0]), steps))
        shown = {"id": one.ids[0], "times": times, "values": values}
    return {
        "model": name,
        "data": {**recognised(panel), "ids": list(panel.ids)},
        "columns": {
            "id_col": None if panel.origin.layout == "wide" else spec.id_col,
            "time_col": spec.time_col,
            "target_col": None if panel.origin.layout == "wide" else spec.target_col,
            "covariates": spec.covariates,
            "static": spec.static,
        },
        "fits": panel.freq == model.panel_.freq,
        "summary": health.summary(),
        **{key: value for key, value in health.to_dict().items() if key != "series"},
        "history": shown,
    }


def backtest_answer(name: str, model: Forecaster, panel: Panel, query: BacktestQuery, limits: Limits) -> dict[str, Any]:
    """Return forecasts at past cutoffs and scores, as `BacktestAnswer` describes them."""
    if len(panel) * query.windows > limits.series:
        raise TooLargeError(
            f"A backtest may have at most {limits.series:,} forecasts.",
            got=f"{len(panel):,} series at {query.windows:,} cutoffs",
            hint="ask for fewer windows; --max-series of the server sets the limit.",
        )
    chosen(panel, query.series)
    levels = (0.5,) if model.point_only else _LEVELS
    found, seen = past_forecasts(model, panel, query.windows, levels)
    scores = [
        {"model": name if who == "model" else who, **score(table).row(0, named=True)} for who, table in found.items()
    ]
    id_col, time_col, target_col = result_names(panel.origin)
    own, naive = found["model"], found[NAIVE]
    table = own.with_columns(naive["mean"].alias(NAIVE))
    wanted = panel.ids[:1] if query.series is None else chosen(panel, query.series).ids
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
        "scores": json.loads(json.dumps(scores), parse_constant=lambda _: None),
        "coverage": scores[0].get("coverage_80"),
        "series": series,
    }


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
    panel, course = model.panel_, getattr(model, "history_", None)
    network = getattr(model, "network_", None)
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
        "covariates": list(panel.covariates),
        "static": list(panel.static),
        "context": None if config is None else config.context,
        "parameters": None if network is None else sum(weight.numel() for weight in network.parameters()),
        "validation_loss": None if course is None else course.best,
        "warning": None if course is None else course.warning,
        "coverage": None,
        "settings": settings,
    }
