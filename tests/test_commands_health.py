"""A week of an energy engineer: fifty meters, one model, `predict --on-bad skip` every morning, one fault a day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from command import QUICK, Done, logsparse, refusal

METERS = [f"meter_{number:02d}" for number in range(50)]
FIRST, FITTED = datetime(2024, 3, 4, tzinfo=UTC), datetime(2024, 4, 8, tzinfo=UTC)
WEEK = [FITTED + timedelta(days=day, hours=6) for day in range(7)]
HORIZON = 24
KWH = pl.col("kwh")
COLUMNS = ("--id-col", "meter", "--time-col", "time", "--target-col", "kwh")

Fault = Callable[[pl.DataFrame, datetime], pl.DataFrame]


def measured() -> pl.DataFrame:
    """Return six weeks of hours of every meter, as the meters sent them: meter, time, kwh."""
    rng = np.random.default_rng(20)
    times = pl.datetime_range(FIRST, WEEK[-1], "1h", eager=True)
    day = 2 + np.sin((np.arange(len(times)) - 8) * 2 * np.pi / 24)
    return pl.concat(
        pl.DataFrame({"meter": name, "time": times, "kwh": size * (day + rng.normal(0, 0.1, len(times)))})
        for name, size in zip(METERS, rng.uniform(0.5, 50, len(METERS)), strict=True)
    )


def written(frame: pl.DataFrame, path: Path) -> Path:
    """Write a semicolon csv with times such as 2024-04-08T06:00:00+00:00."""
    frame.with_columns(pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%S+00:00")).write_csv(path, separator=";")
    return path


def since(name: str, morning: datetime, hours: int) -> pl.Expr:
    return (pl.col("meter") == name) & (pl.col("time") > morning - timedelta(hours=hours))


def replaced(name: str, hours: int, value: float | None) -> Fault:
    return lambda frame, morning: frame.with_columns(
        kwh=pl.when(since(name, morning, hours)).then(pl.lit(value, pl.Float64)).otherwise(KWH)
    )


def stopped(name: str, hours: int) -> Fault:
    return lambda frame, morning: frame.filter(~since(name, morning, hours))


def renamed(name: str, new: str) -> Fault:
    return lambda frame, _: frame.with_columns(pl.col("meter").replace(name, new))


def unchanged(frame: pl.DataFrame, _: datetime) -> pl.DataFrame:
    return frame


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of the five weeks before."""
    folder = tmp_path_factory.mktemp("week")
    data = written(measured().filter(pl.col("time") < FITTED), folder / "fit.csv")
    done = logsparse("fit", data, "--horizon", HORIZON, "-o", folder / "model", *COLUMNS, *QUICK)
    assert done.code == 0, done.err
    return folder


def on_the_morning(place: Path, day: int, fault: Fault, *words: object) -> tuple[Done, Path]:
    """Forecast from the three weeks before a morning, into a file of that day."""
    morning = WEEK[day]
    recent = measured().filter(pl.col("time").is_between(morning - timedelta(weeks=3), morning))
    data = written(fault(recent, morning), place / "meters.csv")
    out = place / f"forecast-{day}.csv"
    out.unlink(missing_ok=True)
    return logsparse("predict", place / "model", data, "-o", out, *words), out


def forecast_meters(out: Path, morning: datetime) -> list[str]:
    """Return the meters of a forecast, each with the 24 hours after the morning."""
    table = pl.read_csv(out, try_parse_dates=True)
    name, time = table.columns[:2]
    assert table.filter(
        pl.col(time).is_between(morning + timedelta(hours=1), morning + timedelta(hours=HORIZON))
    ).equals(table)
    assert set(table.group_by(name).len()["len"]) == {HORIZON}
    assert table.null_count().sum_horizontal().item() == 0
    return table[name].unique(maintain_order=True).to_list()


def _said(done: Done) -> list[str]:
    return [line for line in done.err.splitlines() if not line.startswith(("wrote", "forecasting"))]


def without(name: str) -> list[str]:
    return [other for other in METERS if other != name]


