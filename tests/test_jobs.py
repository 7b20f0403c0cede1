"""A folder of parts becomes a folder of results, whatever the number of workers; what does not fit is refused."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import logsparse as ls
from command import logsparse, refusal
from logsparse.errors import DataError
from logsparse.storage import lock
from small_shards import PARTS, contents, entries, frame, mounted, naive, network


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts, models, and the forecasts of each by one process."""
    folder = tmp_path_factory.mktemp("shards")
    ls.shard(frame(), folder / "parts", parts=PARTS)
    naive(folder / "naive")
    network(folder / "network")
    assert logsparse("predict", folder / "naive", folder / "parts", "-o", folder / "out", "--jobs", 1).code == 0
    return folder


@pytest.fixture
def begun(place: Path, tmp_path: Path) -> Path:
    """A copy of the forecasts."""
    return Path(shutil.copytree(place / "out", tmp_path / "out"))


def test_the_number_of_workers_changes_no_byte_and_a_part_is_what_predict_returns(place: Path, tmp_path: Path) -> None:
    made = [
        ls.predict_shards(place / "network", place / "parts", tmp_path / str(jobs), jobs=jobs, verbose=False)
        for jobs in (1, 2)
    ]
    assert made[0] == made[1] == ls.ShardRun(parts=PARTS, made=PARTS, series=40, rows=40 * 24, left_out=0)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    model = ls.load(place / "network", verbose=False)
    for name in contents(tmp_path / "1"):
        assert_frame_equal(pl.read_parquet(tmp_path / "1" / name), model.predict(place / "parts" / name))


def test_what_is_done_is_kept_and_what_is_lost_or_damaged_is_made_again(place: Path, begun: Path) -> None:
    again = ls.predict_shards(place / "naive", place / "parts", begun, jobs=1, verbose=False)
    assert (again.made, again.series, again.rows) == (0, 40, 40 * 24)
    lost, damaged, unlisted = sorted(contents(begun))[:3]
    (begun / lost).unlink()
    (begun / damaged).write_bytes(b"damaged")
    (begun / "_ledger" / "done" / unlisted).with_suffix(".json").unlink()
    assert ls.predict_shards(place / "naive", place / "parts", begun, jobs=1, verbose=False).made == 3
    assert contents(begun) == contents(place / "out")


def test_the_ledger_says_what_was_done(place: Path) -> None:
    name = "part-00002-of-00008"
    entry = json.loads((place / "out" / "_ledger" / "done" / f"{name}.json").read_text())
    assert {"part", "inputs", "output", "series", "rows", "seconds", "attempt"} <= set(entry)
    assert entry["inputs"]["data"]["bytes"] == (place / "parts" / f"{name}.parquet").stat().st_size
    assert len(ls.load(place / "out" / "_ledger" / "model" / "0").predict(frame())) == 40 * 24


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["naive", "parts", "--horizon", 12], "settings and one version. Got OUT, begun with horizon 24, now 12"),
        (["naive", "parts", "--quantiles", "0.5"], "0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, now 0.5"),
        (["network", "parts"], "Got OUT, begun with model "),
        (["naive", "changed"], "stay as they are until it is done. Got part-00001-of-00008.parquet, which has changed"),
        (["naive", "fewer"], "Got results of part-00001-of-00008.parquet in OUT, and no such part in the data"),
        (["naive", "parts", "--jobs", 0], "jobs must be at least 1. Got 0. Hint: count the workers"),
    ],
)  # fmt: skip
def test_a_folder_of_results_is_never_mixed(words: list[object], message: str, place: Path, begun: Path) -> None:
    before = contents(begun)
    for other in ("changed", "fewer"):
        folder = begun.parent / other
        shutil.copytree(place / "parts", folder)
        part = folder / "part-00001-of-00008.parquet"
        table = pl.read_parquet(part)
        table.with_columns(pl.col("y") + 1).write_parquet(part) if other == "changed" else part.unlink()
    model, data, *options = words
    data = place / "parts" if data == "parts" else begun.parent / str(data)
    said = refusal("predict", place / str(model), data, "-o", begun, *options)
    assert message in said.replace(str(begun), "OUT")
    assert contents(begun) == before


