"""The report: one complete page for any results, which fetches nothing and runs nothing."""

from __future__ import annotations

import re
from datetime import date, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.baselines.naive import SeasonalNaive
from logsparse.errors import ConfigError, DataError
from logsparse.reporting.words import format_number
from report_pages import LastWeeks, hours, results

VOID = {"meta", "img", "br"}


class Outline(HTMLParser):
    """Parse a page: its tags, whether each is closed, its ids, its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == [], f"left open: {self.open}"
        ids = self.values("id")
        assert len(ids) == len(set(ids)), "duplicate ids"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "text", "tspan"):
            self.texts.append(data.strip())

    def values(self, attribute: str) -> list[str]:
        return [str(attributes[attribute]) for _, attributes in self.tags if attribute in attributes]

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.tags if found == tag]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(filter(None, self.texts)))


def outline(frame: Any, folder: Path, **options: Any) -> Outline:
    return Outline(ls.report(frame, folder / "report.html", **options).read_text())


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    """A report with every part, and its results."""
    model = LastWeeks(24)
    frame = ls.backtest(model, hours(), windows=3)
    path = tmp_path_factory.mktemp("full") / "new" / "report.html"
    assert ls.report(frame, path, model=model, title="Five <series>") == path
    return path, frame


def test_the_page_has_every_part_under_its_heading(full: tuple[Path, pl.DataFrame]) -> None:
    page = Outline(full[0].read_text())
    assert page.named("html") == [{"lang": "en"}]
    for heading in (
        "Five <series>",
        "Summary",
        "Error by step of the horizon",
        "Calibration",
        "Training",
        "Attention",
    ):
        assert heading in page.texts
    for words in ("Best series", "Median series", "Worst series", "Settings of LastWeeks", "config.model.layers 3"):
        assert words in page.text
    assert [len(page.named(tag)) for tag in ("h1", "main", "h2")] == [1, 1, 7]
    assert page.named("details")


def test_every_picture_has_a_text_for_screen_readers(full: tuple[Path, pl.DataFrame]) -> None:
    pictures = Outline(full[0].read_text()).named("svg")
    assert len(pictures) == 2 + 2 * 3 + 2 + 1
    assert all(picture["role"] == "img" and len(str(picture["aria-label"])) > 40 for picture in pictures)


def test_the_page_fetches_nothing_and_runs_nothing(full: tuple[Path, pl.DataFrame]) -> None:
    text = full[0].read_text()
    page = Outline(text)
    assert "://" not in text
    assert {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "embed"} == set()
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "default-src 'none'" in text
    assert [path.name for path in full[0].parent.iterdir()] == ["report.html"]


def test_the_scores_of_the_page_are_those_of_score(full: tuple[Path, pl.DataFrame]) -> None:
    page, frame = Outline(full[0].read_text()), full[1]
    scores = ls.score(frame).row(0, named=True)
    naive = ls.score(frame.select("unique_id", "y", mean="seasonal_naive")).row(0, named=True)
    change = 100 * (1 - scores["R0.5"] / naive["nd"])
    assert change > 1
    assert f"{change:.0f} % lower error than seasonal naive" in page.texts
    assert f"is {format_number(scores['R0.5'])}, against {format_number(naive['nd'])} for seasonal naive" in page.text
    assert f"The 80 % intervals contain {100 * scores['coverage_80']:.1f} % of the values" in page.text
    assert (
        "5 series 3 windows per series 24 steps ahead 360 values scored 2024-01-18 00:00 to 2024-01-20 23:00"
        in page.text
    )


def test_the_same_results_give_the_same_bytes(full: tuple[Path, pl.DataFrame], tmp_path: Path) -> None:
    again = ls.report(full[1], tmp_path / "again.htm", model=LastWeeks(24), title="Five <series>")
    assert again.read_bytes() == full[0].read_bytes()


def test_results_without_seasonal_naive_are_reported_without_comparison(tmp_path: Path) -> None:
    page = outline(results(seasonal_naive=None), tmp_path)
    assert "The results have no column seasonal_naive" in page.text
    assert "difference" not in page.texts
    assert "Best series" in page.text


def test_markup_in_ids_titles_and_settings_stays_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>&\"'$^$" + "x" * 500
    frame = results(series=1, unique_id=pl.lit(evil))
    text = ls.report(frame, tmp_path / "report.html", title=evil, model=LastWeeks(24)).read_text()
    assert "<script" not in text
    assert "<b>bold" not in text
    page = Outline(text)
    assert evil in page.texts
    assert not any("x" * 200 in words for words in page.texts if words != evil), "long ids are cut"


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(results(horizon=1, windows=1, series=1), id="one single value"),
        pytest.param(results(horizon=1, windows=12), id="one step ahead"),
        pytest.param(results(mean=None).drop("q0.1", "q0.25", "q0.75", "q0.9"), id="only the median"),
        pytest.param(results().drop("q0.1", "q0.25", "q0.5", "q0.75", "q0.9"), id="only the mean"),
        pytest.param(results(mean=None).drop("q0.25", "q0.5", "q0.75"), id="only two quantiles"),
        pytest.param(results(y=pl.when(pl.col("ds") != 3).then("y").otherwise(np.nan)), id="a step never seen"),
        pytest.param(results(y=pl.lit(0.0), seasonal_error=pl.lit(None)), id="nothing but zeros"),
        pytest.param(results(y=pl.col("y") * 6e37, mean=pl.col("mean") * 6e37), id="huge values"),
        pytest.param(results(ds=date(2024, 1, 1) + pl.duration(days="ds")).to_pandas(), id="dates in pandas"),
        pytest.param(results(ds=pl.datetime(2024, 3, 30, time_zone="CET") + pl.duration(hours="ds")), id="a time zone"),
        pytest.param(results(cutoff=pl.col("cutoff") * 9, ds=pl.col("ds") + 8 * pl.col("cutoff")), id="windows apart"),
    ],
)
def test_any_results_give_a_complete_page(frame: Any, tmp_path: Path) -> None:
    page = outline(frame, tmp_path)
    assert "Forecasts and actual values" in page.texts
    assert not re.search(r"\b(nan|None|null|inf)\b", page.text)


def test_a_file_of_results_is_read_with_its_times(tmp_path: Path) -> None:
    ls.backtest(SeasonalNaive(24), hours(2)).write_csv(tmp_path / "results.csv")
    assert "2024-01-20 00:00 to 2024-01-20 23:00" in outline(tmp_path / "results.csv", tmp_path).text


def test_thousands_of_series_and_cutoffs_make_a_page_of_bounded_size(tmp_path: Path) -> None:
    series = pl.int_range(pl.len()) // 48
    frame = results(series=3000, windows=2, horizon=24).with_columns(
        unique_id=pl.format("a series with a fairly long name, number {}", series),
        ds=pl.col("ds") + series,
        cutoff=pl.col("cutoff") + series,
    )
    path = ls.report(frame, tmp_path / "report.html")
    assert path.stat().st_size < 1_000_000
    page = Outline(path.read_text())
    assert "Scores of the 25 best and the 25 worst of 3,000 series, by MASE" in page.texts
    assert "Scores at the last 50 of 3,024 cutoffs" in page.texts
    assert len(page.named("tr")) < 150


def test_a_model_without_losses_shows_its_settings_only(tmp_path: Path) -> None:
    page = outline(results(), tmp_path, model=SeasonalNaive(24, season=7))
    assert "Settings of SeasonalNaive horizon 24 season 7" in page.text
    assert "Training" not in page.texts
    assert "Attention" not in page.texts


def test_a_model_that_is_no_forecaster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model must be the forecaster that made the results. Got str. Hint: pass"):
        ls.report(results(), tmp_path / "report.html", model="model/")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("report.pdf", r"A report is written as html. Got .*report.pdf. Hint: end the name in .html"),
        ("folder.html", r"The report must be writable. Got .*folder.html: a folder of that name is there. Hint: give"),
        ("file/report.html", r"The result must be writable. Got .*file"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_the_work(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=message):
        ls.report("no such results", tmp_path / name)


def test_results_that_are_refused_leave_an_older_report_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("older")
    with pytest.raises(DataError, match="Got no y among"):
        ls.report(results(y=None), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == "older"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_real_sets_are_reported(shared_data: Path, tmp_path: Path) -> None:
    frame = ls.backtest(SeasonalNaive(24), shared_data / "solar_hourly.parquet", windows=7, until="2006-08-31T23:00")
    page = outline(frame, tmp_path)
    assert "The same error as seasonal naive" in page.texts
    assert "R0.5, the sum of |error| divided by the sum of |y|, is 0.256, against 0.256 for seasonal naive" in page.text
    assert "137 series 7 windows per series 24 steps ahead 23,016 values scored" in page.text
    assert timedelta(days=7) - timedelta(hours=1) == frame["ds"].max() - frame["ds"].min()