EMPTY = 24 * 22
CASES: list[tuple[str, Fault, list[str], list[str]]] = [
    ("all fine", unchanged, METERS, []),
    (
        "dead: its rows stop",
        stopped("meter_07", 50),
        without("meter_07"),
        ["meter_07: stale: its last value is of 2024-04-07 04:00:00+00:00, 50 steps older than that of most series"],
    ),
    (
        "frozen",
        replaced("meter_31", 36, 4.25),
        without("meter_31"),
        ["meter_31: flat: the same value, 4.25, since 2024-04-08 19:00:00+00:00: 36 steps"],
    ),
    (
        "stale: its rows go on without values",
        replaced("meter_00", 30, None),
        without("meter_00"),
        ["meter_00: stale: its last value is of 2024-04-10 00:00:00+00:00, 30 steps older than that of most series"],
    ),
    (
        "renamed",
        renamed("meter_11", "meter_11b"),
        ["meter_11b" if name == "meter_11" else name for name in METERS],
        [
            "meter_11: missing: the model was fitted on it up to 2024-04-07 23:00, and the data have no row of it; "
            "'meter_11b' is new: was it renamed?"
        ],
    ),
    (
        "-9999",
        replaced("meter_49", 3, -9999.0),
        without("meter_49"),
        [
            "meter_49: sentinel: -9999 in 3 of its 505 steps, from 2024-04-13 04:00:00+00:00: it looks like a mark for "
            "a missing value"
        ],
    ),
    (
        "dead for longer than the file reaches back, and another one gone",
        lambda frame, morning: stopped("meter_02", EMPTY)(replaced("meter_01", EMPTY, None)(frame, morning), morning),
        METERS[:1] + METERS[3:],
        [
            "meter_02: missing: the model was fitted on it up to 2024-04-07 23:00, and the data have no row of it",
            "meter_01: empty: no value in any of its 505 steps",
        ],
    ),
]


@pytest.mark.parametrize(("day", "case"), list(enumerate(CASES)), ids=[case[0] for case in CASES])
def test_every_morning_the_healthy_meters_are_forecast_and_the_others_listed(
    place: Path, day: int, case: tuple[str, Fault, list[str], list[str]]
) -> None:
    _, fault, expected, reasons = case
    done, out = on_the_morning(place, day, fault, "--on-bad", "skip")
    assert done.code == (3 if reasons else 0), done.err
    listed = [line for line in done.err.splitlines() if line.startswith("not forecast: ")]
    assert listed == [f"not forecast: {reason}" for reason in reasons]
    assert forecast_meters(out, WEEK[day]) == expected


def test_a_renamed_meter_is_forecast_under_its_new_name_with_a_warning(place: Path) -> None:
    done, _ = on_the_morning(place, 4, renamed("meter_11", "meter_11b"), "--on-bad", "skip")
    assert f"1 of 50 series has findings: 1 new; `logsparse check {place / 'meters.csv'} --model" in done.err


def test_fail_writes_nothing(place: Path) -> None:
    done, out = on_the_morning(place, 1, stopped("meter_07", 50), "--on-bad", "fail")
    assert (done.code, done.out) == (2, "")
    assert "No series may have a bad finding (on_bad is fail). Got meter_07: its last value is of" in done.err
    assert not out.exists()
    done, out = on_the_morning(place, 0, unchanged, "--on-bad", "fail")
    assert done.code == 0
    assert forecast_meters(out, WEEK[0]) == METERS


def test_by_default_all_are_forecast_and_one_line_warns(place: Path) -> None:
    done, out = on_the_morning(place, 2, replaced("meter_31", 36, 4.25))
    assert done.code == 0
    assert forecast_meters(out, WEEK[2]) == METERS
    assert "\n1 of 50 series has findings: 1 flat; `logsparse check" in f"\n{done.err}"
    assert len(_said(done)) == 1


def test_twenty_of_many_are_listed(place: Path) -> None:
    def many(frame: pl.DataFrame, morning: datetime) -> pl.DataFrame:
        for name in METERS[:23]:
            frame = replaced(name, 2, -9999.0)(frame, morning)
        return frame

    done, _ = on_the_morning(place, 3, many, "--on-bad", "skip")
    lines = _said(done)
    assert (done.code, len(lines), lines[-1]) == (3, 21, "and 3 more")


def test_check_on_the_same_morning_says_the_same(place: Path) -> None:
    on_the_morning(place, 2, replaced("meter_31", 36, 4.25))
    words = ("check", place / "meters.csv", "--model", place / "model", "--now")
    done = logsparse(*words, "2024-04-10T07:00Z")
    assert done.code == 3
    assert done.out.endswith(
        "health            1 of 50 series has findings: 1 flat\n"
        "bad      flat      meter_31: the same value, 4.25, since 2024-04-08 19:00:00+00:00: 36 steps\n"
    )
    assert "50 stale, 1 flat" in logsparse(*words, "2024-04-12T07:00Z").out


def test_another_word_is_refused(place: Path) -> None:
    text = "on_bad must be warn, skip or fail. Got 'ignore'."
    assert text in refusal("predict", place / "model", "-o", place / "x.csv", "--on-bad", "ignore")
