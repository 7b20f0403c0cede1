"""What-if: two futures, the same draws, one frame and one picture."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from explained import future_of, sales, trained, until_last


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return sales(4)


@pytest.fixture(scope="module")
def model(frame: pl.DataFrame) -> ls.LogSparse:
    return trained(until_last(frame), steps=120)


def cheaper(future: pl.DataFrame) -> pl.DataFrame:
    return future.with_columns(pl.col("price") * 0.8)


def test_a_lower_price_sells_more_and_the_frame_shows_both_and_the_difference(
    model: ls.LogSparse, frame: pl.DataFrame
) -> None:
    future = future_of(frame)
    found = ls.what_if(model, future, cheaper(future), quantiles=[0.1, 0.5, 0.9])
    table = found.frame()
    assert table.columns == ["unique_id", "ds", "scenario", "mean", "q0.1", "q0.5", "q0.9"]
    parts = table.partition_by("scenario", as_dict=True, include_key=False, maintain_order=True)
    before, after, gap = (parts[(name,)] for name in ("unchanged", "changed", "difference"))
    assert before.equals(model.predict(future=future, quantiles=[0.1, 0.5, 0.9]))
    assert after.equals(model.predict(future=cheaper(future), quantiles=[0.1, 0.5, 0.9]))
    for name in ("mean", "q0.1", "q0.5", "q0.9"):
        assert np.allclose(gap[name], after[name] - before[name]), name
    assert gap["mean"].sum() > 0.1 * before["mean"].sum()
    totals = found.totals()
    assert totals["unique_id"].to_list() == ["s0", "s1", "s2", "s3"]
    assert totals["difference"].sum() == pytest.approx(gap["mean"].sum(), rel=1e-5)
    assert "the mean changes by +" in repr(found)


def test_a_future_that_is_the_same_changes_nothing(model: ls.LogSparse, frame: pl.DataFrame) -> None:
    model.samples = 20  # drawn, so that other draws would show
    try:
        found = ls.what_if(model, future_of(frame), future_of(frame))
    finally:
        model.samples = None
    gap = found.table().filter(pl.col("scenario") == "difference").drop("unique_id", "ds", "scenario")
    assert gap.to_numpy().max() == gap.to_numpy().min() == 0


def test_a_change_of_one_series_leaves_the_others(model: ls.LogSparse, frame: pl.DataFrame) -> None:
    future = future_of(frame)
    changed = future.with_columns(promo=pl.when(pl.col("unique_id") == "s2").then(1.0).otherwise("promo"))
    found = ls.what_if(model, future, changed)
    differs = dict(found.totals().select("unique_id", "difference").rows())
    assert differs["s2"] > 0
    assert [differs[name] for name in ("s0", "s1", "s3")] == [0, 0, 0]
    above, below = found.plot().axes
    # The series with the largest change is drawn, unless another is named.
    assert above.get_title(loc="left") == "s2"
    assert below.get_ylabel() == "difference"
    assert found.plot("s1", history=5).axes[0].get_title(loc="left") == "s1"


def test_what_cannot_be_asked_is_refused(model: ls.LogSparse, frame: pl.DataFrame) -> None:
    future = future_of(frame)
    with pytest.raises(ls.ConfigError, match=r"changes the covariates of a model. Got a model fitted without"):
        ls.what_if(ls.SeasonalNaive(horizon=7).fit(until_last(frame)), future, future)
    with pytest.raises(ls.NotFittedError):
        ls.what_if(ls.SeasonalNaive(horizon=7), future, future)
    with pytest.raises(ls.DataError, match="'price' must be known for all 7 steps"):
        ls.what_if(model, future, future.head(20))
    with pytest.raises(ls.ConfigError, match=r"question to a forecaster. Got DataFrame"):
        ls.what_if(future, future, future)  # type: ignore[arg-type]
    with pytest.raises(ls.ConfigError, match=r"name one such as .s0."):
        ls.what_if(model, future, cheaper(future)).plot("S1")


def test_the_dates_below_the_picture_do_not_touch(model: ls.LogSparse, frame: pl.DataFrame) -> None:
    figure = ls.what_if(model, future_of(frame), future_of(frame)).plot("s1", history=150)
    figure.draw_without_rendering()
    boxes = [
        label.get_window_extent()
        for label in figure.axes[1].get_xticklabels()
        if label.get_text() and label.get_visible()
    ]
    assert len(boxes) > 2
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
