"""The tasks on which the default is chosen: their spans lie apart, those for choosing before those for testing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from logsparse.data.frame import to_panel
from logsparse.data.panel import Panel
from logsparse.data.times import stamps

if TYPE_CHECKING:
    from single import Single

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


class Span(NamedTuple):
    """First and last tested step, and where training begins."""

    start: datetime
    first: datetime
    last: datetime

    def overlaps(self, other: Span) -> bool:
        return self.first <= other.last and other.first <= self.last


@pytest.fixture(scope="module")
def recipe(shared_data: Path) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGSPARSE_DATA", str(shared_data))
        patch.syspath_prepend(BENCHMARKS)
        import recipe

        # Several tasks use the same file, and reading a file is slow.
        patch.setattr(recipe, "to_panel", _remembered(to_panel))
        yield recipe


@pytest.fixture(scope="module")
def single(recipe: ModuleType) -> ModuleType:
    assert recipe, "imported before, from the same folder"
    import single

    return single


def _remembered(read: Callable[..., Panel]) -> Callable[..., Panel]:
    by_path = lru_cache(read)
    return lambda data, **columns: by_path(data) if isinstance(data, Path) else read(data, **columns)


def panel_span(recipe: ModuleType, name: str, span: str) -> Span:
    """The span of the series that ends last; series of M4 are years apart."""
    task = recipe.TASKS[name]
    panel: Panel = recipe.panel_of(task, span)
    ends = panel.ends()
    series = int(np.argmax(ends))
    back = np.array([0, int(panel.lengths[series]) - task.horizon * task.windows, int(panel.lengths[series]) - 1])
    start, first, last = stamps(panel, panel.freq.add(np.full(3, panel.starts[series]), back)).to_list()
    return Span(start, first, last)


def series_span(task: Single, span: str) -> Span:
    times = task.rows(span)["ds"]
    return Span(times[0], times[len(times) - task.horizon * task.windows(span)], times[-1])


def test_no_panel_is_validated_on_a_span_of_any_test(recipe: ModuleType) -> None:
    spans = {(name, span): panel_span(recipe, name, span) for name in recipe.TASKS for span in ("validation", "test")}
    for name in recipe.TASKS:
        chosen = spans[name, "validation"]
        assert chosen.last < spans[name, "test"].first, name
        assert chosen.first - chosen.start > chosen.last - chosen.first, f"{name} has little to learn from"
        for other in recipe.TASKS:
            same = recipe.TASKS[name].file.split("_")[0] == recipe.TASKS[other].file.split("_")[0]
            assert not (same and chosen.overlaps(spans[other, "test"])), f"{name} is validated on the test of {other}"


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("traffic-thanksgiving", "11-24"),
        ("traffic-christmas", "12-25"),
        ("cambridge-christmas", "12-25"),
        ("parking-christmas", "12-25"),
    ],
)
def test_special_weeks_contain_their_day_and_are_validated_on_another_holiday(
    recipe: ModuleType, name: str, day: str
) -> None:
    tested, chosen = (panel_span(recipe, name, span) for span in ("test", "validation"))
    holiday = datetime.fromisoformat(f"{tested.last.year}-{day}")
    assert tested.first <= holiday < tested.last
    assert tested.last - tested.first < timedelta(days=7)
    former = {"traffic-thanksgiving": "2015-11-26", "parking-christmas": "2023-10-03"}
    before = datetime.fromisoformat(former.get(name, f"{chosen.last.year}-{day}"))
    assert chosen.first <= before < chosen.last


def test_wind_farms_have_a_forecast_of_the_wind_for_every_hour_and_are_tested_on_whole_days(recipe: ModuleType) -> None:
    tested = panel_span(recipe, "wind", "test")
    assert (tested.first, tested.last) == tuple(map(datetime.fromisoformat, ("2012-06-21", "2012-06-27T23:00")))
    for span in ("validation", "test"):
        panel = recipe.panel_of(recipe.TASKS["wind"], span)
        assert len(panel) == 7
        for series in range(7):
            begin = panel.indptr[series]
            speed = panel.covariates["wind_speed"][begin : begin + panel.lengths[series]]
            assert not np.isnan(speed).any()
            assert np.corrcoef(speed, panel[series])[0, 1] > 0.5


def test_every_group_of_single_series_is_complete(single: ModuleType) -> None:
    counts = {"etth1": 7, "traffic": 8, "solar": 8, "cambridge": 8, "parking": 8}
    kinds = ("full", "1000", "300", "100", "daily", "weekly")
    wanted = {f"{name}-{kind}": count for name, count in counts.items() for kind in kinds}
    found = [*single.tasks()]
    assert Counter(task.group for task in found) == {**wanted, "m4": 20}
    assert len({(task.group, task.series) for task in found}) == len(found)


def test_single_series_are_validated_just_before_their_test_and_before_that_of_their_panel(
    single: ModuleType, recipe: ModuleType
) -> None:
    tests = {name: panel_span(recipe, name, "test") for name in single.SETS}
    for task in single.tasks():
        chosen, tested = series_span(task, "validation"), series_span(task, "test")
        step = (tested.last - tested.first) / (task.horizon * task.test_windows - 1)
        assert tested.first - chosen.last == step, task
        panel = tests.get(task.group.split("-")[0])
        assert panel is None or chosen.last + step <= panel.first, task


def test_a_short_series_has_as_many_steps_before_its_windows_as_its_group_says(single: ModuleType) -> None:
    for task in single.tasks():
        for span in ("validation", "test"):
            known = task.rows(span).head(-task.horizon * task.windows(span))
            if task.length is not None:
                assert known.height == task.length == int(task.group.split("-")[1]), task
            assert known.height >= 2 * task.horizon or task.group == "parking-100", task
            assert known["y"].drop_nulls().n_unique() > 1, task


def test_sums_are_of_whole_days_and_of_weeks_from_monday_on(single: ModuleType) -> None:
    hours = next(single.tasks(["etth1-full"])).rows("test")
    days, weeks = (next(single.tasks([f"etth1-{kind}"])).rows("test") for kind in ("daily", "weekly"))
    assert days["ds"][-1] == datetime.fromisoformat("2018-06-25")  # the 26th ends at 19:00
    assert days["y"][0] == pytest.approx(hours["y"][:24].sum())
    assert weeks["ds"].dt.weekday().unique().to_list() == [1]
    assert weeks["y"][0] == pytest.approx(days["y"][3:10].sum())


def test_a_run_is_found_again_by_its_settings_label_seed_and_span(
    single: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = next(single.tasks(["etth1-100"]))
    naive, network = single.Run("seasonal-naive"), single.Run("logsparse", ("steps=1",), "", 0)
    table = single.Table(tmp_path / "single.csv")
    table.add(single.evaluate(task, [naive, single.Run("ets")], "validation"))
    table.add(single.evaluate(task, [network], "validation"))
    again = single.Table(tmp_path / "single.csv")
    row = again.row(network.key(task, "validation"))
    best = min(float(again.row(run.key(task, "validation"))["wql"]) for run in (naive, single.Run("ets")))
    assert float(row["ratio"]) == pytest.approx(float(row["wql"]) / best, rel=1e-3)
    assert again.row(network.key(task, "test")) is None
    assert again.row(single.Run("logsparse", ("steps=2",), "", 0).key(task, "validation")) is None
    assert "etth1-100" in single.summary(again, [task], [network], "validation")
    assert "seed=0" in capsys.readouterr().out


def test_a_series_too_short_for_a_model_is_a_row_with_the_reason_and_counts_as_lost(
    single: ModuleType, tmp_path: Path
) -> None:
    task, run = next(single.tasks(["parking-100"])), single.Run("logsparse", ("blend=0",), "", 0)
    table = single.Table(tmp_path / "single.csv")
    table.add(single.evaluate(task, [run], "validation"))
    row = single.Table(tmp_path / "single.csv").row(run.key(task, "validation"))
    assert row["wql"] == ""
    assert "193 are needed" in row["note"]
    assert single.summary(table, [task], [run], "validation").split()[-5:] == ["all", "1", "1", "inf", "inf"]


def test_the_test_span_needs_the_number_of_its_use(
    single: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["single.py", "--test"])
    with pytest.raises(SystemExit):
        single.main()
    assert "--label 'look N'" in capsys.readouterr().err
