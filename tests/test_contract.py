"""What every forecaster promises: one test per promise, run for every name in the registry and for an ensemble."""

from __future__ import annotations

import copy
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import logsparse as ls
import small
from logsparse.cli import app
from logsparse.errors import ConfigError, DataError, NotFittedError
from logsparse.forecast import Forecaster
from logsparse.registry import NAMES, class_of, named

# Trained for a few steps only, so that the accuracy of their forecasts is not tested. They need windows to learn from.
NETWORKS = {name for name in NAMES if issubclass(class_of(name), ls.LogSparse)}
ENSEMBLE = "ets+seasonal-naive"
# Its series form one matrix: they must cover one span, and new ones cannot be forecast.
MATRIX = {"trmf"}
# What every forecaster has learned: the data, and how to read their columns.
COMMON = {"panel_", "columns_"}

HORIZON = 9  # more than one season of days
BEGIN = datetime(2024, 1, 1)  # noqa: DTZ001


def make(name: str, horizon: int = HORIZON) -> Forecaster:
    """With its default settings; a network with two small layers and a few steps of training."""
    if name == ENSEMBLE:
        return ls.Ensemble(name.split("+"), horizon)
    if name not in NETWORKS:
        return named(name, horizon)
    config = replace(small.config({"lags": (1, 7)}, epochs=1), context=14, horizon=max(horizon, 1))
    return named(name, horizon, config=config if horizon else None, samples=20, verbose=False)


def days(series: str, values: Any, first: int = 0) -> pl.DataFrame:
    """A long frame of one series, `first` days after the first of January."""
    times = [BEGIN + timedelta(days=first + day) for day in range(len(values))]
    return pl.DataFrame({"unique_id": series, "ds": times, "y": np.asarray(values, float)}).with_columns(
        pl.col("y").fill_nan(None)
    )


def weeks(count: int = 5, seed: int = 0) -> Any:
    """Days that repeat by the week, with noise."""
    rng = np.random.default_rng(seed)
    return 20 + np.tile([0, 3, 5, 4, 2, 8, 9], count) + rng.normal(size=7 * count)


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return pl.concat([days("b", weeks(seed=1)), days("a", 10 * weeks(seed=2))])


