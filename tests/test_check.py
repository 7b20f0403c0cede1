"""`logsparse.check` and `logsparse check`: data, and a model, in; findings, text, JSON and exit codes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import logsparse as ls
from command import logsparse, refusal
from meters import HOURS, changed, frame_of


@pytest.fixture
def model() -> ls.SeasonalNaive:
    return ls.SeasonalNaive(horizon=24).fit(frame_of("a", "b", "c"), id_col="meter")


def test_columns_and_thresholds_are_keywords() -> None:
    frame = changed(frame_of("a", "b", "c"), "b", 5.0, 20)
    assert ls.check(frame, id_col="meter").ok
    health = ls.check(frame, id_col="meter", flat=12)
    assert health.bad == ("b",)
    assert not health.ok
    with pytest.raises(ls.ConfigError, match=r"flat must be at least 1"):
        ls.check(frame, id_col="meter", flat=0)
    with pytest.raises(ls.ConfigError, match=r"unknown keyword 'flaat'"):
        ls.check(frame, id_col="meter", flaat=3)  # type: ignore[call-arg]


def test_a_model_brings_its_columns_and_its_series(model: ls.SeasonalNaive, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    frame = frame_of("a", "c", "b-2")
    for given in (model, tmp_path / "model", str(tmp_path / "model")):
        health = ls.check(frame, model=given)
        assert [(f.series, f.kind, f.severity) for f in health.findings] == [
            ("b", "missing", "bad"),
            ("b-2", "new", "warning"),
        ]
    missing, new = health.findings
    assert missing.text.startswith(
        "the model was fitted on it up to 2024-01-20 23:00:00, and the data have no row of it"
    )
    assert new.text == (
        "not among the 3 series of the model: its forecast rests on its own 480 steps and on what the model learned "
        "from the others"
    )
    assert health.bad == ("b",)


def test_a_renamed_series_is_suspected() -> None:
    model = ls.SeasonalNaive(horizon=24).fit(frame_of("meter_07", "meter_08"), id_col="meter")
    missing, _ = ls.check(frame_of("meter_07_new", "meter_08"), model=model).findings
    assert missing.text.endswith("; 'meter_07_new' is new: was it renamed?")


def test_data_of_another_zone_are_converted_and_those_without_one_refused() -> None:
    model = ls.SeasonalNaive(horizon=24).fit(frame_of("a", "b", zone="UTC"), id_col="meter")
    assert ls.check(frame_of("a", "b", zone="Europe/Berlin"), model=model).ok
    with pytest.raises(ls.DataError, match="must have a time zone, as those that were fitted"):
        ls.check(frame_of("a", "b", zone=None), model=model)


@pytest.mark.parametrize(
    ("fitted", "given", "tz", "severity", "text"),
    [
        (None, "UTC", None, "bad", "times in UTC, the model was fitted on times in no time zone"),
        (
            "Europe/Berlin",
            None,
            "Asia/Tokyo",
            "warning",
            "times in Asia/Tokyo, the model was fitted on times in Europe",
        ),
    ],
)
def test_another_zone_is_found(
    fitted: str | None, given: str | None, tz: str | None, severity: str, text: str, tmp_path: Path
) -> None:
    ls.SeasonalNaive(horizon=24).fit(frame_of("a", "b", zone=fitted), id_col="meter").save(tmp_path / "model")
    frame = frame_of("a", "b", zone=given)
    frame.write_parquet(tmp_path / "data.parquet")
    (finding,) = ls.check(frame, model=tmp_path / "model", tz=tz).findings
    assert (finding.series, finding.kind, finding.severity) == (None, "zone", severity)
    assert finding.text.startswith(text)
    words = ("--tz", tz) if tz else ()
    done = logsparse("check", tmp_path / "data.parquet", "--model", tmp_path / "model", *words)
    assert done.code == (3 if severity == "bad" else 0)
    assert f"2 of 2 series have findings: 1 zone\n{severity:<7}  zone      {text}" in done.out


def test_dates_are_days_of_any_zone() -> None:
    midnights = frame_of("a", zone="Europe/Berlin").filter(pl.col("ds").dt.hour() == 0)
    model = ls.SeasonalNaive(horizon=3).fit(midnights, id_col="meter")
    dates = midnights.with_columns(pl.col("ds").dt.date())
    assert ls.check(dates, model=model).ok
    assert model.predict(dates, on_bad="fail").height == 3


def test_another_step_is_found(model: ls.SeasonalNaive) -> None:
    days = frame_of("a", "b", "c").filter(pl.col("ds").dt.hour() == 0)
    (finding,) = ls.check(days, model=model).findings
    assert (finding.kind, finding.severity) == ("step", "bad")
    assert finding.text == "steps of d, the model was fitted on steps of h"


def test_now_may_be_a_time_the_clock_or_nothing_of_the_kind() -> None:
    frame = frame_of("a", "b")
    assert ls.check(frame, id_col="meter", now="2024-01-21T20:00").ok
    assert ls.check(frame, id_col="meter", now="2024-02-01").bad == ("a", "b")
    assert ls.check(frame, id_col="meter", now="now").bad == ("a", "b")
    assert ls.check(frame_of("a", zone="UTC"), id_col="meter", now="now").bad == ("a",)
    text = "now must be a time of the kind that the data have. Got 12. Hint: write it like 2024-01-20 23:00."
    with pytest.raises(ls.ConfigError, match=text):
        ls.check(frame, id_col="meter", now=12)
    with pytest.raises(ls.ConfigError, match=r"now must be a time of the kind that the data have. Got 'noon'"):
        ls.check(frame, id_col="meter", now="noon")
    integers = pl.DataFrame({"unique_id": "a", "ds": range(9), "y": [1.0, 2.0, 3.0] * 3})
    with pytest.raises(ls.ConfigError, match=r"now must be a time of the kind that the data have"):
        ls.check(integers, now="now")


def test_an_unfitted_model_is_refused() -> None:
    with pytest.raises(ls.NotFittedError):
        ls.check(frame_of("a"), model=ls.SeasonalNaive(horizon=2))


def test_findings_come_as_a_frame_of_the_library_of_the_data_as_json_and_as_html() -> None:
    frame = changed(frame_of("a", "<b>", "c"), "<b>", -9999.0, 3)
    health = ls.check(frame.to_pandas(), id_col="meter")
    table = health.frame()
    assert type(table).__module__.startswith("pandas")
    assert table.to_dict("records")[0]["series"] == "<b>"
    assert list(table.columns) == ["series", "kind", "severity", "since", "text"]
    document = json.loads(health.to_json())
    assert document == health.to_dict()
    assert document["bad"] == ["<b>"]
    assert document["findings"][0]["since"] == "2024-01-20 21:00:00"
    assert "<td>&lt;b&gt;</td>" in health._repr_html_()
    assert "nothing found" in ls.check(frame_of("a"), id_col="meter")._repr_html_()
    assert ls.check(frame_of("a"), id_col="meter").frame().height == 0


def test_integer_ids_stay_integers() -> None:
    frame = frame_of("1", "2", "3").with_columns(pl.col("meter").cast(pl.Int64))
    late = frame.filter((pl.col("meter") != 2) | (pl.col("ds") < HOURS[100]))
    assert ls.check(late, id_col="meter").frame()["series"].to_list() == [2]


@pytest.fixture
def place(tmp_path: Path, model: ls.SeasonalNaive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with files of three meters, and a model of them."""
    frame_of("a", "b", "c").write_csv(tmp_path / "fine.csv", separator=";")
    changed(frame_of("a", "b", "c"), "b", 500.0, 1).write_csv(tmp_path / "warning.csv")
    changed(frame_of("a", "b", "c"), "b", None, 480).write_csv(tmp_path / "bad.csv")
    model.save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["fine.csv"], 0),
        (["fine.csv", "--fail-on", "warning"], 0),
        (["fine.csv", "--now", "now"], 3),
        (["fine.csv", "--now", "2024-01-22"], 3),
        (["fine.csv", "--now", "2024-01-22", "--stale", 30], 0),
        (["warning.csv"], 0),
        (["warning.csv", "--fail-on", "warning"], 3),
        (["warning.csv", "--fail-on", "warning", "--outlier", 1000, "--level", 1000], 0),
        (["bad.csv"], 3),
        (["bad.csv", "--fail-on", "warning"], 3),
        (["bad.csv", "--fail-on", "never"], 0),
    ],
)
def test_the_exit_code_follows_the_worst_finding(words: list[Any], code: int) -> None:
    done = logsparse("check", *words, "--id-col", "meter")
    assert done.code == code, done
    assert done.err == ""


