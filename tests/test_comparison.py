"""The report of several models: a leaderboard, pairs with intervals, one line per model in each chart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import logsparse as ls
from logsparse.errors import DataError
from logsparse.reporting.words import format_number
from report_pages import LastWeeks, hours, models, nearer, results
from test_report import Outline

MANY = results(windows=8)
THREE = models(plain=MANY, good=nearer(MANY, 0.5), fair=nearer(MANY, 0.2))


def outline(frame: Any, folder: Path, **options: Any) -> Outline:
    return Outline(ls.report(frame, folder / "report.html", **options).read_text())


def test_a_real_comparison_has_every_part(tmp_path: Path) -> None:
    forecasters = [ls.SeasonalNaive(24), LastWeeks(24), ls.TRMF(24)]
    frame = ls.backtest(forecasters, hours(), windows=6)
    page = outline(frame, tmp_path, model=forecasters[1])
    board = ls.score(frame)
    best = board["model"][0]
    for heading in ("Pairs of models", "Error by step of the horizon", "Calibration", "Training", "Details"):
        assert heading in page.texts
    assert f"{best} has the lowest error of 3 models" in page.texts
    assert f"Forecasts of {best} and actual values" in page.texts
    assert "Settings of LastWeeks" in page.texts
    assert "resampling 6 cutoffs" in page.text
    rows = [name for name in page.texts if name in {*board["model"], "seasonal naive"}]
    assert rows[:4] == [*board["model"], "seasonal naive"]
    assert not re.search(r"\b(nan|None|null|inf)\b", page.text)


def test_the_numbers_are_those_of_score_and_the_pairs_have_their_verdict(tmp_path: Path) -> None:
    page = outline(THREE, tmp_path)
    good = ls.score(THREE).row(0, named=True)
    assert good["model"] == "good"
    naive = f"{-100 * good['skill']:+.1f} %".replace("-", "−")  # noqa: RUF001
    assert f"good {format_number(good['wql'])} {format_number(good['nd'])}" in page.text
    assert naive in page.texts
    assert "good against fair −37.5 % −37.5 % to −37.5 % good is better" in page.text  # noqa: RUF001
    assert "fair against plain −20.0 %" in page.text  # noqa: RUF001
    assert "good has the lower quantile loss beyond chance." in page.text


def test_every_model_has_a_line_in_each_chart(tmp_path: Path) -> None:
    text = ls.report(THREE, tmp_path / "report.html").read_text()
    steps, calibration = (svg for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)[:2])
    for chart in (steps, calibration):
        assert all(f">{name}</text>" in chart for name in ("plain", "good", "fair"))
        assert all(f"var(--{colour})" in chart for colour in ("forecast", "model1", "model2"))
        assert "#c45a1d" not in chart, "each colour has a dark twin"


def test_a_difference_that_may_be_chance_is_said_to_be(tmp_path: Path) -> None:
    other = MANY.with_columns(pl.col("mean", "^q.*$").shift(4).fill_null(5.0))
    page = outline(models(one=MANY, other=other), tmp_path)
    assert "may be chance" in page.texts
    assert "This difference may be chance: its 95 % interval includes 0." in page.text


def test_few_windows_are_not_taken_for_evidence(tmp_path: Path) -> None:
    few = results(windows=2)
    page = outline(models(one=few, other=nearer(few, 0.5)), tmp_path)
    assert "2 cutoffs are too few to rule out chance." in page.text
    assert "other is better here" in page.texts
    alone = results(series=1, windows=1)
    page = outline(models(one=alone, other=nearer(alone, 0.5)), tmp_path)
    assert "One window of one series gives no interval." in page.text


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(models(a=MANY.drop("mean"), b=MANY.drop("^q.*$")), id="nothing shared"),
        pytest.param(models(a=MANY.drop("^q.*$"), b=nearer(MANY, 0.1).drop("^q.*$")), id="means only"),
        pytest.param(models(a=MANY.drop("mean", "q0.5"), b=nearer(MANY, 0.1)), id="no median in one"),
        pytest.param(models(a=MANY, b=nearer(MANY, 0.1)).drop("seasonal_naive", "seasonal_error"), id="no naive"),
        pytest.param(models(a=MANY, b=nearer(MANY, 0.1)).with_columns(y=0.0, seasonal_error=None), id="zeros"),
        pytest.param(models(**{f"model {i}": nearer(MANY, i / 20) for i in range(12)}), id="twelve models"),
        pytest.param(models(**{"_<b>$x$": MANY, "y" * 300: MANY}), id="strange names, equal scores"),
        pytest.param(models(only=MANY), id="one model"),
        pytest.param(models(a=MANY, b=nearer(MANY, 0.1)).to_pandas(), id="pandas"),
    ],
)
def test_any_models_give_a_complete_page(frame: Any, tmp_path: Path) -> None:
    page = outline(frame, tmp_path)
    assert re.search(r"Forecasts (of .* )?and actual values", page.text)
    assert not re.search(r"\b(nan|None|null|inf)\b", page.text)
    assert "<b>" not in ls.report(frame, tmp_path / "again.html").read_text()


@pytest.mark.filterwarnings("error:constrained_layout")
def test_many_models_show_the_pairs_of_the_best_and_leave_room_for_the_charts(tmp_path: Path) -> None:
    many = models(**{f"model {i} with quite a long name": nearer(MANY, i / 20) for i in range(9)})
    page = outline(many, tmp_path)
    assert "All 36 pairs of models" in page.texts
    best = ls.score(many)["model"][0]
    pairs = [text for text in page.texts if " against " in text and "seasonal" not in text]
    assert len(pairs) == 8 + 36
    assert all(pair.startswith(f"{best} against") for pair in pairs[:8])


def test_thousands_of_series_stay_a_small_page(tmp_path: Path) -> None:
    frame = results(series=3000, windows=1, horizon=4)
    both = models(a=frame, b=nearer(frame, 0.1))
    path = ls.report(both, tmp_path / "report.html")
    assert path.stat().st_size < 1_000_000
    page = Outline(path.read_text())
    assert "MASE per series, of the 25 best and the 25 worst of 3,000 series" in page.texts
    assert "resampling 3,000 series" in page.text


def test_models_on_different_rows_are_not_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must have the same series, times, cutoffs and y"):
        ls.report(models(a=MANY, b=MANY[1:]), tmp_path / "report.html")
    with pytest.raises(DataError, match=r"A report needs results. Got no rows"):
        ls.report(models(a=MANY).clear(), tmp_path / "report.html")


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    pages = [ls.report(THREE, tmp_path / f"{name}.html").read_bytes() for name in "ab"]
    assert pages[0] == pages[1]
