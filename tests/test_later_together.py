"""New items, covariates of the past and words together with names, zones, health, what-if, importance and attention."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from command import logsparse

HORIZON, STEPS = 2, 120
NAMES: dict[str, Any] = {"id_col": "sku", "time_col": "date", "target_col": "qty"}
ROLES: dict[str, Any] = {"covariates": ["promo"], "past_covariates": ["visitors", "weather"], "static": ["kind"]}
SETTINGS: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "lags": (1, 2),
    "profiles": (),
    "dropout": 0.0,
    "batch": 32,
    "lr": 1e-2,
    "hidden_history": 0.2,
}
WORDS = {"none": 0.0, "flyer": 10.0, "tv": 25.0}


def shops(count: int = 6) -> pl.DataFrame:
    """Daily sales that rest on the word of a promotion and on the visitors of the day before, not on the weather."""
    rng = np.random.default_rng(0)
    days = np.datetime64("2024-01-01", "us") + np.arange(STEPS).astype("timedelta64[D]")
    tables = []
    for number in range(count):
        promo, visitors = rng.choice(list(WORDS), STEPS), rng.uniform(0, 40, STEPS)
        y = 30 + np.array([WORDS[word] for word in promo]) + np.roll(visitors, 1) + rng.normal(size=STEPS)
        columns = {"qty": y, "promo": promo, "visitors": visitors, "weather": rng.choice(["sun", "rain"], STEPS)}
        tables.append(pl.DataFrame({"sku": f"s{number}", "date": days, **columns, "kind": "xy"[number % 2]}))
    return pl.concat(tables)


ALL = shops()
LAST = pl.lit(ALL["date"].max()) - pl.duration(days=HORIZON)
PAST, AHEAD = (
    ALL.filter(pl.col("date") <= LAST),
    ALL.filter(pl.col("date") > LAST).select("sku", "date", "promo", "kind"),
)
NEW = AHEAD.filter(pl.col("sku") == "s0").with_columns(sku=pl.lit("new"))
BOTH = pl.concat([AHEAD, NEW])


@pytest.fixture(scope="module")
def trained() -> ls.LogSparse:
    # Nothing would be held back for `importance` after a second training on all data.
    made = ls.LogSparse(horizon=HORIZON, context=14, steps=150, refit=False, verbose=False, **SETTINGS)
    return made.fit(PAST, **NAMES, **ROLES)


def test_the_forecast_of_a_new_item_has_the_names_and_the_library_of_the_data(trained: ls.LogSparse) -> None:
    found = trained.predict(PAST.to_pandas(), future=BOTH.to_pandas(), quantiles=[0.5])
    assert list(found.columns) == ["sku", "date", "mean", "q0.5"]
    assert list(found["sku"].tail(2)) == ["new", "new"]
    assert pl.from_pandas(found)["date"].tail(2).to_list() == NEW["date"].to_list()


def test_the_first_steps_of_a_new_item_are_those_of_the_whole_horizon(trained: ls.LogSparse) -> None:
    first = BOTH.filter(pl.col("date") == pl.col("date").min())
    found = trained.predict(future=first, horizon=1).tail(1)
    assert found.equals(trained.predict(future=BOTH).filter(pl.col("sku") == "new").head(1))


@pytest.mark.parametrize("on_bad", ["warn", "skip", "fail"])
def test_a_new_item_is_not_bad(trained: ls.LogSparse, on_bad: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "logsparse"):
        assert "new" in trained.predict(PAST, future=BOTH, on_bad=on_bad)["sku"].to_list()
    assert not caplog.records
    assert ls.check(PAST, model=trained).ok


def test_a_bad_series_that_is_left_out_is_not_forecast_as_a_new_one(trained: ls.LogSparse) -> None:
    broken = pl.when(pl.col("date") > LAST - pl.duration(days=20)).then(-9999.0).otherwise(pl.col("qty"))
    unknown = PAST.filter(pl.col("sku") == "s0").with_columns(sku=pl.lit("new"), qty=broken)
    found = trained.predict(pl.concat([PAST, unknown]), future=BOTH, on_bad="skip")
    assert found["sku"].unique().sort().to_list() == [f"s{number}" for number in range(6)]


def test_local_times_day_first_place_a_new_item_on_the_clock_of_the_model() -> None:
    # Over the night on which the clock of Berlin goes back.
    hours = pl.datetime_range(pl.datetime(2024, 10, 24), pl.datetime(2024, 10, 27, 1), "1h", eager=True)
    later = ["27.10.2024 02:00", "27.10.2024 02:00", "27.10.2024 03:00"]
    frame = pl.DataFrame({"unique_id": "a", "ds": hours.dt.strftime("%d.%m.%Y %H:%M"), "kind": "x"})
    frame = frame.with_columns(y=pl.int_range(pl.len()) % 24 - 5.5)
    made = ls.LogSparse(horizon=3, context=6, steps=1, verbose=False, **SETTINGS)
    made.fit(frame, static=["kind"], tz="Europe/Berlin", dayfirst=True)
    found = made.predict(future=pl.DataFrame({"unique_id": "b", "ds": later, "kind": "x"}), quantiles=[0.5])
    known, new = (found.filter(pl.col("unique_id") == name).drop("unique_id", "mean", "q0.5") for name in "ab")
    assert known.equals(new)
    assert len(new) == 3


def test_what_if_another_word(trained: ls.LogSparse) -> None:
    future = BOTH.with_columns(promo=pl.lit("none"))
    found = ls.what_if(trained, future, future.with_columns(promo=pl.lit("tv")), quantiles=[0.5])
    gain = found.totals()
    assert gain.columns[0] == "sku"
    known = gain.filter(pl.col("sku") != "new")["difference"] / HORIZON
    assert known.mean() == pytest.approx(25, abs=8)
    assert gain.filter(pl.col("sku") == "new")["difference"].item() / HORIZON > 10
    assert found.plot("new").axes


def test_what_if_needs_a_covariate_of_the_future() -> None:
    made = ls.LogSparse(horizon=HORIZON, context=14, steps=1, verbose=False, **SETTINGS)
    made.fit(PAST, **NAMES, past_covariates=["visitors"])
    with pytest.raises(ls.ConfigError, match="Got a model fitted without covariates"):
        ls.what_if(made, AHEAD, AHEAD)


def test_importance_finds_the_word_and_the_visitors_of_the_day_before(trained: ls.LogSparse) -> None:
    rows = ls.importance(trained, repeats=2).table()
    increase = dict(rows.select("input", "increase").iter_rows())
    assert rows.filter(pl.col("input") == "visitors")["kind"].item() == "covariate"
    assert min(increase["promo"], increase["visitors"]) > 0.1 > increase["weather"]


def test_the_attention_of_a_new_item_can_be_looked_at(trained: ls.LogSparse, tmp_path: Path) -> None:
    assert "series 'new'" in repr(trained.attention(future=BOTH, series="new"))
    trained.save(tmp_path / "model")
    BOTH.write_csv(tmp_path / "both.csv")
    words = ["--future", tmp_path / "both.csv", "--series", "new", "-o", tmp_path / "a.png"]
    done = logsparse("attend", tmp_path / "model", *words)
    assert done.code == 0, done.err


def test_a_model_without_its_history_forecasts_new_items_beside_one_that_is_given(
    trained: ls.LogSparse, tmp_path: Path
) -> None:
    trained.save(tmp_path / "model", history=False)
    again = ls.load(tmp_path / "model", verbose=False)
    assert again.predict(PAST, future=BOTH).equals(trained.predict(future=BOTH))


def test_numbers_where_words_were_fitted_are_refused(trained: ls.LogSparse) -> None:
    message = "The covariate 'promo' must hold text, as in the data that the model was fitted on. Got numbers."
    with pytest.raises(ls.DataError, match=re.escape(message)):
        trained.predict(future=AHEAD.with_columns(promo=1))


def test_a_network_that_never_saw_a_hidden_history_refuses_a_new_item_by_name() -> None:
    made = ls.DeepAR(horizon=HORIZON, context=14, steps=1, verbose=False).fit(PAST, **NAMES, covariates=["promo"])
    message = (
        "DeepAR must be trained on hidden histories to forecast a series without one. Got series 'new' among the "
        "future values only. Hint: fit it with static=[...] or model.hidden_history=0.1; or pass the history of that "
        "series."
    )
    with pytest.raises(ls.DataError, match=f"^{re.escape(message)}$"):
        made.predict(future=BOTH)


def test_a_model_of_the_first_version_has_no_covariates_of_the_past_and_refuses_new_items() -> None:
    model = ls.load(Path(__file__).parent / "fixtures" / "logsparse_format_1", verbose=False)
    assert isinstance(model, ls.LogSparse)
    assert model.panel_.past == model.features_.past == ()
    with pytest.raises(ls.DataError, match=r"must be trained on hidden histories .* Got series 'new' among"):
        model.predict(future=pl.DataFrame({"unique_id": ["new"]}))


def test_several_models_are_compared_on_words_and_covariates_of_the_past(trained: ls.LogSparse) -> None:
    found = ls.backtest([trained, ls.SeasonalNaive(HORIZON)], ALL, windows=1, **NAMES, **ROLES)
    best = ls.score(found, **NAMES)["model"][0]
    assert best == "LogSparse"


def test_what_if_compares_new_items_whatever_the_order_of_the_rows(trained: ls.LogSparse) -> None:
    two = pl.concat([BOTH, NEW.with_columns(sku=pl.lit("newer"))])
    totals = ls.what_if(trained, two, two.reverse(), quantiles=[0.5]).totals()
    assert totals["difference"].to_list() == [0] * len(totals)


def test_what_if_refuses_an_item_that_only_one_future_has(trained: ls.LogSparse) -> None:
    text = r"Both futures must have the same new series, from the same time on. Got series 'new', which differs"
    with pytest.raises(ls.DataError, match=text):
        ls.what_if(trained, BOTH.filter(pl.col("sku") != "new"), BOTH)


def test_the_totals_of_a_what_if_are_of_the_library_of_the_data(trained: ls.LogSparse) -> None:
    found = ls.what_if(trained, BOTH.to_pandas(), BOTH.to_pandas(), data=PAST.to_pandas(), quantiles=[0.5])
    assert type(found.totals()) is type(found.frame()) is type(PAST.to_pandas())
    legend = found.plot("new").axes[0].get_legend()
    assert legend
    assert "history" not in [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize(
    ("left_out", "text"),
    [
        (pl.col("date") == pl.col("date").min(), r"Got no row of series 's0' at 20.* Hint: add that row"),
        (pl.lit(True), r"Got no rows of series 's0'. Hint: add them; to forecast other series only, pass the history"),
    ],
)
def test_a_hole_in_the_plan_is_named(trained: ls.LogSparse, left_out: pl.Expr, text: str) -> None:
    with pytest.raises(ls.DataError, match=text):
        trained.predict(future=BOTH.filter(~((pl.col("sku") == "s0") & left_out)))


@pytest.mark.parametrize("written", ["{:.2f} €", "$ {:.2f}", "1.000,{:.0f}"])
def test_prices_with_a_currency_or_a_comma_are_not_taken_for_words(written: str) -> None:
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 3, 1), "1d", eager=True)
    price = [written.format(2 + number % 7) for number in range(len(days))]
    frame = pl.DataFrame({"unique_id": "a", "ds": days, "y": 1.0, "price": price})
    with pytest.raises(ls.DataError, match=r"The column 'price' must hold numbers. Got "):
        ls.to_panel(frame, covariates=["price"])