@pytest.mark.usefixtures("place")
def test_the_command_prints_what_was_recognised_and_then_the_findings() -> None:
    done = logsparse("check", "bad.csv", "--id-col", "meter")
    lines = done.out.splitlines()
    assert lines[1] == "series            3 (a, b, c)"
    assert lines[-2] == "health            1 of 3 series has findings: 1 empty"
    assert lines[-1] == "bad      empty     b: no value in any of its 480 steps"


@pytest.mark.usefixtures("place")
def test_the_command_compares_with_a_model_and_needs_no_column_names_then() -> None:
    frame_of("a", "c").write_csv("two.csv")
    done = logsparse("check", "two.csv", "--model", "model")
    assert done.code == 3
    assert "bad      missing   b: the model was fitted on it up to 2024-01-20 23:00" in done.out


@pytest.mark.usefixtures("place")
def test_json_is_one_document() -> None:
    done = logsparse("check", "bad.csv", "--id-col", "meter", "--json")
    document = json.loads(done.out)
    assert done.code == 3
    assert document["data"]["step"] == "h"
    assert document["data"]["missing"] == 480
    assert document["bad"] == ["b"]
    assert [finding["kind"] for finding in document["findings"]] == ["empty"]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--fail-on", "worse"], "--fail-on must be one of: bad, warning, never. Got 'worse'."),
        (["--stale", 0], "stale must be at least 1. Got 0."),
        (["--now", "noon"], "now must be a time of the kind that the data have. Got 'noon'."),
        (["--model", "nowhere"], "nowhere must be the folder of a saved logsparse model. Got no such folder."),
    ],
)
def test_an_error_is_one_line(words: list[Any], text: str) -> None:
    assert text in refusal("check", "fine.csv", "--id-col", "meter", *words)


def test_the_help_names_the_exit_codes() -> None:
    text = " ".join(logsparse("check", "--help").out.split())
    assert "Exit codes: 0 if nothing was found at or above --fail-on, 3 if something was, 2 for an error." in text


def test_findings_on_ids_of_two_types_are_one_column_of_text() -> None:
    frame = pl.DataFrame({"unique_id": [7] * 30, "ds": range(30), "y": [float(n % 5) for n in range(30)]})
    model = ls.SeasonalNaive(horizon=3, season=5).fit(frame)
    other = frame.with_columns(unique_id=pl.lit("east"))
    assert sorted(ls.check(other, model=model).frame()["series"]) == ["7", "east"]
