"""A week of an energy engineer: fifty meters in local time, one model, `predict --on-bad skip` every morning.

The year that is fitted has both clock changes, and the clock goes back on the fourth of the seven mornings.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from command import QUICK, Done, logsparse, refusal

METERS = [f"Zähler {number:02d}" for number in range(50)]
BERLIN = ZoneInfo("Europe/Berlin")
FIRST, FITTED = (datetime(year, 10, 24, tzinfo=BERLIN) for year in (2023, 2024))
WEEK = [datetime(2024, 10, 24 + day, 6, tzinfo=BERLIN) for day in range(7)]
CHANGE = 3
"""The morning of 27 October 2024, after the hour from 2 to 3 came twice."""
TWICE = "2024-10-27 02:00:00 comes twice, first in summer time: the clock goes back; --offsets tells the two apart"
HORIZON = 24
WEEKS = 3 * 7 * 24
"""Hours before a morning that its file has."""
KWH = pl.col("kWh")
COLUMNS = ("--id-col", "Zähler", "--time-col", "Zeit", "--target-col", "kWh", "--tz", "Europe/Berlin", "--dayfirst")

Fault = Callable[[pl.DataFrame, datetime], pl.DataFrame]


def hours(first: datetime, last: datetime) -> pl.Series:
    """Return every hour that passed between two times, as instants on the clock of Berlin."""
    utc = pl.datetime_range(first.astimezone(UTC), last.astimezone(UTC), "1h", eager=True)
    return utc.dt.convert_time_zone("Europe/Berlin")


@cache
def measured() -> pl.DataFrame:
    """Return the hours of every meter over a year and a week, as they passed: Zähler, Zeit, kWh."""
    rng = np.random.default_rng(20)
    times = hours(FIRST, WEEK[-1])
    day = 2 + np.sin((times.dt.hour().to_numpy() - 8) * 2 * np.pi / 24)
    return pl.concat(
        pl.DataFrame({"Zähler": name, "Zeit": times, "kWh": size * (day + rng.normal(0, 0.1, len(times)))})
        for name, size in zip(METERS, rng.uniform(0.5, 50, len(METERS)), strict=True)
    )


def written(frame: pl.DataFrame, path: Path) -> Path:
    """Write what the meters' software exports: semicolons, 27.10.2024 02:00 without a zone, 1,25."""
    local = frame.with_columns(pl.col("Zeit").dt.strftime("%d.%m.%Y %H:%M"))
    local.write_csv(path, separator=";", decimal_comma=True, float_precision=3)
    return path


def before(morning: datetime, hours: int) -> datetime:
    """Return the time so many hours before: hours that passed, not hours on the clock."""
    return (morning.astimezone(UTC) - timedelta(hours=hours)).astimezone(BERLIN)


def since(name: str, morning: datetime, hours: int) -> pl.Expr:
    return (pl.col("Zähler") == name) & (pl.col("Zeit") > before(morning, hours))


def replaced(name: str, hours: int, value: float | None) -> Fault:
    return lambda frame, morning: frame.with_columns(
        kWh=pl.when(since(name, morning, hours)).then(pl.lit(value, pl.Float64)).otherwise(KWH)
    )


def stopped(name: str, hours: int) -> Fault:
    return lambda frame, morning: frame.filter(~since(name, morning, hours))


def renamed(name: str, new: str) -> Fault:
    return lambda frame, _: frame.with_columns(pl.col("Zähler").replace(name, new))


