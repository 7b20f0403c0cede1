"""A folder of parts that does not fit into memory is read into temporary files; results are the same, bit for bit."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.data import frame as reading
from logsparse.data import mapped
from logsparse.data.mapped import empty_like, gathered, is_mapped
from logsparse.data.panel import Panel
from logsparse.errors import DataError

COLUMNS: dict[str, Any] = {"covariates": ["heat", "holiday"], "past_covariates": ["rain"], "static": ["town"]}
TOWNS = ["Ulm", "Jena", "Bonn"]
SMALL: dict[str, Any] = {
    "context": 24, "steps": 4, "layers": 1, "width": 8, "heads": 2, "kernel": 2, "batch": 8, "verbose": False,
}  # fmt: skip


def meters(series: int = 12, steps: int = 240, until: int | None = None) -> pl.DataFrame:
    """Hourly series of different lengths, with gaps, covariates of numbers and words, and towns."""
    rng, tables = np.random.default_rng(0), []
    for i in range(series):
        length = steps - 7 * (i % 3)
        hours = np.arange(length)
        values = 10 + i + np.sin(hours * np.pi / 12) + rng.normal(size=length) / 10
        values[rng.integers(0, length, 5)] = np.nan
        words = np.array(["no", "eve", f"day {i}"])[rng.integers(0, 3, length)]
        tables.append(
            pl.DataFrame(
                {
                    "unique_id": [f"m{i}"] * length,
                    "ds": np.datetime64("2024-01-01", "us") + hours * np.timedelta64(3600, "s"),
                    "y": pl.Series(values, nan_to_null=True),
                    "heat": rng.normal(size=length),
                    "rain": rng.normal(size=length),
                    "holiday": words,
                    "town": [TOWNS[i % 3]] * length,
                }
            ).head(until if until is not None else length)
        )
    return pl.concat(tables)


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    ls.shard(meters(until=200), tmp_path / "parts", parts=4)
    return tmp_path / "parts"


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function after whose call folders are too large for memory, but single parts are not."""
    return lambda: monkeypatch.setattr(reading, "_MOST_MEMORY", 0)


