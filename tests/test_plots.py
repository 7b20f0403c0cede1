"""Pictures of a forecast: one or several series, actual values, past forecasts, axes of the user."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import logsparse as ls
from logsparse import plots
from logsparse.forecast import Forecast

CUTOFF = "2024-01-05T23:00"


@pytest.fixture
def fitted(hourly: pl.DataFrame) -> ls.SeasonalNaive:
    return ls.SeasonalNaive(horizon=24).fit(hourly)


@pytest.fixture
def long(hourly: pl.DataFrame) -> pl.DataFrame:
    """Four series of a week."""
    one = hourly.filter(pl.col("unique_id") == "a")
    return pl.concat([one.with_columns(unique_id=pl.lit(name), y=pl.col("y") * n) for n, name in enumerate("abcd", 1)])


@pytest.fixture
def forecast(long: pl.DataFrame) -> Forecast:
    return ls.SeasonalNaive(horizon=24).fit(long, until=CUTOFF).forecast()


def line(axes: Axes, label: str) -> tuple[Any, Any]:
    (found,) = [one for one in axes.get_lines() if one.get_label() == label]
    return found.get_xdata(), found.get_ydata()


def test_the_picture_shows_history_and_fan(fitted: ls.SeasonalNaive) -> None:
    axes = fitted.forecast().plot("a", history=48).axes[0]
    history, median = axes.get_lines()
    assert (len(history.get_xdata()), len(median.get_xdata())) == (48, 24)  # type: ignore[arg-type]
    assert len(axes.collections) == 4
    assert axes.get_title(loc="left") == "a"


def test_the_first_series_is_drawn_with_three_horizons_of_history(forecast: Forecast) -> None:
    (axes,) = forecast.plot().axes
    assert axes.get_title(loc="left") == "a"
    assert len(line(axes, "history")[0]) == 72


def test_several_series_are_panels_with_one_legend(forecast: Forecast) -> None:
    figure = forecast.plot(["d", "b", "d"])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["d", "b"]
    assert len(figure.legends) == 1
    assert [axes.get_legend() for axes in figure.axes] == [None, None]
    assert line(figure.axes[0], "history")[1][-1] == pytest.approx(2 * line(figure.axes[1], "history")[1][-1])
    for names in (np.array(["a", "c"]), pd.Index(["a", "c"]), (name for name in "ac"), pl.Series(["a", "c"])):
        assert [axes.get_title(loc="left") for axes in forecast.plot(names).axes] == ["a", "c"]


def test_actual_values_are_those_of_the_steps_forecast(forecast: Forecast, long: pl.DataFrame) -> None:
    (axes,) = forecast.plot("b", actuals=long).axes
    times, values = line(axes, "actual")
    known = long.filter(pl.col("unique_id") == "b", pl.col("ds") > pl.datetime(2024, 1, 5, 23))[:24]
    assert times.tolist() == known["ds"].to_numpy().tolist()
    np.testing.assert_allclose(values, known["y"].to_numpy(), rtol=1e-6)
    assert times.tolist() == line(axes, "median")[0].tolist()


def test_actual_values_may_be_few_in_any_frame_or_file(forecast: Forecast, long: pl.DataFrame, tmp_path: Path) -> None:
    later = long.filter(pl.col("ds") == pl.datetime(2024, 1, 6, 3))
    later.write_parquet(tmp_path / "later.parquet")
    for actuals in (later, later.to_pandas(), tmp_path / "later.parquet"):
        (axes,) = forecast.plot("c", actuals=actuals).axes
        assert line(axes, "actual")[1].tolist() == pytest.approx(
            later.filter(pl.col("unique_id") == "c")["y"].to_list()
        )


def test_files_that_hold_ids_of_another_type_are_understood(long: pl.DataFrame, tmp_path: Path) -> None:
    numbered = long.with_columns(unique_id=pl.col("unique_id").replace_strict(dict(zip("abcd", range(4), strict=True))))
    model = ls.SeasonalNaive(horizon=24).fit(numbered, until=CUTOFF)
    numbered.write_csv(tmp_path / "actuals.csv")
    ls.backtest(model.clone(), numbered, windows=2, until=CUTOFF).write_csv(tmp_path / "past.csv")
    (axes,) = model.forecast().plot(3, actuals=tmp_path / "actuals.csv", past=tmp_path / "past.csv").axes
    assert {"actual", "past forecast"} <= {one.get_label() for one in axes.get_lines()}


def test_a_series_without_actual_values_is_drawn_without_them(forecast: Forecast, long: pl.DataFrame) -> None:
    figure = forecast.plot(["a", "b"], actuals=long.filter(pl.col("unique_id") == "b"))
    labels = [[one.get_label() for one in axes.get_lines()] for axes in figure.axes]
    assert ["actual" in found for found in labels] == [False, True]
    assert "actual" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_past_forecasts_are_drawn_over_the_history(long: pl.DataFrame, forecast: Forecast) -> None:
    past = ls.backtest(ls.SeasonalNaive(horizon=24), long, windows=4, until=CUTOFF)
    (axes,) = forecast.plot("b", past=past).axes
    earlier = [one for one in axes.get_lines() if one.get_color() == "#8662a8"]
    assert len(earlier) == 4
    assert len(line(axes, "history")[0]) == 96, "the history goes back to the first past forecast"
    first = past.filter(pl.col("unique_id") == "b")[:24]
    assert np.asarray(earlier[0].get_xdata()).tolist() == first["ds"].to_numpy().tolist()
    np.testing.assert_allclose(np.asarray(earlier[0].get_ydata()), first["q0.5"].to_numpy(), rtol=1e-6)
    assert [one.get_label() for one in earlier].count("past forecast") == 1
    (short,) = forecast.plot("b", past=past.to_pandas(), history=50).axes
    assert len([one for one in short.get_lines() if one.get_color() == "#8662a8"]) == 2


def test_past_forecasts_may_have_columns_of_other_names(long: pl.DataFrame, forecast: Forecast) -> None:
    past = ls.backtest(ls.SeasonalNaive(horizon=24), long, windows=1, until=CUTOFF)
    renamed = past.rename({"unique_id": "meter", "ds": "hour", "y": "load"})
    assert "past forecast" in [one.get_label() for one in forecast.plot(past=renamed).axes[0].get_lines()]


def test_axes_of_the_user_are_drawn_into_and_returned(forecast: Forecast) -> None:
    own = Figure().subplots(1, 2)
    assert forecast.plot("b", ax=own[1]) is own[1]
    assert own[1].get_title(loc="left") == "b"
    assert own[1].get_legend() is not None
    assert len(own[0].get_lines()) == 0


def test_times_are_local(long: pl.DataFrame) -> None:
    zoned = long.with_columns(pl.col("ds").dt.replace_time_zone("Europe/Berlin"))
    forecast = ls.SeasonalNaive(horizon=24).fit(zoned, until=CUTOFF).forecast()
    (axes,) = forecast.plot(actuals=zoned).axes
    assert line(axes, "median")[0][0] == np.datetime64("2024-01-06T00:00")
    assert line(axes, "actual")[0][0] == np.datetime64("2024-01-06T00:00")


def test_one_step_and_a_forecast_without_a_median_are_visible(long: pl.DataFrame) -> None:
    (axes,) = ls.SeasonalNaive(horizon=1).fit(long).forecast().plot().axes
    assert len(axes.collections) == 1
    assert [one.get_marker() for one in axes.get_lines()].count("o") == 1
    (bare,) = ls.SeasonalNaive(horizon=6).fit(long).forecast(quantiles=[0.1, 0.9]).plot().axes
    assert len(line(bare, "mean")[0]) == 6


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"series": "aa"}, r"must be of a series that was forecast\. Got 'aa'\. Hint: did you mean 'a'\?"),
        ({"series": ["a", "x"]}, r"must be of a series that was forecast\. Got 'x'\. Hint: name one such as 'a'"),
        ({"series": []}, r"must be of 1 to 60 series\. Got 0\. Hint: plot\(\['a', 'b'\]\) draws two"),
        ({"history": -5}, r"history must be at least 1. Got -5. Hint: count the steps to show"),
        ({"history": 0}, r"history must be at least 1. Got 0. Hint: count the steps to show"),
        ({"history": 2.5}, r"history must be a whole number. Got 2.5. Hint: count the steps to show"),
        ({"ax": "left"}, r"ax must be the axes of a matplotlib figure. Got 'left'. Hint: pass figure.axes\[0\]"),
        ({"ax": Figure().subplots(), "series": ["a", "b"]}, r"show one series. Got ax= and 2 series. Hint: leave ax"),
        ({"ax": Figure().subplots(), "interactive": True}, r"Got ax= and interactive=True. Hint: leave ax out"),
        ({"interactive": "yes"}, r"interactive must be True or False"),
    ],
)
def test_a_wrong_argument_is_refused_with_a_hint(forecast: Forecast, asked: dict[str, Any], text: str) -> None:
    with pytest.raises(ls.ConfigError, match=text):
        forecast.plot(**asked)


def test_too_many_series_are_refused(long: pl.DataFrame) -> None:
    one = long.filter(pl.col("unique_id") == "a")
    many = pl.concat([one.with_columns(unique_id=pl.lit(n)) for n in range(61)])
    forecast = ls.SeasonalNaive(horizon=2).fit(many).forecast()
    with pytest.raises(ls.ConfigError, match=r"must be of 1 to 60 series\. Got 61\. Hint: plot\(\[0, 1\]\)"):
        forecast.plot(range(61))


def test_frames_that_have_nothing_to_draw_are_refused(forecast: Forecast, long: pl.DataFrame) -> None:
    before = long.filter(pl.col("ds") < pl.datetime(2024, 1, 5))
    with pytest.raises(ls.DataError, match=r"values of the steps forecast.* Got none for 'a'. Hint: pass a frame"):
        forecast.plot(actuals=before)
    with pytest.raises(ls.DataError, match=r"must have times like those forecast. Got times in UTC after a history in"):
        forecast.plot(actuals=long.with_columns(pl.col("ds").dt.replace_time_zone("UTC")))
    past = ls.backtest(ls.SeasonalNaive(horizon=24), long, windows=1, until=CUTOFF)
    with pytest.raises(ls.DataError, match=r"forecasts of a series drawn, before the end of .* Got none for 'a'. Hint"):
        forecast.plot(past=past.filter(pl.col("unique_id") == "b"))
    with pytest.raises(
        ls.DataError, match=r"before the end of its history. Got none for 'a'. Hint: pass what backtest"
    ):
        forecast.plot(past=ls.backtest(ls.SeasonalNaive(horizon=24), long, windows=1))
    with pytest.raises(ls.DataError, match=r"A frame must have the columns unique_id, ds, cutoff"):
        forecast.plot(past=past.drop("cutoff"))
    with pytest.raises(
        ls.DataError, match=r"must have a mean or quantiles. Got the columns unique_id, .*, y. Hint: pass"
    ):
        forecast.plot(past=past.select("unique_id", "ds", "cutoff", "y"))
    two = pl.concat([past.with_columns(model=pl.lit(name)) for name in ("naive", "ets")])
    with pytest.raises(ls.DataError, match=r"must be of one model. Got 2 models in 'model'. Hint: keep the rows of"):
        forecast.plot(past=two)


def test_the_example_runs() -> None:
    assert doctest.testmod(plots).attempted > 3
    assert doctest.testmod(plots).failed == 0


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_actual_values_are_read_like_the_history(long: pl.DataFrame, zone: str | None) -> None:
    """By its names of columns, and on its clock."""
    sold = long.rename({"unique_id": "sku", "ds": "day", "y": "qty"})
    model = ls.SeasonalNaive(horizon=24)
    model.fit(sold, until=CUTOFF, id_col="sku", time_col="day", target_col="qty", tz=zone)
    expected = long.filter(pl.col("unique_id") == "b")["y"][-48:-24]
    for actuals in (sold, long, sold.pivot("sku", index="day", values="qty")):
        (axes,) = model.forecast().plot("b", actuals=actuals).axes
        np.testing.assert_allclose(line(axes, "actual")[1], expected, rtol=1e-6)
