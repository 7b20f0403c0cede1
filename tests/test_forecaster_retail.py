"""The retail path end to end: a shop plans its next weeks, from the till's table to the model of the week after.

The sales are made: a lower price and a promotion sell more, rain sells less, the moon does nothing. Items of one
category sell about as much as each other. One item starts late, spices are often not sold, one item is only planned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import logsparse as ls
from command import logsparse

LEVELS = {"dairy": 60.0, "bakery": 12.0, "spices": 3.0}
LAST = pd.Timestamp("2024-06-30")
NAMES = {"id_col": "sku", "time_col": "date", "target_col": "qty"}
NEW = "dairy-new"


@dataclass(frozen=True)
class Shop:
    """What the shop has: `sales` up to today, and the `plan` of the next 14 days; `truth` is not known yet."""

    sales: pd.DataFrame
    plan: pd.DataFrame
    truth: pd.DataFrame

    def level(self, category: str) -> float:
        return float(self.truth.loc[self.truth["category"] == category, "qty"].mean())


def sold(number: int, weather: np.ndarray, days: pd.DatetimeIndex) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    category = list(LEVELS)[number % 3]
    usual = rng.uniform(1.9, 2.1)
    price = np.round(usual * np.repeat(rng.choice([0.8, 1.0, 1.2], len(days) // 7 + 1), 7)[: len(days)], 2)
    promo = np.repeat(rng.random(len(days) // 3 + 1) < 0.15, 3)[: len(days)]
    week = np.where(days.day_of_week >= 4, 1.4, 1.0)
    level = LEVELS[category] * rng.uniform(0.9, 1.1) * week * (price / usual) ** -2 * np.where(promo, 2.0, 1.0)
    quantity = rng.poisson(level * np.where(weather == "rain", 0.7, 1.0)).astype(float)
    return pd.DataFrame(
        {
            "sku": f"{category}-{number:02d}",
            "date": days,
            "qty": quantity,
            "price": price,
            "promo": promo,
            "weather": weather,
            "moon": rng.normal(size=len(days)),
            "visitors": rng.poisson(300 * week),
            "category": category,
            "store": f"store {number % 2}",
        }
    )


@pytest.fixture(scope="module")
def shop() -> Shop:
    days = pd.date_range(end=LAST + pd.Timedelta(days=14), periods=194, freq="D")
    weather = np.random.default_rng(99).choice(["sun", "rain"], len(days), p=[0.7, 0.3])
    every = pd.concat([sold(number, weather, days) for number in range(15)], ignore_index=True)
    late = (every["sku"] == "bakery-04") & (every["date"] < "2024-05-01")
    forgotten = (every["sku"] == "dairy-03") & every["date"].between("2024-03-04", "2024-03-06")
    every = every[~late & ~forgotten].sample(frac=1, random_state=0)  # rows in no order
    past = every["date"] <= LAST
    plan = every[~past].drop(columns=["qty", "visitors"])
    launch = plan[plan["sku"] == "dairy-00"].assign(sku=NEW, price=2.0, promo=False)
    return Shop(every[past], pd.concat([plan, launch]), every[~past])


COLUMNS: dict[str, Any] = {
    **NAMES,
    "covariates": ["price", "promo", "weather", "moon"],
    "past_covariates": ["visitors"],
    "static": ["category", "store"],
}


@pytest.fixture(scope="module")
def model(shop: Shop) -> ls.LogSparse:
    """Return the model that is trained on Sunday evening."""
    return ls.LogSparse(horizon=14, steps=100, verbose=False).fit(shop.sales, **COLUMNS)


@pytest.fixture(scope="module")
def folder(model: ls.LogSparse, shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shop")
    model.save(place / "model")
    shop.sales.to_csv(place / "sales.csv", index=False)
    shop.plan.to_csv(place / "plan.csv", index=False)
    return place


def test_every_item_of_the_plan_is_forecast_under_the_names_of_the_shop(model: ls.LogSparse, shop: Shop) -> None:
    forecast = model.predict(future=shop.plan, quantiles=[0.1, 0.5, 0.9])
    assert isinstance(forecast, pd.DataFrame)
    assert list(forecast) == ["sku", "date", "mean", "q0.1", "q0.5", "q0.9"]
    assert set(forecast["sku"]) == {*shop.sales["sku"], NEW}
    assert (forecast.groupby("sku")["date"].agg(["min", "count"]) == [LAST + pd.Timedelta(days=1), 14]).all(axis=None)
    both = forecast.merge(shop.truth, on=["sku", "date"])
    assert len(both) == 15 * 14
    error = (both["q0.5"] - both["qty"]).abs().sum() / both["qty"].sum()
    naive = ls.SeasonalNaive(horizon=14).fit(shop.sales, **COLUMNS).predict(future=shop.plan[shop.plan["sku"] != NEW])
    other = naive.merge(shop.truth, on=["sku", "date"])
    assert error < 0.7 * (other["mean"] - other["qty"]).abs().sum() / other["qty"].sum()
    assert both["qty"].between(both["q0.1"], both["q0.9"]).mean() == pytest.approx(0.8, abs=0.15)


def test_the_plan_of_one_week_is_enough_for_one_week(model: ls.LogSparse, shop: Shop) -> None:
    week = shop.plan[shop.plan["date"] <= LAST + pd.Timedelta(days=7)]
    short, whole = model.predict(future=week, horizon=7), model.predict(future=shop.plan)
    first = whole[whole["date"] <= LAST + pd.Timedelta(days=7)].reset_index(drop=True)
    pd.testing.assert_frame_equal(short, first)


def test_a_new_item_sells_like_its_category(model: ls.LogSparse, shop: Shop) -> None:
    def mean(plan: pd.DataFrame) -> float:
        forecast = model.predict(future=plan)
        return float(forecast.loc[forecast["sku"] == NEW, "mean"].mean())

    overall = float(shop.truth["qty"].mean())
    found = mean(shop.plan)
    assert found == pytest.approx(shop.level("dairy"), rel=0.25)
    spice = shop.plan.assign(category=shop.plan["category"].where(shop.plan["sku"] != NEW, "spices"))
    assert abs(mean(spice) - shop.level("spices")) < abs(mean(spice) - overall)
    with pytest.raises(
        ls.DataError, match=f"SeasonalNaive must be given the history of every series. Got series '{NEW}'"
    ):
        ls.SeasonalNaive(horizon=14).fit(shop.sales, **COLUMNS).predict(future=shop.plan)


def test_price_and_promotion_are_found_and_the_moon_is_not(model: ls.LogSparse, shop: Shop) -> None:
    table = ls.importance(model, shop.sales, repeats=2).frame()
    assert isinstance(table, pd.DataFrame)
    order = list(table["input"])
    assert max(order.index("price"), order.index("promo")) < order.index("moon")
    low, increase = (dict(zip(order, table[name].tolist(), strict=True)) for name in ("low", "increase"))
    assert min(low["price"], low["promo"]) > 0 >= low["moon"]
    assert min(increase["price"], increase["promo"]) > 5 * abs(increase["moon"])


def test_a_price_cut_sells_more_of_the_item_and_of_no_other(model: ls.LogSparse, shop: Shop) -> None:
    cut = shop.plan.assign(price=shop.plan["price"].where(shop.plan["sku"] != "dairy-03", shop.plan["price"] * 0.8))
    totals = ls.what_if(model, shop.plan, cut).totals().set_index("sku")
    assert totals.loc["dairy-03", "difference"] > 0.1 * totals.loc["dairy-03", "unchanged"]
    assert (totals.drop("dairy-03")["difference"] == 0).all()


def test_three_models_stand_on_a_leaderboard_and_the_report_says_how_sure_that_is(shop: Shop, tmp_path: Path) -> None:
    full = shop.sales[shop.sales["sku"].isin(["dairy-00", "bakery-01", "spices-02", "dairy-06"])]
    models = {
        "LogSparse": ls.LogSparse(horizon=7, steps=40, verbose=False),
        "deepar": ls.DeepAR(horizon=7, steps=30, verbose=False),
        "ets": ls.AutoETS(horizon=7, verbose=False),
    }
    results = ls.backtest(models, full, windows=4, **COLUMNS)
    board = ls.score(results)
    assert set(board["model"]) == set(models)
    assert board["wql"].is_monotonic_increasing
    assert board["coverage_80"].between(0.3, 1).all()
    assert board["model"][0] != "ets"  # which knows no price
    kinds = ls.score(results, by="category")
    assert len(kinds) == 3 * 3
    ls.report(results, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    # Every two models, with the interval of their difference.
    pairs = re.findall(r">(\w+) against (\w+)</th><td>[^<]+ %</td><td>[^<]+ % to [^<]+ %</td>", page)
    assert {frozenset(pair) for pair in pairs} == {frozenset(pair) for pair in combinations(models, 2)}


def test_the_week_after_the_model_is_trained_further_and_the_forecast_moves(
    model: ls.LogSparse, shop: Shop, tmp_path: Path
) -> None:
    monday = LAST + pd.Timedelta(days=7)
    longer = pd.concat([shop.sales, shop.truth[shop.truth["date"] <= monday]])
    model.save(tmp_path / "model")
    before = ls.load(tmp_path / "model", verbose=False).predict(longer, future=shop.plan, horizon=7)
    newer = ls.load(tmp_path / "model", verbose=False)
    assert isinstance(newer, ls.LogSparse)
    newer.fine_tune(longer, steps=5).save(tmp_path / "model")
    after = ls.load(tmp_path / "model", verbose=False).predict(future=shop.plan, horizon=7)
    assert after["date"].min() == monday + pd.Timedelta(days=1)
    pd.testing.assert_frame_equal(before[["sku", "date"]], after[["sku", "date"]])
    moved = (after["mean"] - before["mean"]).abs().sum() / before["mean"].sum()
    assert 0.0001 < moved < 0.3


def test_the_same_by_command(folder: Path, model: ls.LogSparse, shop: Shop) -> None:
    out = folder / "forecast.csv"
    done = logsparse("predict", folder / "model", "--future", folder / "plan.csv", "--horizon", 7, "-o", out)
    assert done.code == 0, done.err
    written = pd.read_csv(out, parse_dates=["date"])
    expected = model.predict(future=shop.plan, horizon=7)
    merged = written.merge(expected, on=["sku", "date"])
    assert len(merged) == len(expected) == 16 * 7
    np.testing.assert_allclose(merged["mean_x"], merged["mean_y"], rtol=1e-3)
