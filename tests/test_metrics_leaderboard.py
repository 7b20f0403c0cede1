"""`score` of several models: a leaderboard, fair and sorted; `by` any column of the results."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import logsparse as ls
from logsparse.errors import ConfigError, DataError
from report_pages import models, nearer, results

FRAME = results()
GOOD = nearer(FRAME, 0.5)
MEDIAN = nearer(FRAME, 0.9).drop("q0.1", "q0.25", "q0.75", "q0.9")


def test_models_are_scored_as_alone_and_the_best_is_first() -> None:
    board = ls.score(models(plain=FRAME, good=GOOD))
    assert board["model"].to_list() == ["good", "plain"]
    assert board["wql"].is_sorted()
    for name, frame in {"plain": FRAME, "good": GOOD}.items():
        alone = ls.score(frame)
        assert board.filter(model=name).select(alone.columns).equals(alone)


def test_skill_is_the_share_of_the_error_of_seasonal_naive_that_is_saved() -> None:
    naive = ls.score(FRAME.select("unique_id", "y", mean="seasonal_naive"))["mae"].item()
    row = ls.score(models(good=GOOD)).row(0, named=True)
    assert row["skill"] == pytest.approx(1 - row["mae"] / naive)
    itself = FRAME.with_columns(pl.col("seasonal_naive").alias(name) for name in ("mean", "q0.5"))
    assert ls.score(models(same=itself))["skill"].item() == 0
    assert "skill" not in ls.score(FRAME).columns, "one model is scored as before"
    assert "skill" not in ls.score(models(good=GOOD.drop("seasonal_naive"))).columns
    hole = pl.when(pl.int_range(pl.len()) > 0).then("seasonal_naive").alias("seasonal_naive")
    assert "skill" not in ls.score(models(good=GOOD.with_columns(hole))).columns, "of all values or of none"


def test_a_model_without_some_quantiles_is_compared_by_what_all_have() -> None:
    board = ls.score(models(plain=FRAME, median=MEDIAN, good=GOOD))
    assert board["model"].to_list() == ["median", "good", "plain"]
    assert board["nd"].is_sorted()
    assert board["wql"].is_null().to_list() == [True, False, False]
    row = board.filter(model="median").row(0, named=True)
    assert (row["R0.1"], row["coverage_80"], row["crps_quantiles"]) == (None, None, None)
    assert row["R0.5"] == pytest.approx(row["nd"])


def test_a_missing_forecast_among_others_is_refused_also_in_a_leaderboard() -> None:
    hole = pl.when(pl.int_range(pl.len()) > 0).then("q0.9").alias("q0.9")
    with pytest.raises(
        DataError, match=r"A forecast must be finite wherever y is known. Got q0.9 = None in series 's0'"
    ):
        ls.score(models(plain=FRAME, good=GOOD.with_columns(hole)))


@pytest.mark.parametrize("by", ["unique_id", "step", "cutoff", "kind"])
def test_by_gives_one_row_per_model_in_the_order_of_the_leaderboard(by: str) -> None:
    kind = pl.when(pl.col("unique_id") == "s0").then(pl.lit("x")).otherwise(pl.lit("w")).alias("kind")
    both = models(plain=FRAME, good=GOOD).with_columns(kind)
    scores = ls.score(both, by=by)
    assert scores.columns[:2] == [by, "model"]
    assert scores["model"].to_list() == ["good", "plain"] * (scores.height // 2)
    alone = ls.score(GOOD.with_columns(kind), by=by)
    assert scores.filter(model="good").select(alone.columns).equals(alone)


def test_one_model_is_scored_by_a_static_column_too() -> None:
    frame = FRAME.with_columns(size=pl.col("unique_id").replace_strict({"s0": 1, "s1": 2, "s2": 1}))
    scores = ls.score(frame, by="size")
    assert scores["size"].to_list() == [1, 2]
    assert scores["count"].to_list() == [16, 8]
    expected = ls.score(frame.filter(size=2))
    assert_frame_equal(scores.filter(size=2).drop("size"), expected)


@pytest.mark.parametrize("by", ["y", "mean", "q0.5", "seasonal_naive", "region"])
def test_by_a_forecast_or_a_column_that_is_not_there_is_refused(by: str) -> None:
    with pytest.raises(ConfigError, match=rf"or another column of the results, such as a static one. Got '{by}'. Hint"):
        ls.score(FRAME, by=by)
    with pytest.raises(ConfigError, match="Hint: did you mean 'kind'"):
        ls.score(FRAME.with_columns(kind=pl.lit("a")), by="knd")


def test_models_on_different_windows_are_not_ranked() -> None:
    with pytest.raises(
        DataError, match=r"must have the same series, times, cutoffs and y. Got 24 rows of plain and 23 of"
    ):
        ls.score(models(plain=FRAME, good=GOOD[1:]))
    other = GOOD.with_columns(y=pl.col("y") + 1)
    with pytest.raises(DataError, match="only plain has unique_id s0, ds 1, cutoff 0, y "):
        ls.score(models(plain=FRAME, good=other))


def test_a_row_without_a_model_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"needs a model. Got none in 24 rows. Hint: fill the column 'model', or drop it"
    ):
        ls.score(pl.concat([models(good=GOOD), FRAME], how="diagonal"))


def test_a_leaderboard_survives_files_and_other_libraries(tmp_path_factory: pytest.TempPathFactory) -> None:
    both, folder = models(plain=FRAME, median=MEDIAN), tmp_path_factory.mktemp("files")
    wanted = ls.score(both)
    assert ls.score(both.to_pandas())["model"].to_list() == wanted["model"].to_list()
    both.write_csv(folder / "both.csv")
    assert ls.score(folder / "both.csv")["nd"].to_list() == pytest.approx(wanted["nd"].to_list())
    assert ls.score(both.clear()).height == 0