@pytest.fixture(params=[*NAMES, ENSEMBLE], scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def fitted(name: str, frame: pl.DataFrame) -> Forecaster:
    """Fitted once for all the tests that only ask it."""
    return make(name).fit(frame)


def test_what_is_learned_ends_in_an_underscore_and_is_plain(name: str, fitted: Forecaster) -> None:
    learned = {key for key in vars(fitted) if key not in vars(make(name)) and key[0] != "_"}
    assert all(key.endswith("_") for key in learned), learned
    assert learned >= COMMON
    facts, arrays = fitted._state()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert all(isinstance(array, np.ndarray) and array.dtype.kind in "fiub" for array in arrays.values())


def test_predicting_before_fitting_names_the_class(name: str) -> None:
    kind = type(make(name)).__name__
    with pytest.raises(NotFittedError, match=rf"^{kind} must be fitted .* Hint: call {kind}\(...\).fit\(frame\) first"):
        make(name).predict()


def test_several_threads_may_predict_with_one_model(frame: pl.DataFrame, fitted: Forecaster) -> None:
    expected = [fitted.predict(), fitted.predict(frame.filter(pl.col("unique_id") == "a"))]
    if expected[1].height == expected[0].height:
        pytest.skip("this forecaster takes its series together only")
    with ThreadPoolExecutor(6) as pool:
        asked = [None, frame.filter(pl.col("unique_id") == "a")] * 6
        found = list(pool.map(fitted.predict, asked))
    for number, table in enumerate(found):
        assert_frame_equal(table, expected[number % 2], check_exact=True)


def test_a_horizon_below_one_is_refused_before_data_are_read(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^horizon must be at least 1. Got 0"):
        make(name, 0).fit("no such file")


def test_the_same_data_give_the_same_forecast_to_the_last_bit_and_leave_the_settings_alone(
    name: str, frame: pl.DataFrame, fitted: Forecaster
) -> None:
    again = make(name)
    settings = copy.deepcopy(vars(again))
    assert again.fit(frame) is again
    assert {key: vars(again)[key] for key in settings} == settings
    assert_frame_equal(again.predict(), fitted.predict(), check_exact=True)
    assert_frame_equal(fitted.predict(), fitted.predict(), check_exact=True)


def test_a_second_fit_forgets_the_first(name: str, frame: pl.DataFrame, fitted: Forecaster) -> None:
    twice = make(name).fit(days("z", np.ones(20))).fit(frame)
    assert set(vars(twice)) == set(vars(fitted))
    assert_frame_equal(twice.predict(), fitted.predict(), check_exact=True)


def test_a_copy_forecasts_the_same_and_goes_its_own_way(fitted: Forecaster) -> None:
    before = fitted.predict()
    twin = copy.deepcopy(fitted)
    assert_frame_equal(twin.predict(), before, check_exact=True)
    twin.fit(days("z", np.ones(20)))
    assert_frame_equal(fitted.predict(), before, check_exact=True)


def test_the_same_kind_of_frame_comes_back(frame: pl.DataFrame, fitted: Forecaster) -> None:
    for given in (frame, pd.DataFrame(frame.to_dict(as_series=False)), frame.to_arrow()):
        found: Any = fitted.predict(given)
        assert isinstance(found, type(given))
        assert_frame_equal(pl.DataFrame(found), fitted.predict(), check_dtypes=False, check_exact=True)


def test_the_frame_names_series_times_mean_and_quantiles(fitted: Forecaster) -> None:
    found = fitted.predict()
    levels = [0.5] if fitted.point_only else [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert found.columns == ["unique_id", "ds", "mean", *(f"q{level}" for level in levels)]
    assert found["unique_id"].unique(maintain_order=True).to_list() == ["b", "a"], "in the order of the frame"
    assert found.null_count().sum_horizontal().item() == 0


@pytest.mark.parametrize("horizon", [1, 13])
def test_as_many_steps_are_forecast_as_the_horizon_has(name: str, horizon: int) -> None:
    found = make(name, horizon).fit(days("a", weeks(4))).predict()
    assert found["ds"].to_list() == [BEGIN + timedelta(days=28 + step) for step in range(horizon)]


def finite(forecaster: Forecaster, history: Any = None) -> ls.Forecast:
    found = forecaster.forecast(history)
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.quantiles).all()
    return found


def test_quantiles_never_cross_at_any_levels(fitted: Forecaster) -> None:
    if fitted.point_only:
        with pytest.raises(
            ConfigError,
            match=r"^\w+ forecasts one value per step, which is its median. Got quantiles 0.5, 0.9. Hint: leave",
        ):
            fitted.predict(quantiles=[0.9, 0.5])
        assert fitted.predict(quantiles=[0.5]).columns[-1] == "q0.5"
        return
    forecast = fitted.forecast(quantiles=[0.001, 0.025, 0.3, 0.5, 0.51, 0.975, 0.999])
    assert forecast.levels == (0.001, 0.025, 0.3, 0.5, 0.51, 0.975, 0.999)
    assert (np.diff(forecast.quantiles, axis=1) >= 0).all()
    assert (forecast.quantiles[:, 0] < forecast.quantiles[:, -1]).all(), "noise must not be foreseen with certainty"


def test_a_pattern_that_repeats_is_forecast_nearer_than_by_its_mean(
    name: str, frame: pl.DataFrame, fitted: Forecaster
) -> None:
    if name in NETWORKS:
        pytest.skip("a few steps of training do not learn the pattern")
    truth = 20 + np.tile([0, 3, 5, 4, 2, 8, 9], 2)[:HORIZON]
    median = fitted.forecast(quantiles=[0.5]).quantile(0.5)
    for row, scale in enumerate((1, 10)):
        flat = float(frame["y"].to_numpy()[row * 35 : (row + 1) * 35].mean())
        assert np.abs(median[row] - scale * truth).mean() < 0.7 * np.abs(flat - scale * truth).mean()


def test_missing_values_anywhere_do_no_harm(name: str) -> None:
    values, late = weeks(seed=4), weeks(seed=5)
    values[[3, 20, 21, 22]] = np.nan
    late[-3:-1] = np.nan
    found = finite(make(name).fit(pl.concat([days("a", values), days("b", late)])))
    assert name in NETWORKS or ((found.mean > 10) & (found.mean < 40)).all(), "a hole is not a zero"


def test_series_of_different_spans_are_forecast_from_their_own_ends(name: str) -> None:
    uneven = pl.concat([days("a", weeks(4, seed=6)), days("late", weeks(3, seed=7), first=30)])
    if name in MATRIX:
        with pytest.raises(
            DataError, match=r"needs series of one span.* Got series 'a' from .* to .* and 'late'.* Hint: cut them"
        ):
            make(name).fit(uneven)
        return
    found = finite(make(name).fit(uneven)).frame()
    firsts = found.group_by("unique_id", maintain_order=True).agg(pl.col("ds").min())
    assert firsts["ds"].dt.to_string("%m-%d").to_list() == ["01-29", "02-21"]


def test_constant_series_stay_what_they_are(name: str) -> None:
    found = finite(make(name).fit(pl.concat([days("a", np.full(40, 3.0)), days("zero", np.zeros(40))])))
    if name not in NETWORKS:
        np.testing.assert_allclose(found.mean, np.repeat([[3.0], [0.0]], HORIZON, axis=1), atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 5, 15])
def test_one_short_series_is_enough(name: str, length: int) -> None:
    values = weeks(3, seed=8)[:length]
    if name in NETWORKS:
        with pytest.raises(
            DataError, match=r"At least one series must have .* Got 1 series, .* Hint: shorten the hori"
        ):
            make(name).fit(days("only", values), freq="D")
        return
    found = finite(make(name).fit(days("only", values), freq="D"))
    assert found.mean.shape == (1, HORIZON)
    assert (np.abs(found.mean - values.mean()) < 20).all()


def test_a_later_history_moves_the_start_without_a_new_fit(name: str, frame: pl.DataFrame, fitted: Forecaster) -> None:
    cut = BEGIN + timedelta(days=24)
    early = make(name).fit(frame, until=cut)
    learned = copy.deepcopy(early._state())
    before, moved = early.predict(), early.predict(frame)
    assert before["ds"].min() == cut + timedelta(days=1)
    assert moved["ds"].to_list() == fitted.predict()["ds"].to_list()
    assert not moved["mean"].equals(before["mean"])
    np.testing.assert_equal(early._state(), learned, err_msg="forecasting changed what was learned")
    fresh = make(name).fit(frame.filter(pl.col("ds") <= cut))
    assert_frame_equal(fresh.predict(), before, check_exact=True)


def test_a_series_that_was_not_fitted_is_forecast_or_refused_by_name(name: str, fitted: Forecaster) -> None:
    other = days("new", weeks(4, seed=9))
    if name in MATRIX:
        with pytest.raises(DataError, match=r"the series that it was fitted on.* Got series 'new'. Hint: fit with"):
            fitted.predict(other)
        return
    found = finite(fitted, other)
    assert found.panel.ids == ("new",)
    assert name in NETWORKS or ((found.mean > 10) & (found.mean < 40)).all()


def test_a_history_of_another_step_is_refused(fitted: Forecaster) -> None:
    hours = pl.DataFrame({"unique_id": "a", "ds": pl.datetime_range(
        pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 5), "1h", eager=True), "y": 1.0})  # fmt: skip
    with pytest.raises(DataError, match=r"must have the step that was fitted. Got steps of h after d. Hint: resample"):
        fitted.predict(hours)


