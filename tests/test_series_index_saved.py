"""A packed panel is restored: the last steps, their times, ages, covariates and categories."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import small
from logsparse.data.panel import Origin, Panel, Static
from logsparse.data.series_index import pack_panel, unpack_panel


def panel() -> Panel:
    plain = small.panel(series=3, steps=30)
    return replace(
        plain,
        lengths=np.array([30, 4, 20]),
        covariates={"price": np.arange(90, dtype=np.float32)},
        static={"kind": Static(np.array([1, 0, 1]), ("x", "y"))},
        origin=Origin("pandas", "long", "datetime", "Europe/Berlin"),
    )


@pytest.mark.parametrize("steps", [None, 1, 7, 30])
def test_the_last_steps_come_back(steps: int | None) -> None:
    before = panel()
    facts, arrays = pack_panel(before, steps)
    after = unpack_panel(json.loads(json.dumps(facts)), arrays)
    assert (after.ids, after.freq, after.origin) == (before.ids, before.freq, before.origin)
    assert after.ends().tolist() == before.ends().tolist()
    for i in range(3):
        kept = len(before[i]) if steps is None else min(steps, len(before[i]))
        np.testing.assert_array_equal(after[i], before[i][-kept:])
        begin = before.indptr[i] + before.lengths[i] - kept
        found = after.covariates["price"][after.indptr[i] : after.indptr[i + 1]]
        np.testing.assert_array_equal(found, before.covariates["price"][begin : begin + kept])
        assert after.elapsed is not None
        assert after.elapsed[i] == len(before[i]) - kept
    assert after.static["kind"].codes.tolist() == [1, 0, 1]


def test_a_gap_at_the_end_is_kept_beside_the_steps_before_it() -> None:
    before = panel()
    before.values[10:30] = np.nan
    after = unpack_panel(*pack_panel(before, 5))
    assert after.lengths.tolist() == [25, 4, 5]
    np.testing.assert_array_equal(after[0], before[0][5:])


def test_packing_twice_counts_the_whole_age() -> None:
    once = unpack_panel(*pack_panel(panel(), 10))
    twice = unpack_panel(*pack_panel(once, 2))
    assert twice.elapsed is not None
    assert twice.elapsed.tolist() == [28, 2, 18]
