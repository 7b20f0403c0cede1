"""Each rule finds what it is for, at the right step, and leaves alone what only looks like it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from logsparse.data import findings
from logsparse.data.calendar import Freq
from logsparse.data.findings import Rules, findings_of
from logsparse.data.frame import with_empty
from logsparse.data.health import Finding, Health
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError

Values = NDArray[np.float64]
DAY, DAYS = 24, 20


def meter(number: int = 0, days: int = DAYS) -> Values:
    """Return hours of a household: a wave over the day and noise."""
    hours = np.arange(days * DAY)
    return 10 + 4 * np.sin(hours * 2 * np.pi / DAY) + np.random.default_rng(number).normal(0, 0.5, len(hours))


def panel_of(*series: Values, freq: str = "h") -> Panel:
    """Return series s0, s1, ... that begin together at 2024-01-01."""
    lengths = np.array([len(values) for values in series])
    return Panel(
        values=np.concatenate(series).astype(np.float32),
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        lengths=lengths,
        ids=tuple(f"s{number}" for number in range(len(series))),
        starts=np.full(len(series), np.datetime64("2024-01-01", "us").astype(np.int64)),
        freq=Freq.parse(freq),
    )


def found(*series: Values, freq: str = "h", now: str | None = None, **limits: float) -> list[Finding]:
    clock = None if now is None else int(np.datetime64(now, "us").astype(np.int64))
    return findings_of(panel_of(*series, freq=freq), Rules(**limits), clock)  # type: ignore[arg-type]


def short(findings: list[Finding]) -> list[tuple[object, str, str]]:
    return [(finding.series, finding.kind, finding.severity) for finding in findings]


def changed(change: Callable[[Values], None], number: int = 0) -> Values:
    values = meter(number)
    change(values)
    return values


def test_healthy_series_have_no_finding() -> None:
    assert found(*(meter(number) for number in range(50))) == []


def test_a_series_that_ends_before_the_others_is_stale() -> None:
    (finding,) = found(meter(0), meter(1)[: -DAY - 1], meter(2), meter(3)[:-DAY])
    assert (finding.series, finding.kind, finding.severity) == ("s1", "stale", "bad")
    assert finding.since == "2024-01-19 22:00:00"
    assert finding.text == "its last value is of 2024-01-19 22:00:00, 25 steps older than that of most series"


def test_missing_values_at_the_end_make_a_series_stale_and_are_no_gaps() -> None:
    late = meter(1)
    late[-100:] = np.nan
    assert short(found(meter(0), late, meter(2))) == [("s1", "stale", "bad")]


def test_a_series_without_news_for_longer_than_the_rules_read_is_still_stale() -> None:
    late = meter(1)
    late[-14 * DAY :] = np.nan
    (finding,) = found(meter(0), late, meter(2))
    assert (finding.kind, finding.since) == ("stale", "2024-01-06 23:00:00")


def test_series_that_end_all_over_the_calendar_are_not_stale() -> None:
    assert found(*(meter(number)[: (number + 5) * 2 * DAY] for number in range(5))) == []


def test_all_series_can_be_older_than_now() -> None:
    assert found(meter(0), meter(1), now="2024-01-21T22:00") == []
    late = found(meter(0), meter(1), now="2024-01-22T00:00")
    assert short(late) == [("s0", "stale", "bad"), ("s1", "stale", "bad")]
    assert late[0].text.endswith("25 steps older than now")
    assert short(found(meter(0), now="2024-01-21T01:00", stale=1)) == [("s0", "stale", "bad")]


def test_a_month_is_late_after_four_of_them_and_not_after_a_year() -> None:
    months = np.random.default_rng(0).normal(100, 5, 60)
    assert short(found(months, months[:-5], months, freq="MS")) == [("s1", "stale", "bad")]
    assert found(months, months[:-4], months, freq="MS") == []


def test_a_series_without_any_value_is_empty() -> None:
    frame = pl.DataFrame({
        "unique_id": ["a"] * 8 + ["b"] * 8, "ds": [*range(8)] * 2, "y": [1.0, 2.0, 1.5, 3.0] * 2 + [None] * 8,
    })  # fmt: skip
    (finding,) = findings_of(with_empty(frame))
    assert (finding.series, finding.kind, finding.severity) == ("b", "empty", "bad")
    assert finding.text == "no value in any of its 8 steps"


def test_a_frozen_meter_is_flat_from_the_step_on_which_it_froze() -> None:
    def freeze(values: Values) -> None:
        values[-30:] = values[-30]

    (finding,) = found(meter(0), changed(freeze, 1))
    assert (finding.series, finding.kind, finding.severity) == ("s1", "flat", "bad")
    assert finding.since == "2024-01-19 18:00:00"
    assert finding.text.endswith("since 2024-01-19 18:00:00: 30 steps")
    assert found(changed(freeze), flat=40) == []


def test_a_meter_that_froze_before_the_steps_that_are_read_stays_flat() -> None:
    values = meter(days=40)
    values[-20 * DAY :] = 7.5
    assert [finding.text for finding in found(values)] == ["the same value, 7.5, since 2024-01-21 00:00:00: 480 steps"]


def test_equal_values_before_a_few_missing_ones_are_flat_too() -> None:
    def freeze(values: Values) -> None:
        values[-40:-5] = 3.0
        values[-5:] = np.nan

    (finding,) = found(meter(0), changed(freeze, 1), meter(2))
    assert (finding.kind, finding.since) == ("flat", "2024-01-19 08:00:00")


def test_zeros_at_night_and_rare_sales_are_not_flat() -> None:
    sun = np.maximum(0, np.sin(np.arange(DAYS * DAY) * 2 * np.pi / DAY) - 0.2) * meter()
    assert found(sun[:-4]) == []
    rng = np.random.default_rng(0)
    sales = [rng.poisson(0.4, 400).astype(float) for _ in range(300)]
    assert [finding for finding in found(*sales, freq="D") if finding.kind == "flat"] == []
    assert found(np.zeros(400), freq="D") == []


def test_a_stretch_like_one_before_is_not_flat() -> None:
    def close_twice(values: Values) -> None:
        values[-150:-130] = 3.0
        values[-30:] = 5.0

    assert found(changed(close_twice), level=1000) == []


def test_a_series_that_never_moved_is_a_warning() -> None:
    assert short(found(np.full(200, 5.0))) == [("s0", "flat", "warning")]


@pytest.mark.parametrize("mark", [-9999.0, -999.0, 99999.0, 65535.0])
@pytest.mark.parametrize("share", [1, 60, DAYS * DAY])
def test_marks_for_missing_values_are_found_however_many_there_are(mark: float, share: int) -> None:
    def spoil(values: Values) -> None:
        values[-share:] = mark

    (finding,) = found(meter(0), changed(spoil, 1))
    assert (finding.series, finding.kind, finding.severity) == ("s1", "sentinel", "bad")
    assert f"{mark:g} in {share:,} of its 480 steps" in finding.text


def test_an_old_mark_is_a_warning_since_it_spoils_a_training_only() -> None:
    def spoil(values: Values) -> None:
        values[10] = -9999

    (finding,) = found(changed(spoil))
    assert (finding.kind, finding.severity, finding.since) == ("sentinel", "warning", "2024-01-01 10:00:00")


def test_a_value_such_as_9999_within_the_usual_range_is_a_value() -> None:
    values = 1000 * meter()
    values[-3] = 9999
    assert found(values, values - 1e5) == []


def test_gaps_count_between_the_first_and_the_last_value() -> None:
    def hole(values: Values) -> None:
        values[-100:-30] = np.nan

    (finding,) = found(changed(hole))
    assert (finding.kind, finding.severity) == ("gaps", "warning")
    assert finding.text == "70 of its last 288 steps are missing (24%)"
    assert found(changed(hole), gaps=0.3) == []


def test_a_value_far_outside_the_usual_range_is_an_outlier() -> None:
    def spike(values: Values) -> None:
        values[-50] = 500

    (finding,) = found(changed(spike))
    assert (finding.kind, finding.severity, finding.since) == ("outlier", "warning", "2024-01-18 22:00:00")
    assert finding.text.startswith("500 at 2024-01-18 22:00:00 is far outside its usual range, ")
    assert found(changed(spike), outlier=100) == []


def test_a_last_day_unlike_those_before_is_a_change_of_level() -> None:
    def step(values: Values) -> None:
        values[-DAY:] *= 3

    (finding,) = found(changed(step))
    assert (finding.kind, finding.severity, finding.since) == ("level", "warning", "2024-01-20 00:00:00")
    assert found(changed(step), level=1000) == []


def test_what_is_explained_is_not_named_twice() -> None:
    def spoil(values: Values) -> None:
        values[-DAY - 10 :] = -9999

    assert short(found(changed(spoil))) == [("s0", "sentinel", "bad")]


def test_many_series_are_read_in_blocks_with_the_same_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    series = [meter(number) for number in range(9)]
    series[2][-30:] = 1.0
    series[5] = series[5][:-40]
    series[8][-3] = -9999
    whole = Health(9, tuple(findings_of(panel_of(*series))))
    assert {finding.kind for finding in whole.findings} == {"flat", "stale", "sentinel"}
    monkeypatch.setattr(findings, "_CELLS", 1)
    assert Health(9, tuple(findings_of(panel_of(*series)))) == whole


def test_steps_after_the_cutoff_are_not_read() -> None:
    values = meter()
    values[-30:] = -9999
    panel = panel_of(values)
    assert findings_of(panel.cut(panel.lengths - 30)) == []


@pytest.mark.parametrize("value", [1, 2])
def test_the_shortest_series_pass(value: int) -> None:
    assert found(*[np.arange(1.0, value + 1)] * 3) == []


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"stale": 0}, "stale must be at least 1. Got 0."),
        ({"flat": 1.5}, "flat must be a whole number. Got 1.5."),
        ({"gaps": 0}, "gaps must be a number above 0. Got 0."),
        ({"level": "x"}, "level must be a number above 0. Got 'x'."),
    ],
)
def test_a_wrong_threshold_is_refused(limits: dict[str, float], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Rules(**limits)  # type: ignore[arg-type]


@pytest.mark.parametrize("hours", [30, 60, 90, 110])
def test_a_change_of_level_is_still_found_days_later(hours: int) -> None:
    def unit(values: Values) -> None:
        values[-hours:] *= 1000

    (finding,) = found(changed(unit), outlier=1e9)
    assert (finding.kind, finding.severity) == ("level", "warning")
    assert f"in the {hours // DAY * DAY} steps from" in finding.text


def test_weekends_and_holidays_at_half_the_level_are_no_change() -> None:
    for days in range(12, 30):
        values = meter(days=days)
        off = np.isin(np.arange(days) % 7, (5, 6)) | (np.arange(days) == days - 3)
        values *= np.repeat(np.where(off, 0.3, 1.0), DAY)
        assert found(values) == [], days