def unchanged(frame: pl.DataFrame, _: datetime) -> pl.DataFrame:
    return frame


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of the year before."""
    folder = tmp_path_factory.mktemp("week")
    year = measured().filter(pl.col("Zeit") < FITTED)
    data = written(year, folder / "fit.csv")
    done = logsparse("fit", data, "--horizon", HORIZON, "-o", folder / "model", *COLUMNS, *QUICK)
    assert done.code == 0, done.err
    text = data.read_text()
    assert text.startswith("Zähler;Zeit;kWh\nZähler 00;24.10.2023 00:00;")
    # The hour that comes twice, and the hour that is skipped.
    assert [text.count(f"Zähler 00;{time};") for time in ("29.10.2023 02:00", "31.03.2024 02:00")] == [2, 0]
    return folder


def on_the_morning(place: Path, day: int, fault: Fault, *words: object) -> tuple[Done, Path]:
    """Forecast from the three weeks before a morning, into a file of that day."""
    morning = WEEK[day]
    recent = measured().filter(pl.col("Zeit").is_between(before(morning, WEEKS), morning))
    data = written(fault(recent, morning), place / "meters.csv")
    out = place / f"forecast-{day}.csv"
    out.unlink(missing_ok=True)
    return logsparse("predict", place / "model", data, "-o", out, *words), out


def forecast_meters(out: Path, morning: datetime) -> list[str]:
    """Return the meters of a forecast, each with the 24 hours that pass after the morning, in local time."""
    table = pl.read_csv(out, try_parse_dates=True)
    assert table.columns[:4] == ["Zähler", "Zeit", "mean", "q0.1"]
    after = hours(before(morning, -1), before(morning, -HORIZON)).dt.replace_time_zone(None)
    meters = table["Zähler"].unique(maintain_order=True).to_list()
    assert table["Zeit"].to_list() == after.to_list() * len(meters)
    assert table.null_count().sum_horizontal().item() == 0
    return meters


def _said(done: Done) -> list[str]:
    return [line for line in done.err.splitlines() if not line.startswith(("wrote", "forecasting"))]


def without(name: str) -> list[str]:
    return [other for other in METERS if other != name]


RENAMED = renamed("Zähler 11", "Zähler 11b")
CASES: list[tuple[str, Fault, list[str], list[str]]] = [
    ("all fine", unchanged, METERS, []),
    (
        "dead: its rows stop",
        stopped("Zähler 07", 50),
        without("Zähler 07"),
        ["Zähler 07: stale: its last value is of 2024-10-23 04:00:00, 50 steps older than that of most series"],
    ),
    (
        "frozen, and the night to come has an hour twice",
        replaced("Zähler 31", 36, 4.25),
        without("Zähler 31"),
        ["Zähler 31: flat: the same value, 4.25, since 2024-10-24 19:00:00: 36 steps"],
    ),
    (
        "stale: its rows go on without values, through the hour that comes twice",
        replaced("Zähler 00", 30, None),
        without("Zähler 00"),
        ["Zähler 00: stale: its last value is of 2024-10-26 01:00:00, 30 steps older than that of most series"],
    ),
    (
        "renamed",
        RENAMED,
        ["Zähler 11b" if name == "Zähler 11" else name for name in METERS],
        [
            "Zähler 11: missing: the model was fitted on it up to 2024-10-23 23:00:00, and the data have no row of it; "
            "'Zähler 11b' is new: was it renamed?"
        ],
    ),
    (
        "-9999",
        replaced("Zähler 49", 3, -9999.0),
        without("Zähler 49"),
        [
            "Zähler 49: sentinel: -9999 in 3 of its 505 steps, from 2024-10-29 04:00:00: it looks like a mark for a "
            "missing value"
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
    listed = [f"not forecast: {reason}" for reason in reasons]
    if fault is RENAMED:
        command = f"`logsparse check {place / 'meters.csv'} --model {place / 'model'}`"
        listed.append(f"1 of 50 series has findings: 1 new; {command} lists them")
    if day == CHANGE - 1:
        listed.insert(0, TWICE)
    assert _said(done) == listed
    assert forecast_meters(out, WEEK[day]) == expected


def test_the_hour_that_comes_twice_can_be_told_apart(place: Path) -> None:
    done, out = on_the_morning(place, CHANGE - 1, unchanged, "--offsets")
    assert (done.code, _said(done)) == (0, [])
    night = pl.read_csv(out).filter(pl.col("Zähler") == METERS[0], pl.col("Zeit").str.contains("27T02"))
    assert night["Zeit"].to_list() == ["2024-10-27T02:00:00.000000+0200", "2024-10-27T02:00:00.000000+0100"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "Got {}: no such file. Hint: check the path and the ending of the name."),
        ("", "Got {}: an empty file. Hint: check what should have written it."),
        (
            "Zähler;Zeit;kWh\n",
            "A frame must have rows. Got {}, which has none. Hint: check how it was read or filtered.",
        ),
    ],
    ids=["missing", "empty", "a header alone"],
)
def test_on_the_seventh_morning_there_are_no_data_and_the_forecast_of_the_day_before_stays(
    place: Path, content: str | None, text: str
) -> None:
    data, out = place / "late.csv", place / "forecast.csv"
    data.unlink(missing_ok=True)
    if content is not None:
        data.write_text(content)
    out.write_text("of the day before")
    assert text.format(data) in refusal("predict", place / "model", data, "-o", out, "--on-bad", "skip")
    assert out.read_text() == "of the day before"


def test_a_meter_that_is_dead_for_longer_than_the_file_reaches_back_is_listed_with_or_without_rows(place: Path) -> None:
    def fault(frame: pl.DataFrame, morning: datetime) -> pl.DataFrame:
        return stopped("Zähler 02", WEEKS + 1)(replaced("Zähler 01", WEEKS + 1, None)(frame, morning), morning)

    done, out = on_the_morning(place, 6, fault, "--on-bad", "skip")
    assert done.code == 3
    assert _said(done) == [
        "not forecast: Zähler 02: missing: the model was fitted on it up to 2024-10-23 23:00:00, and the data have no "
        "row of it",
        "not forecast: Zähler 01: empty: no value in any of its 505 steps",
    ]
    assert forecast_meters(out, WEEK[6]) == METERS[:1] + METERS[3:]


def test_fail_writes_nothing(place: Path) -> None:
    done, out = on_the_morning(place, 1, stopped("Zähler 07", 50), "--on-bad", "fail")
    assert (done.code, done.out) == (2, "")
    assert "No series may have a bad finding (--on-bad is fail). Got Zähler 07: its last value is of" in done.err
    assert not out.exists()
    done, out = on_the_morning(place, 0, unchanged, "--on-bad", "fail")
    assert done.code == 0
    assert forecast_meters(out, WEEK[0]) == METERS


def test_by_default_all_are_forecast_and_one_line_warns_of_them(place: Path) -> None:
    done, out = on_the_morning(place, 2, replaced("Zähler 31", 36, 4.25))
    assert done.code == 0
    assert forecast_meters(out, WEEK[2]) == METERS
    assert "\n1 of 50 series has findings: 1 flat; `logsparse check" in f"\n{done.err}"
    assert len(_said(done)) == 2
    assert _said(done)[0] == TWICE


def test_twenty_of_many_are_listed(place: Path) -> None:
    def many(frame: pl.DataFrame, morning: datetime) -> pl.DataFrame:
        for name in METERS[:23]:
            frame = replaced(name, 2, -9999.0)(frame, morning)
        return frame

    done, _ = on_the_morning(place, 3, many, "--on-bad", "skip")
    lines = _said(done)
    assert (done.code, len(lines), lines[-1]) == (3, 21, "and 3 more")


def test_check_on_the_same_morning_says_the_same(place: Path) -> None:
    on_the_morning(place, 2, replaced("Zähler 31", 36, 4.25))
    words = ("check", place / "meters.csv", "--model", place / "model", "--now")
    done = logsparse(*words, "2024-10-26T07:00")
    assert done.code == 3
    assert done.out.endswith(
        "health            1 of 50 series has findings: 1 flat\n"
        "bad      flat      Zähler 31: the same value, 4.25, since 2024-10-24 19:00:00: 36 steps\n"
    )
    # A day later by the clock, 25 hours have passed: one more than a value may be old.
    assert "50 stale, 1 flat" in logsparse(*words, "2024-10-27T06:00").out
    assert "1 of 50 series has findings" in logsparse(*words, "2024-10-27T05:00").out


def test_another_word_is_refused(place: Path) -> None:
    text = "--on-bad must be warn, skip or fail. Got 'ignore'."
    assert text in refusal("predict", place / "model", "-o", place / "x.csv", "--on-bad", "ignore")