def test_other_files_and_other_processes_are_left_alone(place: Path, tmp_path: Path, begun: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    words = ("predict", place / "naive", place / "parts", "-o")
    assert f"Got {tmp_path / 'mine'} with notes.txt. Hint: give another folder" in refusal(*words, tmp_path / "mine")
    with lock(begun):
        assert "One process at a time writes to a folder of results. Got" in refusal(*words, begun)
    assert "must not be written over its inputs" in refusal(*words, place / "parts")
    assert "Results must be written outside of the data" in refusal(*words, place / "parts" / "out")
    assert "--jobs is for DATA that is a folder of parts. Got no DATA" in refusal(*words[:2], "--jobs", 2)
    assert "--ray writes one file per part, into a folder" in refusal(*words[:3], "--ray")
    assert "Columns are described by" not in refusal(*words, tmp_path / "new", "--on-bad", "x")


def test_parts_that_fail_are_named_and_the_others_are_finished(place: Path, tmp_path: Path) -> None:
    parts = Path(shutil.copytree(place / "parts", tmp_path / "parts"))
    part = parts / "part-00003-of-00008.parquet"
    good = part.read_bytes()
    half = pl.col("ds") - (pl.col("ds") - pl.col("ds").min()) / 2
    pl.read_parquet(part).with_columns(half).write_parquet(part)
    words = ("predict", place / "naive", parts, "-o", tmp_path / "out", "--jobs", 2)
    done = logsparse(*words)
    assert done.code == 2
    assert (
        "Every part must be worked off. Got part-00003-of-00008.parquet, which failed: New data must have the step "
        "that was fitted. Got steps of 30min after h. Hint: resample it, or fit again"
    ) in done.err
    assert "repeat the command: the 7 parts that this run has finished stay." in done.err
    assert len(entries(tmp_path / "out")) == 7
    part.write_bytes(good)
    assert logsparse(*words).code == 0
    assert contents(tmp_path / "out") == contents(place / "out")


def test_on_a_full_disk_finished_parts_stay_and_the_job_ends_after_room_is_made(place: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "192k") as disk:
        (disk / "other").write_bytes(bytes(100_000))
        words = ("predict", place / "naive", place / "parts", "-o", disk / "out", "--jobs", 1)
        done = logsparse(*words)
        assert done.code == 2
        assert "The folder of results must be writable. Got" in done.err
        assert "No space left on device" in done.err
        kept = len(entries(disk / "out"))
        assert 0 < kept < PARTS
        (disk / "other").unlink()
        done = logsparse(*words)
        assert done.code == 0, done.err
        assert f"wrote {PARTS - kept} parts" in done.err
        assert contents(disk / "out") == contents(place / "out")


def test_bad_series_are_left_out_and_named_and_covariates_come_in_parts(tmp_path: Path) -> None:
    heat = pl.col("ds").dt.hour().cast(pl.Float64)
    bad = pl.col("unique_id").is_in(["meter_3", "meter_4"]) & (pl.col("ds").dt.day() == 10)
    table = frame(8).with_columns(heat=heat, y=pl.when(bad).then(-9999.0).otherwise("y"))
    coming = frame(8, 11).filter(pl.col("ds").dt.day() == 11).with_columns(heat=heat)
    ls.shard(table, tmp_path / "parts", parts=2)
    ls.shard(coming.drop("y"), tmp_path / "future", parts=2)
    model = ls.LogSparse(horizon=24, context=24, steps=1, layers=1, width=8, heads=2, batch=4, verbose=False)
    model.fit(table, covariates=["heat"]).save(tmp_path / "model")
    words = ("predict", tmp_path / "model", tmp_path / "parts", "-o", tmp_path / "out", "--on-bad", "skip", "--jobs", 1)
    assert "a folder without parquet files in it" in refusal(*words, "--future", tmp_path / "model")
    for _ in range(2):
        done = logsparse(*words, "--future", tmp_path / "future")
        assert done.code == 3, done.err
        assert done.out == "series  6\nparts   2\nrows    144\n"
    assert "is complete already" in done.err
    found = pl.read_parquet(tmp_path / "out" / "*.parquet")
    assert set(found["unique_id"]) == {f"meter_{i}" for i in (0, 1, 2, 5, 6, 7)}


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts with text, a past covariate and a static column, a future with two series more, and a model of them."""
    folder = tmp_path_factory.mktemp("shops")
    number = pl.col("unique_id").str.extract(r"(\d+)").cast(pl.Int64)
    campaign = pl.when(pl.col("ds").dt.hour() < 9).then(pl.lit("night")).otherwise(pl.lit("day"))
    known = {"campaign": campaign, "visits": pl.col("y") / 2, "kind": pl.format("kind_{}", number % 2)}
    table = frame(8).with_columns(**known)
    coming = frame(10, 11).filter(pl.col("ds").dt.day() == 11).with_columns(**known).drop("y", "visits")
    small = ls.LogSparse(horizon=24, context=24, steps=2, layers=1, width=8, heads=2, batch=4, verbose=False)
    model = small.fit(table, covariates=["campaign"], past_covariates=["visits"], static=["kind"])
    model.save(folder / "model")
    table.write_parquet(folder / "table.parquet")
    coming.write_parquet(folder / "coming.parquet")
    ls.shard(table, folder / "parts", parts=2)
    ls.shard(coming, folder / "future", parts=2)
    return folder


def test_words_past_covariates_and_series_without_a_history_are_forecast_in_parts(shops: Path, tmp_path: Path) -> None:
    future = shops / "future"
    done = ls.predict_shards(shops / "model", shops / "parts", tmp_path / "out", jobs=1, verbose=False, future=future)
    assert (done.series, done.rows) == (10, 240)
    whole = ls.load(shops / "model", verbose=False).predict(shops / "table.parquet", future=shops / "coming.parquet")
    found = pl.concat(pl.read_parquet(path) for path in sorted((tmp_path / "out").glob("*.parquet")))
    assert_frame_equal(found.sort("unique_id", "ds"), whole.sort("unique_id", "ds"))


def test_a_part_that_only_the_future_has_is_not_forgotten(shops: Path, tmp_path: Path) -> None:
    ls.shard(
        pl.read_parquet(shops / "table.parquet").filter(pl.col("unique_id") == "meter_0"), tmp_path / "one", parts=2
    )
    words = ("predict", shops / "model", tmp_path / "one", "-o", tmp_path / "out", "--future", shops / "future")
    (missing,) = {path.name for path in (shops / "future").iterdir()} - {p.name for p in (tmp_path / "one").iterdir()}
    said = refusal(*words, "--jobs", 1)
    assert "must have parts of the same names as the data" in said
    assert f"Got {missing} in {shops / 'future'} only" in said


def test_a_series_that_is_left_out_is_not_forecast_as_a_new_one(shops: Path, tmp_path: Path) -> None:
    stranger, bad = pl.col("unique_id") == "meter_7", pl.col("ds").dt.day() == 10
    rename = pl.when(stranger).then(pl.lit("stranger")).otherwise("unique_id")
    table = pl.read_parquet(shops / "table.parquet").with_columns(
        y=pl.when(stranger & bad).then(-9999.0).otherwise("y")
    )
    coming = pl.read_parquet(shops / "coming.parquet").filter(pl.col("ds").dt.day() == 11)
    ls.shard(table.with_columns(unique_id=rename), tmp_path / "parts", parts=1)
    ls.shard(coming.with_columns(unique_id=rename), tmp_path / "future", parts=1)
    done = ls.predict_shards(
        shops / "model", tmp_path / "parts", tmp_path / "out", jobs=1, verbose=False, future=tmp_path / "future",
        on_bad="skip",
    )  # fmt: skip
    assert (done.left_out, done.series) == (1, 9)
    assert "stranger" not in pl.read_parquet(tmp_path / "out" / "*.parquet")["unique_id"]


def test_an_ensemble_forecasts_parts_as_it_forecasts_a_table(tmp_path: Path) -> None:
    small = ls.LogSparse(horizon=24, context=24, steps=2, layers=1, width=8, heads=2, batch=4, verbose=False)
    model = ls.Ensemble([small, ls.SeasonalNaive(horizon=24), ls.DeepAR(horizon=24, context=24, steps=1, layers=1)])
    model.fit(frame(6)).save(tmp_path / "model")
    ls.shard(frame(6), tmp_path / "parts", parts=2)
    for jobs in (1, 2):
        done = ls.predict_shards(tmp_path / "model", tmp_path / "parts", tmp_path / f"{jobs}", jobs=jobs, verbose=False)
        assert (done.series, done.rows) == (6, 144)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    found = pl.concat(pl.read_parquet(path) for path in sorted((tmp_path / "1").glob("*.parquet")))
    whole = ls.load(tmp_path / "model").predict(frame(6))
    assert_frame_equal(found.sort("unique_id", "ds"), whole.sort("unique_id", "ds"))


@pytest.mark.parametrize("option", [["--draw", "a.svg"], ["--offsets"]])
def test_options_of_one_table_are_refused_for_parts(option: list[str], place: Path, tmp_path: Path) -> None:
    said = refusal("predict", place / "naive", place / "parts", "-o", tmp_path / "out", "--jobs", 1, *option)
    assert f"A folder of parts is forecast without --draw and --offsets. Got {option[0]}. Hint: leave it out" in said
    assert not (tmp_path / "out").exists()


def test_a_backtest_of_parts_is_that_of_the_whole_and_is_scored_part_by_part(place: Path, tmp_path: Path) -> None:
    both = f"{place / 'naive'},{place / 'naive'}"
    for models, out in ((place / "naive", "one"), (both, "two")):
        words = ("backtest", models, place / "parts", "-o", tmp_path / out, "--windows", 2, "--jobs", 1)
        done = logsparse(*words)
        assert done.code == 0, done.err
        whole = logsparse("backtest", models, place / "parts", "--windows", 2, "-o", tmp_path / "whole.parquet")
        assert done.out == whole.out
        key = ["unique_id", "cutoff", "ds", *(["model"] if out == "two" else [])]
        parts = pl.concat(pl.read_parquet(path) for path in sorted((tmp_path / out).glob("*.parquet")))
        assert_frame_equal(parts.sort(key), pl.read_parquet(tmp_path / "whole.parquet").sort(key))
        for by in ("unique_id", "step"):
            scored = (ls.score(source, by=by) for source in (tmp_path / out, tmp_path / "whole.parquet"))
            assert_frame_equal(*scored)
    assert "tested with fitted models. Got seasonal-naive, which is a name" in refusal(
        "backtest", "seasonal-naive", place / "parts", "--horizon", 24, "-o", tmp_path / "three"
    )


def test_a_setting_that_is_not_one_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ls.ConfigError, match="the unknown keyword 'horizons'"):
        ls.predict_shards(place / "naive", place / "parts", tmp_path / "out", horizons=3)  # type: ignore[call-arg]
    with pytest.raises(ls.ConfigError, match=r"windows must be at least 1. Got 0"):
        ls.backtest_shards(place / "naive", place / "parts", tmp_path / "out", windows=0)


def test_a_part_of_late_series_is_found_by_the_ends_of_the_others(tmp_path: Path) -> None:
    ls.SeasonalNaive(horizon=24).fit(frame(12)).save(tmp_path / "model")
    parts = tmp_path / "parts"
    parts.mkdir()
    is_late = pl.col("unique_id").is_in(["meter_1", "meter_2"])
    table = frame(12).filter(~is_late | (pl.col("ds").dt.day() < 6))
    table.filter(is_late).write_parquet(parts / "late.parquet")
    table.filter(~is_late).write_parquet(parts / "others.parquet")
    run = partial(ls.predict_shards, tmp_path / "model", parts, jobs=1, verbose=False)
    assert (run(tmp_path / "all").left_out, run(tmp_path / "all").series) == (0, 12)
    done = run(tmp_path / "skip", on_bad="skip")
    assert (done.parts, done.left_out, done.series, done.rows) == (2, 2, 10, 240)
    assert [reason.split(",")[0] for reason in done.reasons] == [
        f"meter_{i}: stale: its last value is of 2024-01-05 23:00:00" for i in (1, 2)
    ]
    assert pl.read_parquet(tmp_path / "skip" / "late.parquet").is_empty()
    later = frame(12, days=11).filter(pl.col("ds").dt.day() == 11)
    assert ls.score(tmp_path / "skip", actuals=later)["count"].to_list() == [240]
    with pytest.raises(DataError, match=r"late.parquet, which failed: No series may have a bad finding"):
        run(tmp_path / "fail", on_bad="fail")
    whole = ls.load(tmp_path / "model").predict(table, on_bad="skip")
    found = pl.read_parquet(tmp_path / "skip" / "*.parquet")
    assert_frame_equal(found.sort("unique_id", "ds"), whole.sort("unique_id", "ds"))


def test_a_model_is_the_same_whether_it_is_loaded_or_a_folder(place: Path, tmp_path: Path) -> None:
    first = ls.predict_shards(place / "network", place / "parts", tmp_path / "out", jobs=1, verbose=False)
    loaded = ls.load(place / "network", verbose=False)
    again = ls.predict_shards(loaded, place / "parts", tmp_path / "out", jobs=1, verbose=False)
    assert (first.made, again.made) == (PARTS, 0)


@pytest.mark.parametrize(("fitted", "given"), [(pl.String, pl.Int64), (pl.Int64, pl.String)])
def test_all_parts_have_ids_of_the_type_of_the_model(fitted: pl.DataType, given: pl.DataType, tmp_path: Path) -> None:
    numbered = frame(series=12).with_columns(pl.col("unique_id").str.strip_prefix("meter_").cast(pl.Int64))
    some = numbered.filter(pl.col("unique_id") == 3).cast({"unique_id": fitted})
    ls.shard(numbered.cast({"unique_id": given}), tmp_path / "parts", parts=4)
    model = ls.SeasonalNaive(horizon=24).fit(some)
    ls.predict_shards(model, tmp_path / "parts", tmp_path / "out", jobs=1, verbose=False)
    found = pl.read_parquet(tmp_path / "out" / "*.parquet")["unique_id"]
    assert (found.dtype, found.n_unique()) == (fitted, 12)


def test_parts_with_endings_in_capitals_are_read(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "parts", tmp_path / "parts")
    first = min(contents(tmp_path / "parts"))
    (tmp_path / "parts" / first).rename(tmp_path / "parts" / first.replace(".parquet", ".PARQUET"))
    done = ls.predict_shards(place / "naive", tmp_path / "parts", tmp_path / "out", jobs=1, verbose=False)
    assert (done.parts, done.series) == (PARTS, 40)
