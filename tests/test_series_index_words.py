"""Text covariates become one input per word, remembered by the model; what is typical of a series without a past."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import logsparse as ls
import small
from logsparse.data.frame import to_panel
from logsparse.data.series_index import SeriesIndex

HOURS = np.datetime64("2024-01-01T00:00", "us") + np.arange(96).astype("timedelta64[h]")
WEATHER = np.array(["sun", "rain", "snow"])


def frame(steps: slice = slice(0, 90)) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    which = rng.integers(3, size=96)
    y = np.array([10.0, 30.0, 60.0])[which] + rng.normal(size=96)
    table = pl.DataFrame({"unique_id": "a", "ds": HOURS, "y": y, "weather": WEATHER[which]})
    return table[steps]


AHEAD = frame(slice(90, 96)).drop("y")


def quick(**train: float) -> ls.LogSparse:
    config = small.config({"see_missing": True, "dropout": 0.0}, **{"epochs": 1, **train})
    return ls.LogSparse(horizon=6, config=config, samples=10, verbose=False)


@pytest.fixture(scope="module")
def fitted() -> ls.LogSparse:
    return quick(steps_per_epoch=150, batch=16, lr=5e-3).fit(frame(), covariates=["weather"])


def test_words_are_indices_in_a_panel_and_inputs_of_0_and_1_in_training() -> None:
    table = frame().with_columns(
        pl.when(pl.col("ds") == pl.lit(HOURS[2])).then(None).otherwise("weather").alias("weather")
    )
    panel = to_panel(table, covariates=["weather"])
    assert panel.words == {"weather": ("rain", "snow", "sun")}
    index = SeriesIndex.of(panel, panel.lengths)
    encoded = index.encode(panel)
    assert list(encoded.covariates) == ["weather\0rain", "weather\0snow", "weather\0sun"]
    every = np.stack(list(encoded.covariates.values()))
    assert np.isnan(every[:, 2]).all()
    assert (np.delete(every, 2, axis=1).sum(0) == 1).all()
    assert [WEATHER.tolist().index(w) for w in table["weather"].drop_nulls()] == [
        [1, 2, 0][k] for k in np.delete(every, 2, axis=1).argmax(0)
    ]


def test_forecasts_follow_the_words_of_the_future(fitted: ls.LogSparse) -> None:
    means = [fitted.predict(future=AHEAD.with_columns(weather=pl.lit(w)))["mean"].mean() for w in ("sun", "snow")]
    assert means[1] - means[0] > 20


def test_a_word_that_training_did_not_have_counts_as_unknown(fitted: ls.LogSparse) -> None:
    hail, fog = (fitted.predict(future=AHEAD.with_columns(weather=pl.lit(w))) for w in ("hail", "fog"))
    assert hail.equals(fog)


def test_words_keep_their_meaning_in_other_data_and_after_saving(fitted: ls.LogSparse, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    again = ls.load(tmp_path / "model", verbose=False)
    before = fitted.predict(future=AHEAD)
    assert again.predict(future=AHEAD).equals(before)
    # A history with fewer words numbers them differently.
    recent = frame(slice(60, 90)).with_columns(weather=pl.lit("sun"))
    snow = AHEAD.with_columns(weather=pl.lit("snow"))
    assert again.predict(recent, future=snow)["mean"].mean() > 40


def test_categories_of_pandas_and_words_of_a_wide_table_are_read() -> None:
    table = frame().to_pandas().astype({"weather": "category"})
    panel = to_panel(table, covariates=["weather"])
    wide = to_panel(
        pd.DataFrame({"ds": HOURS[:90], "a": table["y"], "weather": table["weather"].astype(str)}),
        covariates=["weather"],
    )
    np.testing.assert_array_equal(wide.covariates["weather"], panel.covariates["weather"])
    assert wide.words == panel.words


def test_a_column_of_numbers_with_a_mistake_is_still_refused() -> None:
    mistaken = frame().with_columns(heat=pl.Series(["1.5", "2.5", "x"] * 30))
    with pytest.raises(ls.DataError, match=re.escape("The column 'heat' must hold numbers. Got 'x' in series 'a' at")):
        to_panel(mistaken, covariates=["heat"])


def test_a_text_of_too_many_words_is_refused() -> None:
    table = pl.DataFrame({"unique_id": "a", "ds": range(200), "y": 1.0, "note": [f"note {i}" for i in range(200)]})
    with pytest.raises(ls.DataError, match=r"at most 100 different words. Got 200 in .note."):
        to_panel(table, covariates=["note"])


def test_numbers_instead_of_words_are_refused(fitted: ls.LogSparse) -> None:
    numbers = frame().with_columns(weather=pl.lit(1.0))
    message = "The covariate 'weather' must hold text, as in the data that the model was fitted on. Got numbers."
    with pytest.raises(ls.DataError, match=re.escape(message)):
        fitted.predict(numbers, future=AHEAD.with_columns(weather=pl.lit(1.0)))


def typical(**static: list[str]) -> np.ndarray:
    """Six training series of size 1, 2, ... 6, then a new one, after static columns of seven entries."""
    rows = [(f"s{i}", t, i + 1.0, *(column[i] for column in static.values())) for i in range(7) for t in range(4)]
    table = pl.DataFrame(rows, schema=["unique_id", "ds", "y", *static], orient="row")
    known = to_panel(table.filter(pl.col("unique_id") != "s6"), static=list(static))
    found = SeriesIndex.of(known, known.lengths).encode(to_panel(table, static=list(static))).typical
    assert found is not None
    return found


def test_typical_are_the_other_series_of_the_same_category() -> None:
    found = typical(kind=["x", "x", "x", "y", "y", "z", "y"])
    assert found[:, 0].tolist() == [2.5, 2.0, 1.5, 5.0, 4.0, 3.0, 4.5]  # s5 is the only z: all others
    np.testing.assert_allclose(found[6], [4.5, 4.5, 0.5])


def test_with_several_columns_those_of_fewest_categories_come_first() -> None:
    found = typical(item=["p", "q", "r", "s", "t", "u", "new"], kind=["x", "x", "x", "y", "y", "y", "x"])
    assert found[6, 0] == 2
    assert found[3, 0] == 5.5
    assert typical(kind=["x"] * 6 + ["new"])[6, 0] == 3.5