def test_a_backtest_rolls_and_sees_nothing_after_its_cutoffs(name: str) -> None:
    frame = days("a", weeks(seed=10))
    results = ls.backtest(make(name, 3), frame, windows=3)
    assert results.height == 3 * 3
    assert (results["cutoff"] < results["ds"]).all()
    assert name in NETWORKS or 0 < ls.score(results)["R0.5"][0] < 0.3
    poisoned = frame.with_columns(pl.when(pl.col("ds").rank() > 32).then(1e6).otherwise("y").alias("y"))
    assert_frame_equal(ls.backtest(make(name, 3), poisoned, windows=3).drop("y"), results.drop("y"), check_exact=True)


def test_the_command_knows_it_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert name == ENSEMBLE or type(named(name, 3)) is type(make(name, 3))
    monkeypatch.setattr("logsparse.registry.named", make)
    days("a", weeks(4)).write_parquet(tmp_path / "data.parquet")
    asked = ["backtest", name, str(tmp_path / "data.parquet"), "--horizon", "3", "-o", str(tmp_path / "out.parquet")]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0, found.output
    assert "R0.5" in found.output
    assert pl.read_parquet(tmp_path / "out.parquet").height == 3


# Every setting there is, in the types of numpy; the narrow ones overflow if they are kept.
NUMPY: dict[str, Any] = {
    "horizon": np.uint8(HORIZON),
    "seed": np.int32(5),
    "samples": np.uint8(20),
    "context": np.int16(14),
    "minutes": np.float32(5),
    "steps": np.uint8(3),
    "device": np.str_("cpu"),
    "verbose": np.False_,
    "season": np.uint8(7),
    "trend": np.float32(0.5),
    "span": np.int16(200),
    "processes": np.uint8(1),
    "rank": np.uint8(3),
    "lags": np.array([1, 7], np.uint8),
    "temporal": np.float16(1),
    "ridge": np.float32(1),
    "sweeps": np.uint8(20),
    "members": np.array(["ets", "seasonal-naive"]),
    "windows": np.uint8(2),
}


