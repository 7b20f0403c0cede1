"""Pairs of models: the difference in quantile loss over what both have, and whether it may be chance."""

from __future__ import annotations

import polars as pl
import pytest

import logsparse as ls
from logsparse.evaluation.compare import compare
from logsparse.evaluation.metrics import by_model
from report_pages import models, nearer, results

MANY = results(windows=20)
MEDIAN = nearer(results(), 0.9).drop("q0.1", "q0.25", "q0.75", "q0.9")


def test_the_difference_is_that_of_the_scores() -> None:
    both = models(plain=MANY, good=nearer(MANY, 0.3))
    found = compare(by_model(both))
    (pair,) = found.pairs
    assert (found.unit, found.units) == ("cutoff", 20)
    wql = {name: ls.score(both.filter(model=name))["wql"].item() for name in ("plain", "good")}
    assert pair.interval is not None
    assert pair.interval.change == pytest.approx(wql["plain"] / wql["good"] - 1)
    assert pair.better == "good"
    assert pair.interval == pytest.approx([1 / 0.7 - 1] * 3), "every loss is lower by the same share"


def test_models_that_differ_by_chance_are_not_told_apart() -> None:
    shuffled = MANY.with_columns(pl.col("mean", "^q.*$").shift(4).fill_null(5.0))
    (pair,) = compare(by_model(models(one=MANY, other=shuffled))).pairs
    assert pair.interval is not None
    assert pair.interval.low < 0 < pair.interval.high
    assert pair.better is None


def test_a_point_forecast_is_compared_by_its_median_or_by_its_mean() -> None:
    frame = results()
    (pair,) = compare(by_model(models(plain=frame, median=MEDIAN))).pairs
    losses = [ls.score(table)["R0.5"].item() for table in (frame, MEDIAN)]
    assert pair.interval is not None
    assert pair.interval.change == pytest.approx(losses[0] / losses[1] - 1)
    mean = MEDIAN.drop("q0.5")
    (pair,) = compare(by_model(models(plain=frame, mean=mean))).pairs
    errors = [float((frame["y"] - table["mean"]).abs().sum()) for table in (frame, mean)]
    assert pair.interval is not None
    assert pair.interval.change == pytest.approx(errors[0] / errors[1] - 1)


def test_every_two_models_are_a_pair_and_missing_values_count_for_none() -> None:
    hole = MANY.with_columns(y=pl.when(pl.int_range(pl.len()) > 50).then("y"))
    found = compare(by_model(models(a=hole, b=nearer(hole, 0.1), c=nearer(hole, 0.2))))
    assert [(pair.first, pair.second) for pair in found.pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert all(pair.better == pair.second for pair in found.pairs)
