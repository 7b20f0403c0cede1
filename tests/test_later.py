"""Data after a fit: series that only the future has are forecast from their columns or refused; missing columns."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
import small
from logsparse.baselines.naive import SeasonalNaive
from logsparse.data.later import ids_like, join_future

LEVELS = {"small": 10.0, "medium": 60.0, "large": 300.0}
DAYS = np.datetime64("2024-01-01", "us") + np.arange(90).astype("timedelta64[D]")
LAST = pl.lit(DAYS[79])
SCALES = [("gaussian", "mean"), ("student-t", "deviation")]


def items(prefix: str, count: int, seed: int) -> pl.DataFrame:
    """Daily sales; the level depends on the kind of an item, and a promotion adds half of it."""
    rng = np.random.default_rng(seed)
    tables = []
    for kind, level in LEVELS.items():
        for number in range(count):
            promo = rng.random(len(DAYS)) < 0.3
            noise = 1 + 0.1 * rng.normal(size=len(DAYS))
            y = level * np.exp(0.1 * rng.normal()) * (1 + 0.5 * promo) * noise
            columns = {"ds": DAYS, "y": y, "promo": promo.astype(float), "kind": kind}
            tables.append(pl.DataFrame({"unique_id": f"{prefix}-{kind}-{number}", **columns}))
    return pl.concat(tables)


def past(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("ds") <= LAST)


def ahead(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("ds") > LAST)


def model(likelihood: str = "student-t", scale: str = "deviation", **train: Any) -> ls.LogSparse:
    family = {"likelihood": likelihood, "scale": scale}
    inputs = {"see_missing": True, "anchor": True, "unknown_series": 0.1, "embed_series": False, "dropout": 0.0}
    network = {"width": 16, "head_width": "split", "norm": "pre", "hidden_history": 0.3, **inputs, **family}
    config = small.config(network, **{"epochs": 1, **train})
    config = replace(config, horizon=10, context=20, method="two-way", features=("weekday",))
    return ls.LogSparse(horizon=10, config=config, verbose=False)


OLD, NEW = items("old", 6, 0), items("new", 4, 1)


@pytest.fixture(scope="module")
def trained() -> ls.LogSparse:
    course: dict[str, Any] = {
        "steps_per_epoch": 250,
        "batch": 32,
        "lr": 5e-3,
        "schedule": "one-cycle",
        "optimiser": "adamw",
    }
    rest: dict[str, Any] = {"loss_on": "both", "weighted": False, "validate_every": 50}
    return model(**course, **rest).fit(past(OLD), covariates=["promo"], static=["kind"])


@pytest.fixture(scope="module")
def quick() -> ls.LogSparse:
    return model().fit(past(OLD), static=["kind"])


def test_new_items_are_forecast_near_the_level_of_their_kind(trained: ls.LogSparse) -> None:
    found = trained.predict(future=ahead(pl.concat([OLD, NEW])).drop("y"))
    assert found["unique_id"].n_unique() == 30
    cold = found.join(NEW, on=["unique_id", "ds"])
    assert len(cold) == 12 * 10
    error = (cold["y"] - cold["mean"]).abs().mean()
    by_global_mean = (cold["y"] - past(OLD)["y"].mean()).abs().mean()
    by_kind = past(OLD).group_by("kind").agg(level=pl.col("y").mean())
    by_kind_mean = cold.join(by_kind, on="kind").select((pl.col("y") - pl.col("level")).abs().mean()).item()
    assert isinstance(error, float)
    assert error < 0.3 * by_global_mean
    # Promotions are known in advance, and used.
    assert error < by_kind_mean
    inside = cold.select(pl.col("y").is_between(pl.col("q0.1"), pl.col("q0.9")).mean()).item()
    assert 0.6 < inside < 0.97


def test_known_series_are_forecast_as_without_the_new_ones(trained: ls.LogSparse) -> None:
    alone = trained.predict(future=ahead(OLD).drop("y"))
    among = trained.predict(future=ahead(pl.concat([NEW, OLD])).drop("y"))
    beside = among.filter(pl.col("unique_id").str.starts_with("old"))
    np.testing.assert_allclose(beside.select("mean", "q0.1").to_numpy(), alone.select("mean", "q0.1").to_numpy(), 1e-4)


@pytest.mark.parametrize(("likelihood", "scale"), SCALES)
def test_the_forecast_of_a_new_series_grows_with_the_unit_of_the_data(likelihood: str, scale: str) -> None:
    found = []
    for unit in (1, 1000):
        old = past(OLD).with_columns(pl.col("y") * unit)
        fitted = model(likelihood, scale).fit(old, static=["kind"])
        found.append(fitted.predict(future=pl.DataFrame({"unique_id": ["new"], "kind": ["large"]})).tail(10)["mean"])
    np.testing.assert_allclose(found[1].to_numpy() / 1000, found[0].to_numpy(), rtol=1e-3)


@pytest.mark.parametrize("make", [ls.LogSparse, ls.DeepAR, ls.DeepState])
def test_every_network_forecasts_new_series_by_default(make: type[ls.LogSparse]) -> None:
    fitted = make(horizon=10, context=20, minutes=0.001, verbose=False).fit(past(OLD), static=["kind"])
    assert fitted.config_.model.hidden_history > 0
    found = fitted.predict(future=pl.DataFrame({"unique_id": ["new"], "kind": ["large"]}))
    assert found.tail(10)["unique_id"].to_list() == ["new"] * 10
    assert np.isfinite(found["mean"].to_numpy()).all()


def test_settings_without_static_columns_hide_nothing() -> None:
    plan = ls.LogSparse(horizon=10, verbose=False).plan(past(OLD), covariates=["promo"])
    assert plan.config.model.hidden_history == 0


def test_without_times_a_new_series_begins_after_the_latest_end(quick: ls.LogSparse) -> None:
    found = quick.predict(future=pl.DataFrame({"unique_id": ["new"], "kind": ["large"]})).tail(10)
    assert (found["ds"].to_numpy() == DAYS[80:90]).all()


def test_with_times_it_begins_at_the_first_after_the_latest_end(quick: ls.LogSparse) -> None:
    rows = pl.DataFrame({"unique_id": "new", "ds": DAYS[[3, 85, 84]], "kind": "large"})
    found = quick.predict(future=rows).tail(10)
    assert found["ds"].to_numpy()[0] == DAYS[84]


def test_a_new_series_of_an_unknown_kind_counts_as_unknown(quick: ls.LogSparse) -> None:
    found = quick.predict(future=pl.DataFrame({"unique_id": ["new"], "kind": ["gigantic"]})).tail(10)
    assert np.isfinite(found["mean"].to_numpy()).all()


def test_a_new_series_is_forecast_the_same_after_saving(quick: ls.LogSparse, tmp_path: Path) -> None:
    rows = pl.DataFrame({"unique_id": ["new"], "kind": ["medium"]})
    quick.save(tmp_path / "model")
    again = ls.load(tmp_path / "model", verbose=False)
    assert again.predict(future=rows).equals(quick.predict(future=rows))


def test_a_new_series_can_be_drawn(quick: ls.LogSparse) -> None:
    forecast = quick.forecast(future=pl.DataFrame({"unique_id": ["new"], "kind": ["medium"]}))
    assert forecast.plot("new").axes
    assert forecast.mean.shape == (19, 10)


def test_series_of_the_fit_that_the_given_history_leaves_out_are_not_new(trained: ls.LogSparse) -> None:
    some = pl.col("unique_id").str.starts_with("old-small")
    found = trained.predict(past(OLD).filter(some), future=ahead(OLD).drop("y"))
    assert found["unique_id"].n_unique() == 6


ROW = pl.DataFrame({"unique_id": ["new"], "ds": DAYS[80:81], "kind": ["large"]})
REFUSED = {
    "without its static column": (
        ROW.drop("kind"),
        "static columns of the model, such as 'kind'. Got no column 'kind'",
    ),
    "only in the past": (ROW.with_columns(ds=LAST), "Got rows of series 'new' up to 2024-03-20, the end of the data"),
    "off the grid": (
        ROW.with_columns(pl.col("ds") + pl.duration(hours=1)),
        "off the grid of d in series 'new' at 2024",
    ),
    "of two kinds": (
        pl.concat([ROW, ROW.with_columns(kind=pl.lit("small"))]),
        "The static column 'kind' must have one value per series. Got several in series 'new'.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_new_series_is_refused(quick: ls.LogSparse, name: str) -> None:
    rows, message = REFUSED[name]
    with pytest.raises(ls.DataError, match=re.escape(message)):
        quick.predict(future=rows)


def test_a_new_series_must_have_all_its_covariates(trained: ls.LogSparse) -> None:
    rows = pl.concat([ahead(OLD), ahead(NEW).filter(pl.col("ds") < pl.lit(DAYS[85]))]).drop("y")
    with pytest.raises(
        ls.DataError, match=r"'promo' must be known for all 10 steps .* Got series 'new-large-0' with 5 of"
    ):
        trained.predict(future=rows)


def test_models_that_cannot_forecast_a_new_series_refuse_it_by_name() -> None:
    naive = SeasonalNaive(10).fit(past(OLD), covariates=["promo"])
    rule = (
        "SeasonalNaive must be given the history of every series. Got series 'new-large-0' and 11 more without "
        "a history. Hint: fit LogSparse with static=[...]; or pass the history of that series."
    )
    with pytest.raises(ls.DataError, match=re.escape(rule)):
        naive.predict(future=ahead(pl.concat([OLD, NEW])).drop("y"))
    plain = model()
    plain.config = replace(plain.config, model=replace(plain.config.model, hidden_history=0.0))  # type: ignore[type-var, union-attr]
    rule = (
        "LogSparse must be trained on hidden histories to forecast a series without one. Got series 'new' without "
        "a history, and a model without static columns and covariates. Hint: fit it with static=[...] or "
        "model.hidden_history=0.1; or pass the history of that series."
    )
    with pytest.raises(ls.DataError, match=re.escape(rule)):
        plain.fit(past(OLD)).predict(future=ROW)
    with pytest.raises(ls.DataError, match=re.escape("Got series 'new' without a history. Hint: fit it")):
        plain.fit(past(OLD), static=["kind"]).predict(future=ROW)


def test_new_data_without_columns_of_the_fit_are_told_which_those_were(trained: ls.LogSparse) -> None:
    message = (
        "New data must have the columns that the model was fitted with (static: kind; covariates: promo). Got no kind. "
        "Hint: add what is missing, or fit a model without it."
    )
    with pytest.raises(ls.DataError, match=f"^{re.escape(message)}$"):
        trained.predict(past(OLD).drop("kind"), future=ahead(OLD).drop("y"))
    with pytest.raises(ls.DataError, match="A frame must have the columns unique_id, ds, y"):
        trained.predict(past(OLD).drop("y"))


def test_future_values_without_a_covariate_are_told_which_there_were(trained: ls.LogSparse) -> None:
    message = "Future values must have the columns that the model was fitted with (covariates: promo). Got no promo."
    with pytest.raises(ls.DataError, match=re.escape(message)):
        trained.predict(future=ahead(OLD).drop("y", "promo"))


def test_ids_of_another_type_are_not_new_series(quick: ls.LogSparse) -> None:
    message = "to new ones. Got ids such as 7 for series such as 'old-small-0'. Hint: use ids of the type of the data"
    with pytest.raises(ls.DataError, match=re.escape(message)):
        quick.predict(future=pl.DataFrame({"unique_id": [7], "kind": ["large"]}))


def test_a_missing_value_of_a_future_covariate_is_named_with_its_series_and_date(trained: ls.LogSparse) -> None:
    hole = (pl.col("unique_id") == "old-large-2") & (pl.col("ds") == pl.lit(DAYS[83]))
    rows = ahead(OLD).drop("y").with_columns(promo=pl.when(hole).then(None).otherwise(pl.col("promo")))
    message = "Got no value in series 'old-large-2' at 2024-03-24. Hint: fill in that value"
    with pytest.raises(ls.DataError, match=re.escape(message)):
        trained.predict(future=rows)


def test_ids_are_the_same_series_whether_a_file_has_them_as_text_or_as_whole_numbers(tmp_path: Path) -> None:
    values = [float(n % 5) for n in range(60)]
    frame = pl.DataFrame({"unique_id": [7] * 30 + [8] * 30, "ds": [*range(30)] * 2, "y": values})
    frame.write_csv(tmp_path / "later.csv")
    numbers = ls.SeasonalNaive(horizon=3, season=5).fit(frame)
    assert numbers.predict(tmp_path / "later.csv").equals(numbers.predict(frame))
    assert ls.check(tmp_path / "later.csv", model=numbers).ok
    texts = ls.SeasonalNaive(horizon=3, season=5).fit(tmp_path / "later.csv")
    assert texts.predict(frame)["unique_id"].unique(maintain_order=True).to_list() == ["7", "8"]
    assert ls.check(frame, model=texts).ok


def test_ids_with_leading_zeros_are_not_whole_numbers() -> None:
    assert ids_like((7, 8), ("7", "9")) == (7, 9)
    assert ids_like((7, 8), ("007", "8")) == ("007", "8")
    assert ids_like((7, 8), ("5", "6")) == ("5", "6")
    assert ids_like(("007", "a"), (7, 8)) == (7, 8)
    assert ids_like(("7", "a"), (7, 8)) == ("7", "8")


def test_future_values_of_a_csv_file_belong_to_series_with_whole_numbers_as_ids(tmp_path: Path) -> None:
    frame = pl.DataFrame({"unique_id": 7, "ds": range(6), "y": 1.0, "heat": 2.0})
    frame.with_columns(ds=pl.col("ds") + 6).drop("y").write_csv(tmp_path / "future.csv")
    panel = ls.to_panel(frame, covariates=["heat"])
    longer = join_future(panel, tmp_path / "future.csv", 3)
    assert longer.covariates["heat"].tolist() == [2.0] * 9