def test_settings_in_the_types_of_numpy_train_save_and_load_like_plain_ones(
    name: str, frame: pl.DataFrame, tmp_path: Path
) -> None:
    usual = make(name).get_params()
    kind = type(make(name))
    config = {"config": usual["config"]} if "config" in usual else {}
    asked = {key: NUMPY[key] for key in usual if key != "config"}
    plain = kind(**{key: value.tolist() for key, value in asked.items()}, **config).fit(frame)
    given = kind(**asked, **config)
    assert all(vars(given)[key] is value for key, value in asked.items()), "a constructor only stores"
    given.fit(frame)
    assert_frame_equal(given.predict(), plain.predict(), check_exact=True)
    given.save(tmp_path / "model")
    loaded = ls.load(tmp_path / "model")
    assert loaded.settings() == given.settings() == plain.settings()
    assert [type(value) for value in vars(loaded).values()] == [type(vars(given)[key]) for key in vars(loaded)]
    assert_frame_equal(loaded.predict(), plain.predict(), check_exact=True)


def test_a_verbose_that_is_not_true_or_false_is_refused(name: str, frame: pl.DataFrame) -> None:
    forecaster = make(name)
    if "verbose" not in forecaster.get_params():
        pytest.skip("this forecaster shows no progress")
    with pytest.raises(ConfigError, match=r"^verbose must be True or False. Got 'no'. Hint: "):
        forecaster.set_params(verbose="no").fit(frame)


def test_parameters_are_those_of_the_constructor_and_a_clone_has_copies_of_them(name: str, fitted: Forecaster) -> None:
    params = fitted.get_params(deep=False)
    fresh = make(name)
    assert params == fresh.get_params() == {key: vars(fresh)[key] for key in vars(fresh)}
    twin = fitted.clone()
    assert type(twin) is type(fitted)
    assert twin.get_params() == params
    assert not hasattr(twin, "panel_")
    # What scikit-learn's clone relies on: the constructor stores its arguments as they are.
    again = type(fitted)(**params)
    assert all(again.get_params()[key] is value for key, value in params.items())
    assert twin.set_params(horizon=2) is twin
    assert (twin.horizon, fitted.horizon) == (2, HORIZON)
    with pytest.raises(ConfigError, match=r"has the parameters .*horizon, .* Got .horizn.. Hint: did you mean .hori"):
        twin.set_params(horizn=2)


