"""LogSparse as a user sees it: fit, predict, save, load, fine-tune, and unusual histories."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

import logsparse as ls
import small
from logsparse.data.frame import to_panel

LEVELS = [0.1, 0.5, 0.9]
QUANTILES = ["q0.1", "q0.5", "q0.9"]


def frame(series: int = 4, steps: int = 90, *, first: int = 0, seed: int = 0) -> pl.DataFrame:
    """Hourly waves of different sizes; series are called s0, s1, ..."""
    rng = np.random.default_rng(seed)
    hours = np.arange(steps)
    tables = []
    for i in range(first, first + series):
        y = 10 * (i + 1) * (2 + np.sin(hours * np.pi / 12) + 0.1 * rng.normal(size=steps))
        ds = np.datetime64("2024-01-01T00:00", "us") + hours.astype("timedelta64[h]")
        tables.append(pl.DataFrame({"unique_id": f"s{i}", "ds": ds, "y": y.astype(np.float32)}))
    return pl.concat(tables)


def quick(model: dict[str, Any] | None = None, **options: Any) -> ls.LogSparse:
    """Two layers, a few steps; 20 paths."""
    config = small.config({"unknown_series": 0.2, "see_missing": True, "lags": (1, 5), **(model or {})}, epochs=1)
    return ls.LogSparse(**{"horizon": 6, "config": config, "samples": 20, "verbose": False, **options})


@pytest.fixture(scope="module")
def fitted() -> ls.LogSparse:
    return quick().fit(frame())


def check_frame(found: pl.DataFrame, ids: list[str], horizon: int = 6) -> None:
    assert found["unique_id"].unique(maintain_order=True).to_list() == ids
    assert len(found) == horizon * len(ids)
    numbers = found.select("mean", *QUANTILES).to_numpy()
    assert np.isfinite(numbers).all()
    assert (np.diff(found.select(QUANTILES).to_numpy(), axis=1) >= 0).all()


def test_forecasts_follow_the_end_of_the_fitted_data(fitted: ls.LogSparse) -> None:
    found = fitted.predict(quantiles=LEVELS)
    check_frame(found, ["s0", "s1", "s2", "s3"])
    last = frame()["ds"].max()
    assert found["ds"].min() == last + pl.Series([3_600_000_000]).cast(pl.Duration("us"))[0]


def test_the_same_call_twice_gives_the_same_bits(fitted: ls.LogSparse) -> None:
    assert fitted.predict().equals(fitted.predict())
    assert quick().fit(frame()).predict().equals(quick().fit(frame()).predict())
    assert not quick(seed=1).fit(frame()).predict().equals(fitted.predict())


def test_a_series_has_the_same_forecast_alone_and_among_others(fitted: ls.LogSparse) -> None:
    among = fitted.predict(frame(), quantiles=LEVELS).filter(pl.col("unique_id") == "s2")
    alone = fitted.predict(frame().filter(pl.col("unique_id") == "s2"), quantiles=LEVELS)
    np.testing.assert_allclose(alone.select(QUANTILES).to_numpy(), among.select(QUANTILES).to_numpy(), rtol=1e-5)


def test_forecast_and_predict_say_the_same_and_forecast_has_the_samples(fitted: ls.LogSparse) -> None:
    forecast = fitted.forecast(quantiles=LEVELS)
    assert forecast.samples is not None
    assert forecast.samples.shape == (4, 20, 6)
    assert forecast.frame().equals(fitted.predict(quantiles=LEVELS))
    assert forecast.quantile(0.77).shape == (4, 6)


def test_more_samples_can_be_asked_for(fitted: ls.LogSparse) -> None:
    more = copy.copy(fitted)
    more.samples = 2500
    samples = more.forecast(frame(series=1)).samples
    assert samples is not None
    assert samples.shape == (1, 2500, 6)


def test_a_second_fit_forgets_the_first(fitted: ls.LogSparse) -> None:
    again = copy.deepcopy(fitted).fit(frame(series=2, first=7))
    check_frame(again.predict(quantiles=LEVELS), ["s7", "s8"])
    assert again.predict().equals(quick().fit(frame(series=2, first=7)).predict())


def with_gaps(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.int_range(pl.len()) % 7 != 3)


def with_nulls(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(y=pl.when(pl.int_range(pl.len()) % 5 == 1).then(None).otherwise(pl.col("y")))


ODD = {
    "a series never seen": frame(series=1, first=9),
    "known and new series": frame(series=3, first=2),
    "shorter than the context": frame(series=2, steps=5),
    "one value": frame(series=1, steps=1),
    "gaps": with_gaps(frame(series=2)),
    "missing values": with_nulls(frame(series=2)),
    "missing values at the end": frame(series=2).with_columns(
        y=pl.when(pl.col("ds") > pl.col("ds").max() - pl.duration(hours=10)).then(None).otherwise(pl.col("y"))
    ),
    "all zero": frame(series=1).with_columns(y=pl.lit(0.0)),
    "constant": frame(series=1).with_columns(y=pl.lit(123.0)),
    "huge": frame(series=1).with_columns(y=pl.col("y") * 1e12),
    "tiny": frame(series=1).with_columns(y=pl.col("y") * 1e-12),
    "as good as zero": frame(series=1).with_columns(y=pl.col("y") * 1e-45),
    "negative": frame(series=1).with_columns(y=-pl.col("y")),
    "one series only": frame(series=1),
    "different ends": pl.concat([frame(series=1), frame(series=1, first=1, steps=50)]),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_histories_get_finite_ordered_quantiles(fitted: ls.LogSparse, name: str) -> None:
    history = ODD[name]
    ids = history["unique_id"].unique(maintain_order=True).to_list()
    check_frame(fitted.predict(history, quantiles=LEVELS), ids)


@pytest.mark.parametrize("name", [n for n in ODD if n not in ("one value", "shorter than the context")])
def test_odd_data_can_be_fitted(name: str) -> None:
    history = ODD[name]
    ids = history["unique_id"].unique(maintain_order=True).to_list()
    check_frame(quick().fit(history).predict(quantiles=LEVELS), ids)


@pytest.mark.parametrize("family", ["zero-inflated", "negative-binomial"])
def test_forecasts_are_not_negative_where_the_likelihood_says_so(family: str) -> None:
    counts = frame().with_columns(y=pl.col("y").round().clip(0) * (pl.int_range(pl.len()) % 3 > 0))
    forecast = quick({"likelihood": family}).fit(counts).forecast(quantiles=[0.01, 0.5])
    assert forecast.samples is not None
    assert forecast.samples.min() >= 0
    assert forecast.quantiles.min() >= 0


def test_values_that_a_likelihood_cannot_have_are_refused_before_training() -> None:
    with pytest.raises(ls.DataError, match=r'"zero-inflated" must be numbers from 0 on. Got -'):
        quick({"likelihood": "zero-inflated"}).fit(ODD["negative"])


def test_new_series_are_forecast_as_unknown_whatever_their_name(fitted: ls.LogSparse) -> None:
    first = frame(series=1, first=9)
    renamed = first.with_columns(unique_id=pl.lit("other"))
    means = [fitted.forecast(table, quantiles=LEVELS) for table in (first, renamed)]
    # Other draws, the same distribution: the quantiles of the first step are exact.
    np.testing.assert_allclose(means[0].quantiles[..., 0], means[1].quantiles[..., 0], rtol=1e-5)


def test_static_categories_are_learned_and_new_ones_are_unknown() -> None:
    kinds = pl.col("unique_id").replace_strict({"s0": "a", "s1": "b", "s2": "a", "s3": "b"})
    table = frame().with_columns(kind=kinds)
    model = quick({"embed_series": False}).fit(table, static=["kind"])
    assert sum("static" in name for name, _ in model.network_.named_parameters()) == 1
    other = model.predict(table.with_columns(kind=pl.lit("b")), quantiles=LEVELS)
    assert not other.equals(model.predict(table, quantiles=LEVELS))
    check_frame(model.predict(table.with_columns(kind=pl.lit("new")), quantiles=LEVELS), ["s0", "s1", "s2", "s3"])


def test_names_of_covariates_that_can_be_read_once_serve_training_and_validation() -> None:
    table, other = (frame(seed=seed).with_columns(price=pl.col("y") / 2) for seed in (0, 1))
    plan = quick().plan(table, validation=other, covariates=(name for name in ["price"]))
    assert list(plan.data.windows.panel.covariates) == ["price"]
    assert list(plan.data.validation_windows.panel.covariates) == ["price"]


def test_known_future_covariates_are_used() -> None:
    table = frame().with_columns(price=pl.int_range(pl.len()).cast(pl.Float32) % 11)
    model = quick().fit(table, covariates=["price"])
    stamps = model.panel_.ends()[0] + 3_600_000_000 * np.arange(1, 7)
    days = pl.DataFrame({"ds": stamps.astype("datetime64[us]")})
    future = table.select("unique_id").unique(maintain_order=True).join(days, how="cross")
    low, high = (model.predict(future=future.with_columns(price=pl.lit(x)), quantiles=LEVELS) for x in (0.0, 10.0))
    check_frame(low, ["s0", "s1", "s2", "s3"])
    assert not low.equals(high)
    with pytest.raises(ls.DataError, match=r"The covariates price must be known for the 6 steps to forecast"):
        model.predict()


@pytest.mark.parametrize("method", ["ancestral", "mean-path"])
def test_backtest_windows_together_equal_windows_one_by_one(method: Any) -> None:
    config = replace(small.config({"lags": (1, 5)}, epochs=1), method=method)
    model = quick(config=config).fit(frame(), until="2024-01-03T12:00")
    together = ls.backtest(model, frame(), windows=4, step=3, quantiles=LEVELS)
    panel = to_panel(frame())
    for number, cutoff in enumerate(together["cutoff"].unique(maintain_order=True)):
        back = 6 + 3 * (3 - number)
        alone = model.predict(panel.cut(panel.lengths - back), quantiles=LEVELS)
        found = together.filter(pl.col("cutoff") == cutoff)
        np.testing.assert_allclose(found.select(QUANTILES), alone.select(QUANTILES), rtol=1e-4, atol=1e-3)


def test_a_saved_model_forecasts_the_same(fitted: ls.LogSparse, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    again = ls.load(tmp_path / "model")
    assert again.predict().equals(fitted.predict())
    assert again.predict(frame(first=2)).equals(fitted.predict(frame(first=2)))
    assert isinstance(again, ls.LogSparse)
    assert again.settings() == fitted.settings()
    assert again.history_.rows == fitted.history_.rows


def test_a_loaded_model_refuses_to_be_tested_on_what_it_learned(fitted: ls.LogSparse, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    with pytest.raises(ls.DataError, match="A backtest must begin after the model's training ended"):
        ls.backtest(ls.load(tmp_path / "model"), frame(), windows=2)


def test_a_model_saved_without_history_must_be_given_one(fitted: ls.LogSparse, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model", history=False)
    assert not (tmp_path / "model" / "history.safetensors").exists()
    again = ls.load(tmp_path / "model")
    with pytest.raises(ls.DataError, match=r"saved without its history must be given one to forecast. Got no history"):
        again.predict()
    assert again.predict(frame()).equals(fitted.predict(frame()))


def test_a_model_of_the_first_format_is_read_for_good() -> None:
    fixtures = Path(__file__).parent / "fixtures"
    found = ls.load(fixtures / "logsparse_format_1").predict(quantiles=LEVELS)
    written = pl.read_csv(fixtures / "logsparse_format_1_forecast.csv", try_parse_dates=True)
    assert found["unique_id"].to_list() == written["unique_id"].to_list()
    assert found["ds"].to_list() == written["ds"].to_list()
    np.testing.assert_allclose(found.select("mean", *QUANTILES), written.select("mean", *QUANTILES), rtol=1e-3)


def test_settings_can_be_changed_on_loading(fitted: ls.LogSparse, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    samples = ls.load(tmp_path / "model", samples=3, device="cpu").forecast().samples
    assert samples is not None
    assert samples.shape[1] == 3


def test_fine_tuning_goes_on_with_new_series(fitted: ls.LogSparse) -> None:
    model = copy.deepcopy(fitted)
    before = {name: weight.clone() for name, weight in model.network_.state_dict().items()}
    model.fine_tune(frame(series=3, first=3, steps=95))
    check_frame(model.predict(quantiles=LEVELS), ["s3", "s4", "s5"])
    assert model.series_index_.ids == ("s0", "s1", "s2", "s3", "s4", "s5")
    table = model.network_.state_dict()["series.weight"]
    assert table.shape[0] == 7
    # Its steps are small: the weights are near to what they were, and s4 began as the unknown.
    assert (table[:5] - before["series.weight"]).abs().max() < 0.05
    assert 0 < (table[5] - before["series.weight"][0]).abs().max() < 0.05


def test_an_unfitted_model_is_refused(tmp_path: Path) -> None:
    for call in (
        lambda: quick().predict(),
        lambda: quick().save(tmp_path / "x"),
        lambda: quick().fine_tune(frame()),
        lambda: quick().learned_until(),
        lambda: ls.SeasonalNaive(3).learned_until(),
    ):
        with pytest.raises(ls.NotFittedError, match=" must be fitted before it forecasts"):
            call()


def test_without_a_config_the_settings_follow_from_the_data() -> None:
    model = ls.LogSparse(horizon=4, verbose=False)
    panel = to_panel(frame())
    tiny = replace(small.config(epochs=1), horizon=4)
    assert model.config is None
    model.config = tiny
    model.fit(panel)
    assert model.config_ == tiny


def test_a_run_that_was_interrupted_is_taken_up_from_its_folder(tmp_path: Path) -> None:
    config = small.config(epochs=3)
    whole = quick(config=config).fit(frame())
    again = quick(config=config).fit(frame(), folder=str(tmp_path))
    assert (tmp_path / "seed-0").is_dir()
    resumed = quick(config=config).fit(frame(), folder=tmp_path)
    for other in (again, resumed):
        assert all(
            torch.equal(a, b)
            for a, b in zip(whole.network_.state_dict().values(), other.network_.state_dict().values(), strict=True)
        )


def test_the_same_seed_gives_the_same_weights_and_with_other_threads_nearly_the_same() -> None:
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 1, 2):
            torch.set_num_threads(count)
            found.append(torch.cat([weight.flatten() for weight in quick().fit(frame()).network_.parameters()]))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(found[2], found[0], rtol=0, atol=1e-4)


def test_the_best_of_several_seeds_is_kept() -> None:
    config = small.config(epochs=1, seeds=3)
    losses = [quick(config=small.config(epochs=1), seed=seed).fit(frame()).history_.best for seed in range(3)]
    found = quick(config=config).fit(frame()).history_.best
    assert found == min(best for best in losses if best is not None)


def test_a_pattern_that_cannot_reach_its_window_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    shallow = quick(config=small.config(epochs=1, seeds=2))
    shallow.plan(to_panel(frame()))
    shallow.fit(frame())
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.endswith("logsparse(base=2): it would take 4 (model.layers).")


def test_a_network_without_attention_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    ls.DeepAR(6, config=small.config(epochs=1), samples=5, verbose=False).fit(frame())
    assert not caplog.records


@pytest.mark.parametrize("size", [1e20, 1e25, 9e29])
@pytest.mark.parametrize("name", ["gaussian", "student-t", "zero-inflated"])
def test_values_of_any_size_that_is_allowed_have_finite_forecasts_in_order(name: str, size: float) -> None:
    table = frame().with_columns(pl.col("y") / pl.col("y").max() * size)
    found = quick({"likelihood": name, "scale": "mean"}).fit(table).forecast(quantiles=[1e-6, 0.5, 1 - 1e-6])
    assert np.isfinite(found.mean).all()
    assert (np.diff(found.quantiles, axis=1) >= 0).all()
    assert found.quantiles.max() > size / 100


@pytest.mark.parametrize("value", [1.1e30, -3e38])
def test_values_too_large_for_a_network_are_refused_by_their_series(value: float) -> None:
    good = frame(2, first=1)
    bad = good.with_columns(pl.when(pl.col("y") == pl.col("y").max()).then(value).otherwise("y").alias("y"))
    rule = r"^A network must be given values of at most 1e30 in size. Got .*e\+3\d in series 's2'. Hint: divide"
    model = quick().fit(good)
    for refused in (
        lambda: quick().fit(bad),
        lambda: quick().fit(good, validation=bad),
        lambda: model.predict(bad),
        lambda: model.attention(bad),
        lambda: model.fine_tune(bad),
    ):
        with pytest.raises(ls.DataError, match=rule):
            refused()


@pytest.mark.parametrize("value", [1e30, -3e38])
def test_a_covariate_far_from_what_was_learned_leaves_the_forecast_finite(value: float) -> None:
    table = frame().with_columns(price=pl.col("y") / 100)
    ahead = table.group_by("unique_id").tail(6).with_columns(pl.col("ds") + pl.duration(hours=6), price=pl.lit(value))
    found = quick().fit(table, covariates=["price"]).forecast(future=ahead)
    assert np.isfinite(found.quantiles).all()


def test_a_giant_before_the_window_that_only_a_lag_can_see_does_no_harm() -> None:
    hours = np.datetime64("2024-01-01T00", "us") + np.arange(80).astype("timedelta64[h]")
    y = 2 + np.sin(np.arange(80) * np.pi / 12)
    y[50] = 1e30
    table = pl.DataFrame({"unique_id": "a", "ds": hours, "y": y})
    # The context ends before the giant; lag 28 reaches it from within the horizon.
    model = quick({"lags": (1, 28)}).fit(table)
    assert np.isfinite(model.forecast(table).quantiles).all()


def test_without_samples_a_forecast_draws_what_its_quantiles_need_and_keeps_none(
    fitted: ls.LogSparse, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model")
    usual = ls.load(tmp_path / "model", samples=None)
    assert isinstance(usual, ls.LogSparse)
    for levels in ([0.1, 0.9], [0.02]):
        forecast = usual.forecast(quantiles=levels)
        assert forecast.samples is None
        asked = usual.network_.paths_needed(levels, usual.method)
        given = ls.load(tmp_path / "model", samples=asked)
        np.testing.assert_array_equal(forecast.quantiles, given.forecast(quantiles=levels).quantiles)


def test_a_saved_number_of_samples_is_kept(fitted: ls.LogSparse, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = ls.load(tmp_path / "model")
    assert isinstance(loaded, ls.LogSparse)
    assert loaded.samples == 20
    assert ls.LogSparse(6).samples is None


def by_both(method: Any = "two-way") -> ls.LogSparse:
    config = replace(small.config({"see_missing": True, "lags": (1, 3)}, epochs=1), method=method)
    return ls.LogSparse(6, config=config, verbose=False).fit(frame())


def test_a_network_trained_for_both_ways_forecasts_directly_on_request(tmp_path: Path) -> None:
    model = by_both()
    model.save(tmp_path / "model")
    loaded = ls.load(tmp_path / "model", method="direct")
    usual = model.predict()
    model.method = "direct"
    assert_frame_equal(loaded.predict(), model.predict())
    assert not usual.equals(model.predict())
    # It is saved with the model, and the way back is open.
    model.save(tmp_path / "model")
    again = ls.load(tmp_path / "model")
    assert isinstance(again, ls.LogSparse)
    assert again.method == "direct"
    again.method = "two-way"
    assert_frame_equal(again.predict(), usual)


def test_direct_is_trained_as_two_ways_are() -> None:
    one, other = by_both("direct"), by_both("two-way")
    other.method = "direct"
    assert_frame_equal(one.predict(), other.predict(), check_exact=True)


@pytest.mark.parametrize(
    ("trained", "asked"), [("ancestral", "direct"), ("mean-path", "two-way"), ("direct", "ancestral")]
)
def test_a_method_that_the_training_does_not_serve_is_refused(trained: str, asked: Any, tmp_path: Path) -> None:
    model = by_both(trained)
    served = "two-way and direct" if trained == "direct" else "ancestral and mean-path"
    text = f"as it was trained to: .* Got {asked} of a network trained for {served}. Hint: fit it with method='{asked}'"
    with pytest.raises(ls.ConfigError, match=text):
        model.method = asked
    model.save(tmp_path / "model")
    with pytest.raises(ls.ConfigError, match=text):
        ls.load(tmp_path / "model", method=asked)
    with pytest.raises(ls.ConfigError, match="method must be one of"):
        ls.load(tmp_path / "model", method="directly")


def test_the_paths_of_a_direct_forecast_are_refused_and_its_frame_needs_none() -> None:
    model = by_both("direct")
    quantiles = model.predict()
    model.samples = 30
    assert_frame_equal(model.predict(), quantiles, check_exact=True)
    with pytest.raises(ls.ConfigError, match=r"no sample paths. Got samples=30. Hint: set samples to None"):
        model.forecast()


def test_the_method_of_what_is_not_fitted_is_not_known() -> None:
    with pytest.raises(ls.LogsparseError, match="must be fitted"):
        _ = ls.LogSparse(6).method


def test_a_model_fitted_on_a_panel_with_covariates_is_loaded_and_reads_the_future_of_a_frame(tmp_path: Path) -> None:
    hours = np.arange("2024-01-01", "2024-02-01", dtype="datetime64[h]").astype("datetime64[us]")
    wave = np.sin(np.arange(len(hours)) * np.pi / 12)
    noise = np.random.default_rng(0).normal(size=len(hours))
    frame = pl.DataFrame({"unique_id": "a", "ds": hours, "y": 10 + wave + noise, "x": wave, "seen": noise, "kind": "b"})
    history, future = frame[:-6], frame[-6:].drop("y", "seen", "kind")
    named: Any = {"covariates": ["x"], "past_covariates": ["seen"], "static": ["kind"]}
    settings: Any = {"context": 24, "steps": 2, "layers": 1, "width": 8, "heads": 2, "verbose": False}
    model = ls.LogSparse(6, **settings).fit(ls.to_panel(history, **named))
    assert model.columns_ == named
    model.save(tmp_path / "model")
    loaded = ls.LogSparse.load(tmp_path / "model")
    assert loaded.predict(future=future).equals(
        ls.LogSparse(6, **settings).fit(history, **named).predict(future=future)
    )
