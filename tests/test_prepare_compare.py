"""The check says which of T, M, S and the span differ, and whether the file is the one that was made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logsparse.data.frame import to_panel
from logsparse.errors import DataError
from logsparse.paper.catalogue import DATASETS, DataSet, named
from logsparse.paper.prepare import check, checked, compare, locate, note

SMALL = DataSet("small", (48,), 2, "h", ("2024-01-01 00:00", "2024-01-02 23:00"))
SPAN = "2024-01-01 to 2024-01-02 23:00"


def frame(hours: int = 48, series: int = 2, step: str = "1h") -> pl.DataFrame:
    times = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 2, 1), step, eager=True)[:hours]
    return pl.DataFrame({"ds": times, **{f"s{i}": np.ones(hours) for i in range(series)}})


def differing(table: pl.DataFrame) -> list[str]:
    return [f"{f.what}: {f.here}, not {f.wanted}" for f in compare(SMALL, to_panel(table)) if not f.agrees]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (frame(), []),
        (frame(series=3), ["M: 3, not 2"]),
        (frame(hours=47), ["T: 47, not 48", f"span: 2024-01-01 to 2024-01-02 22:00, not {SPAN}"]),
        (frame(step="30m"), ["S: 30 mins, not 1 hour", f"span: 2024-01-01 to 2024-01-01 23:30, not {SPAN}"]),
    ],
)
def test_differences_are_reported(table: pl.DataFrame, said: list[str]) -> None:
    assert differing(table) == said


def test_either_count_of_steps_is_accepted_and_both_are_shown() -> None:
    gap = frame(72).filter(pl.int_range(pl.len()).is_between(10, 33).not_())
    longer = DataSet("small", (48,), 2, "h", gaps=24)
    finding = compare(longer, to_panel(gap))[0]
    assert (finding.here, finding.agrees) == ("72 on the calendar, 48 observed", True)
    assert compare(replace(longer, lengths=(72,)), to_panel(gap))[0].agrees
    assert not compare(replace(longer, lengths=(71,)), to_panel(gap))[0].agrees


@pytest.mark.parametrize("lengths", [(48,), (72,)])
def test_a_set_with_more_or_fewer_gaps_than_its_source_leaves_is_another_one(lengths: tuple[int]) -> None:
    gap = to_panel(frame(72).filter(pl.int_range(pl.len()).is_between(10, 33).not_()))
    for gaps in (0, 23, 25):
        assert not compare(DataSet("small", lengths, 2, "h", gaps=gaps), gap)[0].agrees


def test_a_set_that_differs_from_the_catalogue_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    late = frame(48).with_columns(pl.col("ds").dt.offset_by("-7y"))
    late.write_parquet(tmp_path / "etth1.parquet")
    text = r"etth1.parquet must be the data set etth1\. Got T = 48 where 17420 is known, M = 2 where 7 is known, span"
    with pytest.raises(DataError, match=text):
        checked("etth1")
    with pytest.raises(DataError, match=r"Hint: `logsparse data check etth1` shows more; move it away: "):
        checked("etth1")


def test_of_many_lengths_the_first_and_the_last_are_shown() -> None:
    ragged = frame(48, 5).with_columns(
        pl.when(pl.int_range(pl.len()) >= i).then(f"s{i}").alias(f"s{i}") for i in range(5)
    )
    assert compare(SMALL, to_panel(ragged))[0].here == "44 to 48"


def test_a_file_that_was_changed_after_it_was_made_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    path = tmp_path / named("etth1").file
    times = pl.datetime_range(named("etth1").first, named("etth1").last, "1h", eager=True)
    table = pl.DataFrame({"ds": times, **{f"s{i}": np.ones(len(times)) for i in range(7)}})
    table.write_parquet(path)
    report = check("etth1")
    assert report.agrees
    assert "made elsewhere: no record of its originals" in report.remarks
    record = note("etth1", "a source", [], {}, path)
    report = check("etth1")
    assert report.agrees
    assert f"made {record.made} from a source" in report.remarks
    table.with_columns(s0=pl.lit(2.0)).write_parquet(path)
    report = check("etth1")
    assert not report.agrees
    assert any("NOT the file that was made here" in remark for remark in report.remarks)


def test_the_real_sets_agree_with_the_paper(shared_data: Path) -> None:
    assert shared_data
    reports = {dataset.name: check(dataset.name) for dataset in DATASETS if locate(dataset)}
    assert {"solar", "m4-hourly", "electricity-c-fortnight"} <= reports.keys()
    assert [name for name, report in reports.items() if not report.agrees] == []
    assert reports["solar"].remarks[0] == "2,928 steps of the file outside the span are left out"
