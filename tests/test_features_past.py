"""Covariates of the past: read at lags, never at or after the forecast start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
import small
from logsparse.data.features import Features
from logsparse.data.frame import to_panel
from logsparse.data.windows import Windows

HOURS = np.datetime64("2024-01-01T00:00", "us") + np.arange(120).astype("timedelta64[h]")


def frame(seed: int = 0) -> pl.DataFrame:
    """Two series that follow the visitors of one step before, with a gap in the visitors."""
    rng = np.random.default_rng(seed)
    tables = []
    for name in ("a", "b"):
        visitors = rng.uniform(10, 30, len(HOURS))
        y = np.concatenate([[20.0], visitors[:-1]]) + 0.5 * rng.normal(size=len(HOURS))
        tables.append(pl.DataFrame({"unique_id": name, "ds": HOURS, "y": y, "visitors": visitors}))
    return pl.concat(tables).with_columns(
        pl.when(pl.col("ds") == pl.lit(HOURS[40])).then(None).otherwise(pl.col("visitors")).alias("visitors")
    )


def quick(network: dict[str, Any] | None = None, **train: Any) -> ls.LogSparse:
    config = small.config({"see_missing": True, "lags": (1, 3), **(network or {})}, **{"epochs": 1, **train})
    return ls.LogSparse(horizon=6, config=config, samples=10, verbose=False)


def test_each_lag_has_a_value_and_a_flag_up_to_the_forecast_start() -> None:
    panel = to_panel(frame(), past_covariates=["visitors"])
    features = Features.fit(panel, [], past=["visitors"], lags=[1, 3])
    assert len(features) == 4
    windows = Windows(panel, features, context=8, horizon=4, lags=(1, 3))
    found = windows(np.array([0]), np.array([42])).features_BLF[0].numpy()
    raw = panel.covariates["visitors"][:120].astype(np.float64)
    scaled = (raw - features.mean[0]) / features.std[0]
    for position, step in enumerate(range(34, 46)):
        for k, lag in enumerate((1, 3)):
            source = step - lag
            known = source < 42 and source != 40
            assert found[position, 2 * k + 1] == known
            np.testing.assert_allclose(found[position, 2 * k], scaled[source] if known else 0, rtol=1e-5)


def test_no_value_after_the_cutoff_changes_a_forecast() -> None:
    table = frame()
    fitted = quick().fit(table, until=HOURS[99], past_covariates=["visitors"])
    rng = np.random.default_rng(1)
    for cutoff in (100, 108, 113):
        late = pl.col("ds") > pl.lit(HOURS[cutoff])
        noise = pl.Series(rng.normal(size=len(table)) * 1e6)
        other = table.with_columns(pl.when(late).then(noise).otherwise(pl.col(c)).alias(c) for c in ("visitors", "y"))
        panels = [
            to_panel(each, past_covariates=["visitors"]).until(int(HOURS[cutoff].astype(int)))
            for each in (table, other)
        ]
        assert fitted.predict(panels[0]).equals(fitted.predict(panels[1]))
    changed = table.with_columns(
        pl.when(pl.col("ds") == pl.lit(HOURS[-1])).then(99.0).otherwise("visitors").alias("visitors")
    )
    assert not fitted.predict(changed).equals(fitted.predict(table))


def test_training_windows_hide_what_comes_after_their_forecast_start_too() -> None:
    panel = to_panel(frame(), past_covariates=["visitors"])
    plan = quick({"hidden_history": 0.5}).plan(panel)
    flags = plan.data.windows(np.array([0, 1]), np.array([50, 60]), np.array([False, True])).features_BLF[..., -1]
    assert flags[0, 24:].tolist() == [1, 1, 1, 0, 0, 0]
    assert flags[1].tolist() == [0] * 30  # its history is hidden


def test_a_backtest_of_several_cutoffs_sees_only_the_past_of_each() -> None:
    table = frame()
    fitted = quick().fit(table, until=HOURS[99], past_covariates=["visitors"])
    both = ls.backtest(fitted, table, windows=2, past_covariates=["visitors"])
    until = table.filter(pl.col("ds") <= pl.lit(HOURS[107]))
    alone = fitted.predict(until)
    first = both.filter(pl.col("cutoff") == pl.lit(HOURS[107]))
    np.testing.assert_allclose(first["mean"].to_numpy(), alone["mean"].to_numpy(), rtol=1e-4)


def test_a_value_that_follows_the_covariate_is_forecast_by_it() -> None:
    course: dict[str, Any] = {"steps_per_epoch": 150, "batch": 16, "lr": 3e-3, "weighted": False}
    table = frame()
    losses = []
    for named in ({"past_covariates": ["visitors"]}, {}):
        fitted = quick({"dropout": 0.0, "scale": "deviation"}, **course).fit(table, until=HOURS[99], **named)  # type: ignore[arg-type]
        found = ls.backtest(fitted, table, windows=15, step=1, **named)  # type: ignore[arg-type]
        next_step = found.group_by("unique_id", "cutoff", maintain_order=True).first()
        losses.append(float(np.abs(next_step["y"].to_numpy() - next_step["mean"].to_numpy()).mean()))
    assert losses[0] < 0.5 * losses[1]


def test_no_future_is_asked_for_and_the_model_is_saved(tmp_path: Path) -> None:
    fitted = quick().fit(frame(), past_covariates=["visitors"])
    fitted.save(tmp_path / "model")
    again = ls.load(tmp_path / "model", verbose=False)
    assert again.predict().equals(fitted.predict())
    assert again.predict(frame()).equals(fitted.predict(frame()))
    with pytest.raises(ls.DataError, match=r"was fitted with \(past covariates: visitors\). Got no visitors."):
        again.predict(frame().drop("visitors"))
    fitted.fine_tune(frame(seed=2))


def test_a_column_is_known_in_the_future_or_not() -> None:
    with pytest.raises(ls.ConfigError, match="Got 'visitors' as covariates and as past_covariates"):
        to_panel(frame(), covariates=["visitors"], past_covariates=["visitors"])


def test_both_kinds_of_covariates_go_together_also_in_a_wide_table() -> None:
    wide = pl.DataFrame({"ds": HOURS, "a": np.arange(120.0), "b": 1.0, "heat": 2.0, "rain": np.arange(120.0)})
    fitted = quick().fit(wide, covariates=["heat"], past_covariates=["rain"])
    later = HOURS[-1] + np.arange(1, 7).astype("timedelta64[h]")
    assert len(fitted.predict(future=pl.DataFrame({"ds": later, "heat": 3.0}))) == 12
    assert repr(fitted.panel_).endswith("covariates heat, past covariates rain)")