def assert_equal(one: Panel, other: Panel) -> None:
    assert (one.ids, one.freq, one.origin, one.past, one.words) == (
        other.ids, other.freq, other.origin, other.past, other.words,
    )  # fmt: skip
    for name in ("values", "indptr", "lengths", "starts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert list(one.covariates) == list(other.covariates)
    for name, flat in one.covariates.items():
        np.testing.assert_array_equal(flat, other.covariates[name])
    for name, column in one.static.items():
        assert column.categories == other.static[name].categories
        np.testing.assert_array_equal(column.codes, other.static[name].codes)


def losses(model: ls.LogSparse) -> list[tuple[float, float]]:
    return [(row["nll"], row["validation_nll"]) for row in model.history_.rows]


def test_a_mapped_panel_equals_one_in_memory(parts: Path, on_disk: Callable[[], None]) -> None:
    in_memory = ls.to_panel(parts, **COLUMNS)
    on_disk()
    panel = ls.to_panel(parts, **COLUMNS)
    assert is_mapped(panel.values)
    assert all(is_mapped(flat) for flat in panel.covariates.values())
    assert not is_mapped(in_memory.values)
    assert len(panel.words["holiday"]) == 14
    assert_equal(panel, in_memory)


def test_what_is_derived_from_a_mapped_panel_is_mapped_and_equal(parts: Path, on_disk: Callable[[], None]) -> None:
    in_memory = ls.to_panel(parts, **COLUMNS)
    on_disk()
    panel = ls.to_panel(parts, **COLUMNS)
    kept = np.arange(len(panel)) % 2 == 0
    ways: list[Callable[[Panel], Panel]] = [lambda p: p.keep(kept), lambda p: p.reaching(5), Panel.to_last_value]
    for derive in ways:
        assert is_mapped(derive(panel).values)
        assert_equal(derive(panel), derive(in_memory))


@pytest.mark.parametrize("columns", [{}, COLUMNS], ids=["values", "covariates"])
def test_training_and_forecasts_are_the_same_to_the_last_bit(
    parts: Path, on_disk: Callable[[], None], columns: dict[str, Any]
) -> None:
    future = meters().drop("y", "rain") if columns else None

    def run() -> tuple[ls.LogSparse, pl.DataFrame, pl.DataFrame]:
        model = ls.LogSparse(6, **SMALL).fit(parts, **columns)
        return model, model.predict(future=future), model.predict(parts, future=future, on_bad="skip")

    model, fitted, given = run()
    on_disk()
    mapped_model, *forecasts = run()
    assert is_mapped(mapped_model.panel_.values)
    assert mapped_model.config_ == model.config_
    assert losses(mapped_model) == losses(model)
    assert forecasts[0].equals(fitted)
    assert forecasts[1].equals(given)


def test_a_model_of_mapped_data_is_saved_tested_and_checked(
    parts: Path, on_disk: Callable[[], None], tmp_path: Path
) -> None:
    tested = ls.backtest(ls.LogSparse(6, **SMALL), parts, windows=2, refit=True)
    on_disk()
    assert ls.backtest(ls.LogSparse(6, **SMALL), parts, windows=2, refit=True).equals(tested)
    model = ls.LogSparse(6, **SMALL).fit(parts)
    model.save(tmp_path / "model")
    assert ls.load(tmp_path / "model").predict().equals(model.predict())
    assert ls.check(parts, model=model).ok


def test_a_file_is_removed_with_the_last_array_that_uses_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with mapped.Spool() as spool:
        spool.add(np.arange(3, dtype=np.float32))
        spool.add(np.arange(2, dtype=np.float32))
        flat = spool.array()
    assert list(tmp_path.iterdir()) == []
    assert gathered(flat, np.array([3, 0]), np.array([2, 1])).tolist() == [0, 1, 0]
    assert len(empty_like(flat, 0)) == 0


def test_temporary_files_lie_where_large_ones_belong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    large = Path("/var/tmp")  # noqa: S108
    assert mapped.place() == (large if os.access(large, os.W_OK) else Path(tempfile.gettempdir()))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert mapped.place() == tmp_path


def test_a_series_in_two_parts_is_refused(parts: Path, on_disk: Callable[[], None]) -> None:
    one = pl.read_parquet(parts / "part-00000-of-00004.parquet")
    one.head(3).write_parquet(parts / "part-more.parquet")
    on_disk()
    with pytest.raises(DataError, match=r"Each series must lie whole in one part. Got series 'm\d+' in part-00000"):
        ls.to_panel(parts)


def test_parts_of_another_step_are_refused(parts: Path, on_disk: Callable[[], None]) -> None:
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 2, 1), eager=True).cast(pl.Datetime("us"))
    one = pl.read_parquet(parts / "part-00000-of-00004.parquet").head(len(days))
    one.with_columns(unique_id=pl.lit("new"), ds=days).write_parquet(parts / "part-more.parquet")
    on_disk()
    with pytest.raises(
        DataError, match=r"The parts of a folder must have the same step. Got h, and d in part-more.parquet"
    ):
        ls.to_panel(parts)


def test_a_part_that_does_not_show_its_step_has_that_of_the_others(parts: Path, on_disk: Callable[[], None]) -> None:
    one = pl.read_parquet(parts / "part-00000-of-00004.parquet").head(1)
    one.with_columns(unique_id=pl.lit("new")).write_parquet(parts / "part-more.parquet")
    in_memory = ls.to_panel(parts)
    on_disk()
    assert_equal(ls.to_panel(parts), in_memory)


def test_words_in_some_parts_and_numbers_in_others_are_refused(tmp_path: Path, on_disk: Callable[[], None]) -> None:
    for name, kinds in (("a", ["x", "y", "z"]), ("b", ["1", "2", "3"])):
        table = pl.DataFrame({"unique_id": name, "ds": range(3), "y": [1.0, 2.0, 3.0], "kind": kinds})
        table.write_parquet(tmp_path / f"{name}.parquet")
    on_disk()
    with pytest.raises(DataError, match="'kind'"):
        ls.to_panel(tmp_path, covariates=["kind"])


def test_a_full_disk_has_a_message(parts: Path, on_disk: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    on_disk()
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    rule = "Data that do not fit into memory need a temporary file. Got"
    with pytest.raises(DataError, match=re.escape(rule) + r".*No space left on device.*TMPDIR"):
        ls.to_panel(parts)


def test_values_may_be_a_map_of_your_own(tmp_path: Path) -> None:
    panel = ls.to_panel(meters())
    np.save(tmp_path / "values.npy", panel.values)
    own = Panel(
        np.load(tmp_path / "values.npy", mmap_mode="r"),
        panel.indptr,
        panel.lengths,
        panel.ids,
        panel.starts,
        panel.freq,
    )
    assert is_mapped(own.values)
    (one, other) = (ls.LogSparse(6, **SMALL).fit(data) for data in (own, panel))
    assert losses(one) == losses(other)
    assert one.predict().equals(other.predict())
