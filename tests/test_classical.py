"""ARIMA and ETS choose their span, keep their models when the start moves, and say which series they could not do."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.baselines import classical
from logsparse.baselines.classical import AutoARIMA, AutoETS
from logsparse.baselines.estimate import Answer, Task
from logsparse.data.calendar import Freq
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError


def panel(*series: Any, freq: str = "QS", starts: list[int] | None = None) -> Panel:
    lengths = np.array([len(values) for values in series])
    return Panel(
        values=np.concatenate(series).astype(np.float32),
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        lengths=lengths,
        ids=tuple("abcdefgh"[: len(series)]),
        starts=np.array(starts or [0] * len(series)),
        freq=Freq.parse(freq),
    )


def quarters(years: int, seed: int = 0) -> Any:
    return 50 + np.tile([0, 6, 2, 9], years) + np.random.default_rng(seed).normal(size=4 * years)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """What is asked of the estimates; nothing is estimated."""
    seen: list[Task] = []

    def answers(tasks: list[Task], processes: int, done: Any) -> list[Answer]:
        del processes, done
        seen.extend(tasks)
        zeros = [0.0] * tasks[0]["horizon"] if tasks else []
        return [{"model": {"of": len(task["values"])}, "mean": zeros, "spread": zeros} for task in tasks]

    monkeypatch.setattr(classical, "answers", answers)
    return seen


@pytest.mark.parametrize(
    ("freq", "season", "span"),
    [
        ("h", 24, 28 * 24),
        ("D", 7, 200),
        ("MS", 12, 12 * 28),
        ("30min", 48, 1000),
        ("5min", 288, 4 * 288),
        ("YS", 1, 200),
    ],
)
def test_a_model_is_estimated_on_28_seasons_within_bounds(freq: str, season: int, span: int, asked: list[Task]) -> None:
    AutoETS(3).fit(panel(np.arange(3000), freq=freq))
    assert asked[0]["season"] == season
    assert asked[0]["values"] == list(range(3000 - span, 3000))


def test_a_span_and_a_season_may_be_given(asked: list[Task]) -> None:
    AutoARIMA(3, season=5, span=40).fit(panel(np.arange(90)))
    assert (asked[0]["kind"], asked[0]["season"], len(asked[0]["values"])) == ("arima", 5, 40)


def test_a_season_too_long_to_be_estimated_is_left_out_and_said(
    asked: list[Task], caplog: pytest.LogCaptureFixture
) -> None:
    AutoETS(3).fit(panel(np.arange(3000), freq="min"))
    assert (asked[0]["season"], len(asked[0]["values"])) == (1, 200)
    assert "ets: a season of 1440 steps is too long to be estimated and left out" in caplog.text


def test_a_later_history_goes_forward_from_where_the_models_span_began(asked: list[Task]) -> None:
    model = AutoETS(3, span=40).fit(panel(np.arange(60)))
    asked.clear()
    model.forecast(panel(np.arange(75)))
    assert asked[0]["values"] == list(range(20, 75))
    assert asked[0]["model"] == {"of": 40}


def test_a_new_series_or_a_history_that_begins_too_late_is_estimated_afresh(asked: list[Task]) -> None:
    data = panel(np.arange(60), np.arange(60))
    model = AutoETS(3, span=40).fit(data.cut(data.lengths - 5))
    asked.clear()
    late = int(data.freq.add(data.starts[:1], np.array([30]))[0])
    given = panel(np.arange(30, 60), np.arange(60), np.arange(60), starts=[late, 0, 0])
    model.forecast(given)
    assert [task["model"] for task in asked] == [None, {"of": 40}, None]
    assert [len(task["values"]) for task in asked] == [30, 45, 40]


def test_a_history_that_ends_before_the_models_span_began_is_estimated_afresh(asked: list[Task]) -> None:
    data = panel(np.arange(60))
    model = AutoETS(3, span=40).fit(data)
    asked.clear()
    model.forecast(data.cut(data.lengths - 45))
    assert (asked[0]["model"], asked[0]["values"]) == (None, list(range(15)))


def test_a_history_off_the_fitted_grid_is_estimated_afresh(asked: list[Task]) -> None:
    model = AutoETS(3).fit(panel(np.arange(60), freq="2", starts=[0]))
    asked.clear()
    model.forecast(panel(np.arange(60), freq="2", starts=[-1]))
    assert asked[0]["model"] is None


def test_quantiles_are_those_of_the_normal_distribution_around_the_mean() -> None:
    forecast = AutoETS(5).fit(panel(quarters(9))).forecast(quantiles=[0.05, 0.5, 0.8, 0.95])
    mean, quantiles = forecast.mean[0], forecast.quantiles[0]
    np.testing.assert_allclose(quantiles[1], mean)
    spread = (quantiles[3] - mean) / NormalDist().inv_cdf(0.95)
    assert (spread > 0.3).all()
    np.testing.assert_allclose(quantiles[0], mean + NormalDist().inv_cdf(0.05) * spread, rtol=1e-5)
    np.testing.assert_allclose(quantiles[2], mean + NormalDist().inv_cdf(0.8) * spread, rtol=1e-5)


def test_the_forecast_equals_statsforecast_on_the_same_span() -> None:
    from statsforecast.models import AutoETS as TheirETS

    values = quarters(30).astype(np.float32)
    found = AutoETS(6, span=48).fit(panel(values)).forecast(quantiles=[0.1, 0.9])
    theirs = TheirETS(season_length=4).forecast(values[-48:].astype(np.float64), 6, level=[80])
    np.testing.assert_allclose(found.mean[0], theirs["mean"], rtol=1e-6)
    np.testing.assert_allclose(found.quantile(0.1)[0], theirs["lo-80"], rtol=1e-6)
    np.testing.assert_allclose(found.quantile(0.9)[0], theirs["hi-80"], rtol=1e-6)


def test_a_rolling_backtest_equals_statsforecast_going_forward() -> None:
    from statsforecast.models import AutoETS as TheirETS

    values = quarters(12).astype(np.float32)
    results = ls.backtest(AutoETS(4), panel(values), windows=2)
    theirs = TheirETS(season_length=4).fit(values[:40].astype(np.float64))
    np.testing.assert_allclose(
        results["mean"][4:], theirs.forward(values[:44].astype(np.float64), 4)["mean"], rtol=1e-6
    )


def test_a_series_that_fails_is_forecast_by_seasonal_naive_and_said(caplog: pytest.LogCaptureFixture) -> None:
    short = [np.array([7.0, 8.0]), np.array([9.0]), np.array([1.0, 3.0, 2.0]), np.array([4.0, 5.0])]
    data = panel(quarters(9), *short)
    model = AutoETS(5).fit(data)
    assert set(model.failed_) == {"b", "c", "d", "e"}
    assert model.failed_["b"] == "NotImplementedError: tiny datasets"
    expected = "ets: 4 of 5 series could not be estimated and are forecast by seasonal naive: 'b' (NotImplementedError"
    assert caplog.text.count(expected) == 1
    assert "'d'" in caplog.text
    assert "'e'" not in caplog.text, "some names and the count are enough"
    forecast, naive = model.forecast(), ls.SeasonalNaive(5).fit(data).forecast()
    np.testing.assert_array_equal(forecast.quantiles[1:], naive.quantiles[1:])
    np.testing.assert_array_equal(forecast.mean[1:], naive.mean[1:])
    assert not np.array_equal(forecast.mean[0], naive.mean[0])
    assert caplog.text.count("could not be estimated") == 1, "said once, at the fit"


def test_a_new_series_that_fails_is_said_at_the_forecast(caplog: pytest.LogCaptureFixture) -> None:
    model = AutoETS(2).fit(panel(quarters(9)))
    found = model.forecast(panel(quarters(9), np.array([5.0])))
    assert found.mean[1].tolist() == [5.0, 5.0]
    assert "ets: 1 of 2 series could not be estimated" in caplog.text
    assert model.failed_ == {}


def test_progress_is_shown_while_estimating_unless_asked_not_to(capsys: pytest.CaptureFixture[str]) -> None:
    model = AutoETS(2).fit(panel(quarters(9)))
    assert "ets: 1 of 1" in capsys.readouterr().err
    model.forecast()
    AutoETS(2, verbose=False).fit(panel(quarters(9)))
    assert capsys.readouterr().err == ""


def test_values_near_the_limit_of_float32_stay_finite(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    found = AutoETS(3).fit(panel(quarters(9) * 4e36 + np.linspace(0, 1e38, 36))).forecast()
    assert np.isfinite(found.quantiles).all()


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsforecast", None)
    with pytest.raises(
        ConfigError,
        match=r"^AutoARIMA needs the package statsforecast. Got an installation without it. "
        r"Hint: pip install logsparse\[baselines\]",
    ):
        AutoARIMA(24).fit("data.parquet")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"season": 0}, "season must be at least 1. Got 0. Hint: count its steps"),
        ({"span": 1.5}, "span must be a whole number. Got 1.5. Hint: count the recent steps"),
        ({"processes": -1}, "processes must be at least 1. Got -1. Hint: write 1, or leave it out"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        AutoETS(3, **settings).fit(pl.DataFrame())


@pytest.mark.parametrize("name", ["season", "span", "processes"])
def test_a_setting_beyond_any_machine_is_refused(name: str) -> None:
    settings: dict[str, Any] = {name: 10**20}
    with pytest.raises(ConfigError, match=rf"^{name} must be at most 1000000. Got 1000"):
        AutoETS(3, **settings).check()


class AutoEts(AutoETS):
    """As it was called in 0.1.0."""


def test_a_folder_that_calls_it_by_its_former_name_loads(tmp_path: Path) -> None:
    model = AutoEts(3).fit(panel(np.arange(60)))
    model.save(tmp_path / "model")
    loaded = ls.load(tmp_path / "model")
    assert type(loaded) is AutoETS
    assert loaded.predict().equals(model.predict())
