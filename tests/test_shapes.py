"""Series with a recurring shape: tops, spikes, and where a history ends."""

from __future__ import annotations

import numpy as np

from logsparse.paper import shapes as module
from logsparse.paper.shapes import CONTEXT, LENGTH, sets, shapes


def test_same_seed_same_series_and_another_seed_others() -> None:
    one, same, other = (shapes(3, np.random.default_rng(seed)).panel.values for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_spike_is_as_high_as_the_top_but_its_neighbours_are_low() -> None:
    found = shapes(50, np.random.default_rng(0))
    values_SX = found.panel.values.reshape(50, LENGTH)
    assert np.abs(values_SX[found.tops_SX] - 4).max() < 0.15
    assert np.abs(values_SX[found.spikes_SX] - 4).max() < 0.15
    series, steps = np.nonzero(found.spikes_SX[:, 1:])
    assert np.abs(values_SX[series, steps] - 1).max() < 0.15
    series, steps = np.nonzero(found.tops_SX[:, 1:])
    assert values_SX[series, steps].min() > 1.5


def test_the_history_of_a_test_series_ends_at_a_top_and_has_a_spike_and_an_earlier_top() -> None:
    found = shapes(40, np.random.default_rng(3), first=7, history_ends_at_a_top=True)
    assert found.panel.ids == tuple(range(7, 47))
    assert found.tops_SX[:, CONTEXT - 1].all()
    assert found.spikes_SX[:, : CONTEXT - 1].any(axis=1).all()
    assert found.tops_SX[:, : CONTEXT - 1].any(axis=1).all()


def test_series_of_the_three_sets_have_different_ids() -> None:
    assert module.SIZES == (4000, 300, 200)
    found = sets(np.random.default_rng(0))
    ids = [part.panel.ids for part in found]
    assert (*ids[0], *ids[1], *ids[2]) == tuple(range(4500))