def test_the_clone_of_scikit_learn_works(fitted: Forecaster) -> None:
    base = pytest.importorskip("sklearn.base")
    twin = base.clone(fitted)
    assert type(twin) is type(fitted)
    assert twin.get_params() == fitted.get_params()


def test_the_repr_shows_settings_and_after_fitting_what_was_learned(name: str, fitted: Forecaster) -> None:
    fresh, kind = make(name), type(fitted).__name__
    assert repr(fresh).startswith(f"{kind}(")
    assert f"horizon={HORIZON}" in repr(fresh)
    assert "fitted" not in repr(fresh)
    assert f"{fresh!r} fitted: 2 series, step d" in repr(fitted)
    assert ("parameters, 3 steps trained, validation loss " in repr(fitted)) == (name in NETWORKS)
    assert "<td>no</td>" in fresh._repr_html_()
    assert "2 series, step d" in fitted._repr_html_()


def test_what_was_saved_and_loaded_is_as_it_was(
    name: str, frame: pl.DataFrame, fitted: Forecaster, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model")
    loaded = ls.load(tmp_path / "model")
    assert type(loaded) is type(fitted)
    assert loaded.settings() == fitted.settings()
    assert set(vars(loaded)) >= {key for key in vars(fitted) if key[0] != "_"}
    assert_frame_equal(loaded.predict(), fitted.predict(), check_exact=True)
    later = pl.concat([frame, *(days(series, [30.0, 31.0], first=35) for series in ("b", "a"))])
    assert_frame_equal(loaded.predict(later), fitted.predict(later), check_exact=True)
    if name not in MATRIX:
        other = days("new", weeks(3, seed=9))
        assert_frame_equal(loaded.predict(other), fitted.predict(other), check_exact=True)


def test_a_shorter_horizon_gives_the_first_steps_of_the_same_forecast(fitted: Forecaster, tmp_path: Path) -> None:
    whole = fitted.predict()
    first = whole.group_by("unique_id", maintain_order=True).head(4)
    assert_frame_equal(fitted.predict(horizon=4), first, check_exact=True)
    forecast = fitted.forecast(horizon=4)
    np.testing.assert_array_equal(forecast.mean, fitted.forecast().mean[:, :4])
    assert forecast.samples is None or forecast.samples.shape[2] == 4
    with pytest.raises(ConfigError, match=r"at most the 9 steps that the model was fitted for. Got a horizon of 10. "):
        fitted.predict(horizon=10)
    with pytest.raises(ConfigError, match=r"^horizon must be at least 1. Got 0"):
        fitted.forecast(horizon=0)
    fitted.save(tmp_path / "model")
    asked = ["predict", str(tmp_path / "model"), "--horizon", "4", "-o", str(tmp_path / "out.parquet")]
    found = CliRunner().invoke(app, asked)
    assert (found.exit_code, "steps    4, from" in found.output) == (0, True), found.output
    assert_frame_equal(pl.read_parquet(tmp_path / "out.parquet"), first, check_exact=True)


def test_the_command_forecasts_from_a_saved_model(fitted: Forecaster, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    found = CliRunner().invoke(app, ["predict", str(tmp_path / "model"), "-o", str(tmp_path / "out.parquet")])
    assert found.exit_code == 0, found.output
    assert_frame_equal(pl.read_parquet(tmp_path / "out.parquet"), fitted.predict(), check_exact=True)


def test_what_was_saved_without_history_forecasts_from_one_that_is_given(
    frame: pl.DataFrame, fitted: Forecaster, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model", history=False)
    loaded = ls.load(tmp_path / "model")
    with pytest.raises(DataError, match=r"saved without its history must be given one to forecast. Got no history. Hi"):
        loaded.predict()
    assert_frame_equal(loaded.predict(frame), fitted.predict(frame), check_exact=True)


def test_saving_before_fitting_names_the_class(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match=rf"^{type(make(name)).__name__} must be fitted"):
        make(name).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
