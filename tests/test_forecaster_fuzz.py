"""Random frames through fit, predict, save, load, predict: finite ordered quantiles or one clear error, nothing else.

LOGSPARSE_FUZZ says how many frames (60 unless set).
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import logsparse as ls
import small
from logsparse.data.frame import to_panel
from logsparse.defaults import recommend
from logsparse.train.loop import TrainingError

FREQS = {"h": "1h", "D": "1d", "15min": "15m", "MS": "1mo"}


@st.composite
def series(draw: st.DrawFn, name: str) -> pl.DataFrame:
    freq = draw(st.shared(st.sampled_from(list(FREQS)), key="freq"))
    steps = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["noise", "counts", "zeros", "constant", "huge", "tiny", "walk", "spike"]))
    size = {"huge": 1e29, "tiny": 1e-30, "spike": 1.0}.get(kind, 10.0)
    y = {
        "counts": rng.poisson(3, steps).astype(float),
        "zeros": np.zeros(steps),
        "constant": np.full(steps, 7.0),
        "walk": rng.normal(size=steps).cumsum(),
        "spike": np.where(np.arange(steps) == steps // 2, 1e20, 1.0),
    }.get(kind, size * rng.normal(size=steps))
    if draw(st.booleans()):
        y[rng.random(steps) < 0.3] = np.nan
    start = np.datetime64("2023-01-01", "us").item()
    ds = pl.datetime_range(start, interval=FREQS[freq], end=np.datetime64("2033-01-01", "us").item(), eager=True)[
        :steps
    ]
    kept = np.ones(steps, bool) if draw(st.booleans()) else rng.random(steps) < 0.8
    table = pl.DataFrame({"unique_id": name, "ds": ds, "y": y}, schema_overrides={"ds": pl.Datetime("us")})
    return table.filter(pl.Series(kept))


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    return pl.concat([draw(series(f"s{i}")) for i in range(draw(st.integers(1, 4)))])


def quick(table: pl.DataFrame, horizon: int, by_data: bool) -> ls.LogSparse:
    """The settings that follow from the data, in a network of a few channels, two steps of training."""
    config = small.config({"unknown_series": 0.1, "see_missing": True}, epochs=1, steps_per_epoch=2)
    if by_data:
        advised = recommend(to_panel(table), horizon)
        model = replace(config.model, lags=advised.model.lags, likelihood=advised.model.likelihood)
        config = replace(config, context=min(advised.context, 30), model=model)
    config = replace(config, horizon=horizon)
    return ls.LogSparse(horizon=horizon, config=config, samples=7, verbose=False)


def assert_sound(found: Any, table: pl.DataFrame, horizon: int) -> None:
    assert len(found) == horizon * table["unique_id"].n_unique()
    quantiles = found.select("q0.1", "q0.5", "q0.9").to_numpy()
    assert np.isfinite(quantiles).all()
    assert np.isfinite(found["mean"].to_numpy()).all()
    assert (np.diff(quantiles, axis=1) >= 0).all()


@settings(
    max_examples=int(os.environ.get("LOGSPARSE_FUZZ", "60")),
    deadline=None,
    # A failing frame is small already; to shrink it would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize="LOGSPARSE_FUZZ" not in os.environ,
)
@given(frames(), st.integers(1, 8), st.booleans())
def test_random_frames_give_sound_forecasts_or_one_clear_error(
    table: pl.DataFrame, horizon: int, by_data: bool
) -> None:
    try:
        model = quick(table, horizon, by_data).fit(table)
    except (ls.DataError, ls.ConfigError, TrainingError) as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert "Got " in refused
        assert "Hint: " in refused
        return
    levels = [0.1, 0.5, 0.9]
    found = model.predict(quantiles=levels)
    assert_sound(found, table, horizon)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        again = ls.load(Path(folder) / "model")
    assert again.predict(quantiles=levels).equals(found)
    assert_sound(again.predict(table, quantiles=levels), table, horizon)
