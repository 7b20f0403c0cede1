"""Scores against hand-computed cases, utilsforecast's losses, the definitions, and themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from polars.testing import assert_frame_equal
from utilsforecast import losses

from logsparse.evaluation import metrics
from logsparse.evaluation.metrics import score

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
GROUPS = (None, "unique_id", "step", "cutoff")


def results(seed: int = 0, series: int = 3, windows: int = 2, horizon: int = 4) -> pl.DataFrame:
    """A random result frame: two cutoffs a series, quantiles in order, every series with its own scale."""
    rng = np.random.default_rng(seed)
    count = series * windows * horizon
    quantiles = np.sort(rng.normal(1, 2, (count, len(LEVELS))), axis=1)
    cutoff = np.tile(np.repeat(np.arange(windows) * horizon, horizon), series)
    return pl.DataFrame(
        {
            "unique_id": np.repeat([f"T{i}" for i in range(series)], windows * horizon),
            "ds": cutoff + np.tile(np.arange(horizon) + 1, series * windows),
            "cutoff": cutoff,
            "y": rng.normal(1, 2, count),
            "mean": rng.normal(1, 2, count),
            **{f"q{level:g}": quantiles[:, i] for i, level in enumerate(LEVELS)},
            "seasonal_error": np.repeat(rng.uniform(0.5, 2, series), windows * horizon),
        }
    )


def row(frame: pl.DataFrame) -> dict[str, Any]:
    return score(frame).row(0, named=True)  # type: ignore[no-any-return]


def test_hand_computed_case() -> None:
    frame = pl.DataFrame(
        {
            "unique_id": ["a", "a", "b"],
            "y": [2.0, -4.0, 10.0],
            "mean": [1.0, -1.0, 10.0],
            "q0.1": [1.0, -5.0, 11.0],
            "q0.5": [2.0, -2.0, 12.0],
            "q0.9": [3.0, -4.0, 15.0],
            "seasonal_error": [1.0, 1.0, 4.0],
        }
    )
    expected = {
        "count": 3,
        "R0.1": 2 * (0.1 * 1 + 0.1 * 1 + 0.9 * 1) / 16,
        "R0.5": (0 + 2 + 2) / 16,
        "R0.9": 2 * (0.1 * 1 + 0 + 0.1 * 5) / 16,
        "wql": (2.2 + 4 + 1.2) / 3 / 16,
        # The levels stand for (0, 0.3), (0.3, 0.7) and (0.7, 1).
        "crps_quantiles": (0.3 * 2.2 + 0.4 * 4 + 0.3 * 1.2) / 3,
        "coverage_80": 2 / 3,
        "width_80": (2 + 1 + 4) / 16,
        "nd": 4 / 16,
        "mase": (0 + 2 + 2 / 4) / 3,
        "smape": (0 + 2 / 6 + 2 / 22) / 3,
        "mae": (0 + 2 + 2) / 3,
        "rmse": ((1 + 9 + 0) / 3) ** 0.5,
    }
    assert row(frame) == pytest.approx(expected)
    assert list(row(frame)) == list(expected)


def test_per_series_scores_are_those_of_utilsforecast() -> None:
    frame = results(windows=1, horizon=50)
    ours = score(frame, by="unique_id")
    columns = [f"q{level:g}" for level in LEVELS]

    def theirs(loss: Any, models: Any, **options: Any) -> NDArray[np.float64]:
        answer = loss(frame.drop("cutoff"), models=models, **options).sort("unique_id")
        return answer[:, 1].to_numpy()  # type: ignore[no-any-return]

    size = frame.group_by("unique_id").agg(pl.col("y").abs().mean()).sort("unique_id")["y"].to_numpy()
    for level, name in zip(LEVELS, columns, strict=True):
        loss = theirs(losses.quantile_loss, {name: name}, q=level)
        np.testing.assert_allclose(ours[f"R{level:g}"], 2 * loss / size)
    several = {"models": {"model": columns}, "quantiles": np.array(LEVELS)}
    np.testing.assert_allclose(ours["wql"], theirs(losses.scaled_crps, **several))
    np.testing.assert_allclose(ours["wql"], 2 * theirs(losses.mqloss, **several) / size)
    frame = frame.with_columns(pl.col("q0.1").alias("q-lo-80"), pl.col("q0.9").alias("q-hi-80"))
    np.testing.assert_allclose(ours["coverage_80"], theirs(losses.coverage, ["q"], level=80))
    np.testing.assert_allclose(ours["smape"], theirs(losses.smape, ["q0.5"]))
    np.testing.assert_allclose(ours["nd"], theirs(losses.nd, ["q0.5"]))
    np.testing.assert_allclose(ours["mae"], theirs(losses.mae, ["q0.5"]))
    np.testing.assert_allclose(ours["rmse"], theirs(losses.rmse, ["mean"]))


def test_mase_is_that_of_utilsforecast() -> None:
    train = pl.DataFrame(
        {
            "unique_id": np.repeat(["T0", "T1", "T2"], 30),
            "ds": np.tile(np.arange(-29, 1), 3),
            "y": np.random.default_rng(1).normal(size=90),
        }
    )
    scales = train.group_by("unique_id").agg((pl.col("y") - pl.col("y").shift(7)).abs().mean().alias("seasonal_error"))
    frame = results(windows=1).drop("seasonal_error").join(scales, on="unique_id")
    theirs = losses.mase(frame.drop("cutoff"), models=["q0.5"], seasonality=7, train_df=train).sort("unique_id")
    np.testing.assert_allclose(score(frame, by="unique_id")["mase"], theirs["q0.5"])


@pytest.mark.parametrize("seed", range(3))
def test_the_median_scores_as_normalised_deviation(seed: int) -> None:
    scores = row(results(seed))
    assert scores["R0.5"] == scores["nd"]


def test_overall_is_pooled_and_not_a_mean_of_series() -> None:
    frame = results().with_columns(y=pl.when(pl.col("unique_id") == "T0").then(100 * pl.col("y")).otherwise("y"))
    each = score(frame, by="unique_id")
    size = frame.group_by("unique_id").agg(pl.col("y").abs().sum()).sort("unique_id")["y"]
    assert row(frame)["R0.9"] == pytest.approx((each["R0.9"] * size).sum() / size.sum())
    assert row(frame)["R0.9"] != pytest.approx(each["R0.9"].mean())


def test_steps_count_from_each_cutoff_and_gaps_do_not_shift_them() -> None:
    frame = results()
    gap = frame.with_columns(y=pl.when(pl.col("ds") != 2).then("y")).sample(fraction=1, shuffle=True, seed=1)
    steps = score(gap, by="step")
    assert steps["step"].to_list() == [1, 2, 3, 4]
    assert steps["count"].to_list() == [6, 3, 6, 6]
    last = row(frame.filter(pl.col("ds") - pl.col("cutoff") == 4))
    assert steps.drop("step").row(3, named=True) == pytest.approx(last)


@pytest.mark.parametrize("by", ["unique_id", "cutoff"])
def test_groups_are_scored_as_if_alone(by: str) -> None:
    frame = results()
    scores = score(frame, by=by)
    assert scores[by].to_list() == sorted(set(frame[by]))
    for key in scores[by]:
        alone = row(frame.filter(pl.col(by) == key))
        assert scores.filter(pl.col(by) == key).drop(by).row(0, named=True) == pytest.approx(alone)


def test_crossing_quantiles_are_scored_as_they_are() -> None:
    crossed = row(results().rename({"q0.1": "q0.9", "q0.9": "q0.1"}))
    assert crossed["coverage_80"] == 0
    assert crossed["width_80"] < 0


@pytest.mark.parametrize("by", GROUPS)
def test_slices_change_nothing(by: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = results()
    whole = score(frame, by=by)
    monkeypatch.setattr(metrics, "SLICE", 7)
    assert_frame_equal(score(frame, by=by), whole)


def test_scores_repeat_bit_for_bit() -> None:
    frame = results(horizon=100_000).select("unique_id", "y", "mean")
    first = score(frame, by="unique_id")
    assert all(score(frame, by="unique_id").equals(first) for _ in range(5))


@pytest.mark.parametrize("by", GROUPS)
def test_every_library_gets_the_same_scores_back_in_its_own_kind(by: str | None) -> None:
    frame = results().with_columns(y=pl.when(pl.col("ds") != 2).then("y"))
    wanted = score(frame, by=by)
    pandas, arrow = score(frame.to_pandas(), by=by), score(frame.to_arrow(), by=by)
    assert type(pandas).__module__.startswith("pandas")
    assert type(arrow).__module__.startswith("pyarrow")
    assert_frame_equal(pl.DataFrame(pandas.to_dict("list")), wanted)
    assert_frame_equal(pl.DataFrame(arrow.to_pydict()), wanted)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), factor=st.sampled_from([1e-3, 0.5, 7.0, 1e6]))
def test_ratios_are_never_negative_and_do_not_depend_on_the_unit(seed: int, factor: float) -> None:
    frame = results(seed)
    scores = row(frame)
    assert all(scores[f"R{level:g}"] >= 0 for level in LEVELS)
    keys = ["unique_id", "ds", "cutoff"]
    scaled = row(frame.select(*keys, pl.exclude(keys) * factor))
    in_units = ("crps_quantiles", "mae", "rmse")
    assert scaled == pytest.approx({k: v * factor if k in in_units else v for k, v in scores.items()})


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), cut=st.integers(1, 23))
def test_two_parts_weighted_by_their_size_give_the_whole(seed: int, cut: int) -> None:
    frame = results(seed)
    parts = [frame.head(cut), frame.tail(-cut)]
    sizes = [float(part["y"].abs().sum()) for part in parts]
    scores, whole = [row(part) for part in parts], row(frame)
    for name in ("R0.1", "wql", "width_80", "nd"):
        assert whole[name] == pytest.approx(np.average([part[name] for part in scores], weights=sizes))
