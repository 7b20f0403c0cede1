"""PEMS-SF: shuffled days come back in order, with their dates, as means of bins closed on the left."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from logsparse.data.frame import to_panel
from logsparse.errors import DataError
from logsparse.paper.catalogue import named
from logsparse.paper.prepare import compare
from logsparse.paper.sources import read_traffic
from original_files import HOLIDAYS, Doubles, found, pems, pems_days, vector

DAYS = pems_days()


@pytest.fixture
def values() -> Doubles:
    """Occupancy whose value encodes day, lane and time."""
    return np.round(np.random.default_rng(1).uniform(0, 1, (len(DAYS), 2, 144)), 4)


@pytest.mark.parametrize(("name", "minutes", "per_bin"), [("traffic-c", 60, 6), ("traffic-f", 20, 2)])
def test_each_bin_is_the_mean_of_the_ten_minutes_that_begin_in_it(
    name: str, minutes: int, per_bin: int, values: Doubles, tmp_path: Path
) -> None:
    wide = read_traffic(found(tmp_path, pems(DAYS, values)), named(name))
    assert wide.columns == ["ds", "400000", "400001"]
    assert (wide["ds"][0], wide["ds"][-1]) == (named(name).first, named(name).last)
    rows = dict(zip(wide["ds"].to_list(), wide.drop("ds").rows(), strict=True))
    for day in (0, 18, 19, 100, 167):
        for place in (0, 5, 144 // per_bin - 1):
            start = datetime.combine(DAYS[day], datetime.min.time()) + place * timedelta(minutes=minutes)
            slow = [sum(values[day, lane, place * per_bin + i] for i in range(per_bin)) / per_bin for lane in (0, 1)]
            assert rows[start] == pytest.approx(slow, rel=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_both_counts_of_the_paper_come_out(values: Doubles, seed: int, tmp_path: Path) -> None:
    files = found(tmp_path, pems(DAYS, values, seed))
    for name, calendar, observed in (("traffic-c", 4145, 4049), ("traffic-f", 12435, 12147)):
        dataset = replace(named(name), series=2)
        panel = to_panel(read_traffic(files, dataset), freq=dataset.step)
        first = compare(dataset, panel)[0]
        assert first.here == f"{calendar} on the calendar, {observed} observed"
        assert first.agrees


def test_the_days_that_the_archive_leaves_out_are_missing_values(values: Doubles, tmp_path: Path) -> None:
    panel = to_panel(read_traffic(found(tmp_path, pems(DAYS, values)), named("traffic-c")), freq="h")
    empty = np.flatnonzero(np.isnan(panel[0])).reshape(-1, 24)[:, 0] // 24
    assert [date(2008, 1, 2) + timedelta(days=int(day)) for day in empty] == HOLIDAYS[:4]


def test_a_week_that_begins_on_monday_makes_no_difference(values: Doubles, tmp_path: Path) -> None:
    files = pems(DAYS, values)
    monday = {
        name: vector([(int(label) + 5) % 7 + 1 for label in files[name].strip(b"[]\n").split()])
        for name in ("PEMS_trainlabels", "PEMS_testlabels")
    }
    ours = read_traffic(found(tmp_path / "a", files), named("traffic-c"))
    assert read_traffic(found(tmp_path / "b", files | monday), named("traffic-c")).equals(ours)


def test_stations_with_the_same_number_are_named_by_position_too(values: Doubles, tmp_path: Path) -> None:
    files = pems(DAYS, values) | {"stations_list": vector([7, 7])}
    assert read_traffic(found(tmp_path, files), named("traffic-c")).columns == ["ds", "7_0", "7_1"]


def shuffled_wrongly(files: dict[str, bytes]) -> dict[str, bytes]:
    order = [int(number) for number in files["randperm"].strip(b"[]\n").split()]
    return {"randperm": vector((np.argsort(order) + 1).tolist())}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (shuffled_wrongly, "randperm with the labels must .* disagree with the calendar from 2008-01-02"),
        (lambda _: {"randperm": vector([1, 2, 3])}, "randperm must .* Got 3 numbers that do not count the 186 lab"),
        (lambda _: {"stations_list": b"400000\n"}, "stations_list must .* instead of whole numbers in brackets"),
        (lambda _: {"stations_list": vector([1])}, "PEMS_train must .* a day of 2 rows with 144 to 144 numbers, not 1"),
        (lambda f: {"PEMS_test": f["PEMS_test"].rpartition(b"\n[")[0]}, "PEMS_test must .* Got 74 days for the 75 of"),
        (lambda f: {"PEMS_train": f["PEMS_test"], "PEMS_test": f["PEMS_train"]}, "PEMS_train .* Got 75 days for the 1"),
        (lambda _: {"randperm": b"[99999999999999999999 1]"}, "randperm must .* instead of whole numbers in brackets"),
        (lambda _: {"randperm": b"[ ]"}, "randperm must .* instead of whole numbers in brackets"),
        (lambda f: {"PEMS_train": f["PEMS_train"].replace(b" 0.", b" O.")}, "PEMS_train must .* something that is no"),
        (lambda f: {"PEMS_train": f["PEMS_train"].replace(b";", b" ")}, "PEMS_train must .* a day of 1 rows with 288"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_together_are_refused(damage: object, said: str, values: Doubles, tmp_path: Path) -> None:
    files = pems(DAYS, values)
    assert callable(damage)
    with pytest.raises(DataError, match=said):
        read_traffic(found(tmp_path, files | damage(files)), named("traffic-c"))


def test_days_that_are_missing_beyond_the_known_ones_are_refused(values: Doubles, tmp_path: Path) -> None:
    files = pems(DAYS[:50] + DAYS[51:], np.delete(values, 50, axis=0))
    with pytest.raises(DataError, match=f"first at {DAYS[50]}"):
        read_traffic(found(tmp_path, files), named("traffic-c"))
