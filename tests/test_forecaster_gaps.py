"""A series that ends in a long gap keeps its unit, and the gap teaches nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

import logsparse as ls
from test_forecaster import frame, quick


def test_a_long_gap_at_the_end_changes_neither_unit_nor_what_is_learned_from() -> None:
    model = quick({"scale": "deviation"}).fit(frame())
    gone = 40  # more than the context
    gap = frame().with_columns(y=pl.when(pl.int_range(pl.len()).over("unique_id") < 90 - gone).then("y"))
    plain, larger = (model.predict(gap.with_columns(pl.col("y") * unit)) for unit in (1, 1000))
    np.testing.assert_allclose(larger["q0.5"], 1000 * plain["q0.5"], rtol=1e-3)
    with_gap, without = (quick().fit(data) for data in (gap, gap.drop_nulls("y")))
    assert with_gap.history_.rows[-1]["validation_nll"] == without.history_.rows[-1]["validation_nll"]


def test_a_saved_model_knows_the_unit_of_a_series_that_ends_in_a_long_gap(tmp_path: Path) -> None:
    gap = frame(steps=200).with_columns(y=pl.when(pl.int_range(pl.len()).over("unique_id") < 80).then("y"))
    model = quick({"scale": "deviation"}).fit(gap)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(ls.load(tmp_path / "m").predict()["q0.5"], model.predict()["q0.5"])
