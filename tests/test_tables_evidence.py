"""Evidence: intervals of a paired bootstrap, flat curves, windows seen, and seasonal naive as the bar."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from logsparse.evaluation.compare import Interval
from logsparse.paper.ledger import COLUMNS, Row
from logsparse.paper.tables import Cell, cell, difference, sound

DAYS = [f"2016-06-{day:02}" for day in range(1, 29)]


def row(seed: int = 0, error: float = 0.1, *, steps: int = 100, patience: int | None = None) -> Row:
    train = {"batch": 32, "windows": 3200, "epochs": 2, "patience": patience, "steps_per_epoch": 1}
    facts = {"case": "x", "model": "m", "seed": str(seed), "R0.5": str(error), "steps": str(steps)}
    return {**dict.fromkeys(COLUMNS, ""), **facts, "config": json.dumps({"train": train})}


def left(losses: Any, days: list[str] = DAYS) -> dict[str, Any]:
    found = {"by": "cutoff", "of": days, "R0.5": [float(loss) for loss in losses], "size": [1.0] * len(days)}
    return {"losses": {"mean-path": found, "ancestral": {**found, "R0.5": [99.0] * len(days)}}}


def seeds(*losses: Any) -> Cell:
    return Cell([row(seed) for seed in range(len(losses))], {str(i): left(one) for i, one in enumerate(losses)})


def test_days_that_are_hard_for_both_do_not_widen_the_interval() -> None:
    hard = np.random.default_rng(1).uniform(1, 100, len(DAYS))
    found = difference(seeds(0.9 * hard), seeds(hard))
    assert found == pytest.approx((-0.1, -0.1, -0.1))


def test_an_interval_covers_the_spread_of_days_and_of_seeds() -> None:
    rng = np.random.default_rng(2)
    days = difference(seeds(rng.uniform(0.5, 1.5, 28)), seeds(rng.uniform(0.5, 1.5, 28)))
    assert days is not None
    assert days.low < days.change < days.high
    assert -0.5 < days.low < 0 < days.high < 0.5
    alike = np.ones(28)
    between = difference(seeds(0.8 * alike, 1.2 * alike), seeds(alike))
    assert between is not None
    assert between == pytest.approx((0, -0.2, 0.2))


def test_intervals_are_the_same_every_time() -> None:
    one, other = (seeds(np.random.default_rng(seed).uniform(1, 2, 28)) for seed in (3, 4))
    assert difference(one, other) == difference(one, other)
    assert f"{Interval(-0.0512, -0.1, 0.02)}" == "-5.1 % [-10.0, +2.0]"


def test_runs_without_losses_or_on_other_days_are_not_compared() -> None:
    one = seeds(np.ones(28))
    assert difference(one, Cell([row()], {})) is None
    assert difference(one, Cell([row()], {"0": left(np.ones(27), DAYS[:27])})) is None
    assert difference(one, seeds(np.zeros(28))) is None
    alone = Cell([row()], {"0": left([1.0], DAYS[:1])})
    assert difference(alone, alone) is None


@pytest.mark.parametrize(
    ("losses", "flat"),
    [
        ([5.0, 2.0, 1.0, 1.5], True),
        ([5.0, 2.0, 1.0, 0.97], True),
        ([5.0, 2.0, 1.0, 0.9], False),
        ([4.0, 3.0, 2.0, 1.0], False),
        ([1.0], False),
    ],
)
def test_a_curve_is_flat_if_its_last_quarter_gains_at_most_a_hundredth_of_its_range(
    losses: list[float], flat: bool
) -> None:
    assert Cell([row()], {"0": {"curve": {"validation_nll": losses}}}).flat is flat


def test_a_likelihood_without_a_bound_may_rise_where_the_quantile_loss_is_flat() -> None:
    curve = {"validation_nll": [4.0, 3.0, 2.0, 1.0], "validation_wql": [0.5, 0.2, 0.1, 0.1]}
    found = Cell([row()], {"0": {"curve": curve}})
    assert (found.flat, found.likelihood_flat) == (True, False)
    falling = Cell([row()], {"0": {"curve": {**curve, "validation_wql": [0.5, 0.4, 0.3, 0.2]}}})
    assert falling.flat is False


def test_patience_ends_a_training_flat_and_one_falling_seed_is_enough_for_not_flat() -> None:
    falling = {"curve": {"validation_nll": [4.0, 3.0, 2.0, 1.0]}}
    assert Cell([row(steps=150, patience=5)], {"0": falling}).flat is True
    assert Cell([row(steps=200, patience=5)], {"0": falling}).flat is False
    still = {"curve": {"validation_nll": [4.0, 1.0, 1.0, 1.0]}}
    assert Cell([row(0), row(1)], {"0": still, "1": falling}).flat is False
    assert Cell([row()], {}).flat is None


def test_a_cell_has_the_mean_error_of_its_seeds_and_the_windows_each_has_seen() -> None:
    rows = [row(0, 0.1), row(1, 0.3)]
    found = cell(rows, {}, "x", "m")
    assert found is not None
    assert found.error == pytest.approx(0.2)
    assert found.windows == 3200
    assert (found.beats(0.25), found.beats(0.15), found.beats(None)) == (True, False, None)
    assert cell(rows, {}, "x", "other") is None


@pytest.mark.parametrize(
    ("likelihoods", "ends", "patience", "lost"),
    [
        ([1.0, 2.0], [0.1, 0.106], None, True),
        ([1.0, 2.0], [0.1, 0.104], None, False),
        ([1.0, 0.9], [0.1, 0.106], None, False),
        ([1.0, 2.0], [0.1, 0.2], 5, False),
    ],
)
def test_a_training_has_come_apart_if_it_kept_an_earlier_network_and_its_loss_rose_since(
    likelihoods: list[float], ends: list[float], patience: int | None, lost: bool
) -> None:
    curve = {"validation_nll": [4.0, *likelihoods], "validation_wql": [0.5, *ends]}
    assert Cell([row(steps=150, patience=patience)], {"0": {"curve": curve}}).lost is lost


@pytest.mark.parametrize(
    ("trace", "readable"),
    [
        ({}, True),
        (left([1.0] * 28), True),
        ({"curve": {"validation_nll": [1.0]}}, True),
        ({"curve": {"validation_nll": ["low"]}}, False),
        ({"curve": {"validation_nll": [1.0], "validation_wql": [0.1]}}, True),
        ({"curve": {"validation_nll": [1.0], "validation_wql": [0.1, 0.2]}}, False),
        ({"curve": 3}, False),
        ({"losses": {}}, False),
        ({"losses": {"mean-path": {"of": ["a"], "R0.5": [1, 2], "size": [1]}}}, False),
        ({"losses": {"mean-path": {"of": ["a"], "R0.5": [1]}}}, False),
    ],
)
def test_a_trace_that_cannot_be_read_is_known_as_such(trace: dict[str, Any], readable: bool) -> None:
    assert sound(trace) is readable
