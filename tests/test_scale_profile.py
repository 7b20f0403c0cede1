"""Profiles: mean and spread of values at the same phase of earlier seasons."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logsparse.data.scale import Profile, profile_of, reach


def test_a_week_of_days_has_its_mean_and_spread() -> None:
    values_BE = np.array([[1, 10, 3, 10, 5, 10, 0, 0]], np.float32)
    mean, spread, there = profile_of(values_BE, values_BE != 0, range(2, 8, 2), length=2)
    np.testing.assert_allclose(mean, [[3, 10]])
    np.testing.assert_allclose(spread, [[4 / 3, 0]])
    assert there.all()


def test_missing_values_do_not_count() -> None:
    values_BE = np.array([[7, 0, 5, 0]], np.float32)
    mean, spread, _ = profile_of(values_BE, values_BE != 0, range(1, 4), length=1)
    np.testing.assert_allclose([mean[0, 0], spread[0, 0]], [6, 1])
    nothing = profile_of(0 * values_BE, np.zeros_like(values_BE, bool), range(1, 4), length=1)
    assert [part.item() for part in nothing] == [0, 0, False]


@given(step=st.integers(1, 50), count=st.integers(1, 30), horizon=st.integers(1, 200))
def test_a_profile_reads_the_nearest_seasons_that_are_known_before_the_horizon(
    step: int, count: int, horizon: int
) -> None:
    back = Profile(step, count).back(horizon)
    assert len(back) == count
    assert back[0] >= horizon > back[0] - step
    assert all(steps % step == 0 for steps in back)
    assert reach((1, 7), [Profile(step, count)], horizon) == max(7, back[-1])


def test_huge_values_have_a_profile_too() -> None:
    values_BE = np.full((1, 29), 3e38, np.float32)
    mean, spread, _ = profile_of(values_BE, values_BE > 0, range(1, 29), length=1)
    np.testing.assert_allclose(mean.astype(np.float32), values_BE[:, :1])
    assert spread.item() == 0
