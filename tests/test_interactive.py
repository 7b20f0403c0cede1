"""Interactive pictures: what is drawn by matplotlib, as a figure of plotly."""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.forecast import Forecast

go = pytest.importorskip("plotly.graph_objects")


@pytest.fixture
def forecast(hourly: pl.DataFrame) -> Forecast:
    return ls.SeasonalNaive(horizon=24).fit(hourly, until="2024-01-04T23:00").forecast()


def test_history_bands_median_actual_and_past_are_traces(forecast: Forecast, hourly: pl.DataFrame) -> None:
    past = ls.backtest(ls.SeasonalNaive(horizon=24), hourly, windows=2, until="2024-01-04T23:00")
    figure = forecast.plot("a", actuals=hourly, past=past, interactive=True)
    assert isinstance(figure, go.Figure)
    names = [trace.name for trace in figure.data]
    assert names.count("past forecast") == 6
    assert names[6:] == ["history", *["80 %"] * 2, *["60 %"] * 2, *["40 %"] * 2, *["20 %"] * 2, "median", "actual"]
    median = figure.data[names.index("median")]
    np.testing.assert_allclose(np.asarray(median.y), forecast.quantile(0.5)[1], rtol=1e-6)
    assert str(np.asarray(median.x)[0]).startswith("2024-01-05")


def test_series_are_rows_and_the_legend_names_each_thing_once(forecast: Forecast) -> None:
    figure = forecast.plot(["a", "b"], interactive=True)
    assert [note.text for note in figure.layout.annotations] == ["a", "b"]
    shown = [trace.name for trace in figure.data if trace.showlegend]
    assert sorted(shown) == ["20 %", "40 %", "60 %", "80 %", "history", "median"]
    assert {trace.yaxis for trace in figure.data} == {"y", "y2"}


def test_names_are_text_and_not_markup(hourly: pl.DataFrame) -> None:
    named = hourly.with_columns(unique_id=pl.lit("<b>R&D</b>") + pl.col("unique_id"))
    figure = ls.SeasonalNaive(horizon=3).fit(named).forecast().plot(interactive=True)
    assert figure.layout.annotations[0].text == "&lt;b>R&amp;D&lt;/b>b"


def test_without_plotly_the_extra_is_named(forecast: Forecast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.subplots", None)
    text = r"^An interactive picture needs plotly. Got .* Hint: pip install logsparse\[interactive\], or leave"
    with pytest.raises(ls.ConfigError, match=text):
        forecast.plot(interactive=True)
