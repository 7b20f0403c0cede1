"""`predict(on_bad=)`: what is logged, left out or refused, and that the other series are forecast as before."""

from __future__ import annotations

import logging

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from meters import HOURS, changed, frame_of

NAMES = [f"m{number}" for number in range(6)]


@pytest.fixture(scope="module")
def model() -> ls.SeasonalNaive:
    return ls.SeasonalNaive(horizon=4).fit(frame_of(*NAMES), id_col="meter")


def ids(table: pl.DataFrame) -> list[str]:
    return table[table.columns[0]].unique(maintain_order=True).to_list()


def test_healthy_data_are_forecast_without_a_word(model: ls.SeasonalNaive, caplog: pytest.LogCaptureFixture) -> None:
    model.predict(frame_of(*NAMES))
    model.predict()
    assert caplog.records == []


def test_by_default_one_line_is_logged_and_every_series_is_forecast(
    model: ls.SeasonalNaive, caplog: pytest.LogCaptureFixture
) -> None:
    frame = changed(changed(frame_of(*NAMES), "m1", -9999.0, 2), "m2", 3.0, 40)
    assert ids(model.predict(frame)) == NAMES
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    expected = "2 of 6 series have findings: 1 flat, 1 sentinel; logsparse.check(data, model=...) lists them"
    assert record.getMessage() == expected


def test_a_few_series_of_the_model_are_forecast_without_a_word(
    model: ls.SeasonalNaive, caplog: pytest.LogCaptureFixture
) -> None:
    assert ids(model.predict(frame_of("m3"))) == ["m3"]
    assert caplog.records == []


def test_skip_leaves_out_bad_series_and_forecasts_the_others_as_before(
    model: ls.SeasonalNaive, caplog: pytest.LogCaptureFixture
) -> None:
    frame = changed(frame_of(*NAMES), "m1", -9999.0, 2)
    table = model.predict(frame, on_bad="skip")
    assert ids(table) == ["m0", "m2", "m3", "m4", "m5"]
    assert table.equals(model.predict(frame).filter(pl.nth(0) != "m1"))
    assert "; not forecast: m1; " in caplog.records[0].getMessage()


def test_a_series_without_any_value_is_skipped_and_refused_otherwise(model: ls.SeasonalNaive) -> None:
    frame = changed(frame_of(*NAMES), "m1", None, len(HOURS))
    assert "m1" not in ids(model.predict(frame, on_bad="skip"))
    with pytest.raises(ls.DataError, match=r"Every series must have at least one value. Got none in series 'm1'"):
        model.predict(frame)
    with pytest.raises(ls.DataError, match=r"Got none in series 'm1'"):
        model.forecast(frame)


def test_an_empty_column_of_a_wide_table_is_skipped_too(model: ls.SeasonalNaive) -> None:
    wide = frame_of(*NAMES).pivot("meter", index="ds").with_columns(m1=None)
    assert ids(model.predict(wide, on_bad="skip")) == ["m0", "m2", "m3", "m4", "m5"]


def test_fail_names_the_series_and_the_reason(model: ls.SeasonalNaive) -> None:
    assert len(model.predict(frame_of(*NAMES), on_bad="fail")) == 24
    with pytest.raises(ls.DataError) as caught:
        model.predict(changed(frame_of(*NAMES[1:]), "m1", 5.0, 30), on_bad="fail")
    assert str(caught.value) == (
        "No series may have a bad finding (on_bad is fail). Got m0: the model was fitted on it up to 2024-01-20 "
        "23:00:00, and the data have no row of it; m1: the same value, 5, since 2024-01-19 18:00:00: 30 steps. "
        'Hint: repair or drop those series, or leave them out of the forecast with on_bad="skip".'
    )


def test_a_warning_does_not_fail(model: ls.SeasonalNaive) -> None:
    assert ids(model.predict(changed(frame_of(*NAMES), "m1", 500.0, 1), on_bad="fail")) == NAMES


def test_nothing_left_to_forecast_is_an_error(model: ls.SeasonalNaive) -> None:
    with pytest.raises(ls.DataError, match=r"A forecast needs a series without a bad finding \(on_bad is skip\)"):
        model.predict(changed(frame_of("m1"), "m1", 5.0, 30), on_bad="skip")


def test_another_word_is_refused(model: ls.SeasonalNaive) -> None:
    with pytest.raises(
        ls.ConfigError, match=r"on_bad must be warn, skip or fail. Got 'skp'. Hint: did you mean 'skip'"
    ):
        model.predict(frame_of("m1"), on_bad="skp")  # type: ignore[arg-type]


def test_skipped_series_need_no_future_covariates() -> None:
    frame = frame_of("a", "b", "c").with_columns(heat=pl.col("y"), kind=pl.col("meter"))
    model = ls.SeasonalNaive(horizon=2).fit(frame, id_col="meter", covariates=["heat"], static=["kind"])
    later = pl.Series([HOURS[-1]]).dt.offset_by("1h").append(pl.Series([HOURS[-1]]).dt.offset_by("2h"))
    future = pl.DataFrame({"meter": ["a", "a", "c", "c"], "ds": later.append(later), "heat": [1.0, 2.0, 3.0, 4.0]})
    assert ids(model.predict(changed(frame, "b", 1.0, 40), future=future, on_bad="skip")) == ["a", "c"]


def test_a_panel_keeps_what_belongs_to_its_series() -> None:
    frame = frame_of("a", "b", "c").with_columns(heat=-pl.col("y"), kind=pl.col("meter"))
    frame = frame.filter((pl.col("meter") != "b") | (pl.col("ds") < HOURS[99]))
    panel = ls.to_panel(frame, id_col="meter", covariates=["heat"], static=["kind"])
    kept = panel.keep(np.array([False, True, True]))
    assert (kept.ids, kept.lengths.tolist()) == (("b", "c"), [99, 480])
    for number in range(2):
        np.testing.assert_array_equal(kept[number], panel[number + 1])
    np.testing.assert_array_equal(kept.covariates["heat"], -kept.values)
    assert [kept.static["kind"].categories[code] for code in kept.static["kind"].codes] == ["b", "c"]
    assert kept.numbers is None
