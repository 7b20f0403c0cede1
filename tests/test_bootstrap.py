"""The paired bootstrap: what both find hard cancels, chance is told from difference, many units cost no more."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from logsparse.evaluation import bootstrap
from logsparse.evaluation.bootstrap import MOST_UNITS, difference, unit_of
from report_pages import results


def test_units_that_are_hard_for_both_do_not_widen_the_interval() -> None:
    hard = np.random.default_rng(1).uniform(1, 100, (1, 30))
    assert difference(0.9 * hard, hard) == pytest.approx((-0.1, -0.1, -0.1))


def test_the_interval_covers_the_true_difference_about_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "REPLICATES", 400)
    rng = np.random.default_rng(2)
    found = [difference(rng.gamma(2, size=(1, 40)), rng.gamma(2, size=(1, 40))) for _ in range(200)]
    covered = np.mean([interval is not None and interval.low <= 0 <= interval.high for interval in found])
    assert 0.89 <= covered <= 0.99


def test_one_unit_or_no_loss_gives_no_interval() -> None:
    assert difference(np.ones((1, 1)), np.ones((1, 1))) is None
    assert difference(np.ones((1, 9)), np.zeros((1, 9))) is None


def test_many_units_are_grouped_and_give_nearly_the_same_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    mine, theirs = rng.gamma(2, size=(2, 1, 2 * MOST_UNITS))
    grouped = difference(mine, theirs)
    monkeypatch.setattr(bootstrap, "MOST_UNITS", 10**9)
    every = difference(mine, theirs)
    assert grouped is not None
    assert grouped == pytest.approx(every, abs=0.005)
    assert grouped != every


def test_cutoffs_are_resampled_or_series_where_each_has_one_cutoff() -> None:
    assert unit_of(results(windows=2)) == "cutoff"
    assert unit_of(results(windows=1)) == "unique_id"
    own_ends = results(windows=1).with_columns(cutoff=pl.int_range(pl.len()) // 4)
    assert unit_of(own_ends) == "unique_id"
