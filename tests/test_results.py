"""Names of columns that came in come out again, and are understood by score and report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import logsparse as ls
from command import QUICK, logsparse
from logsparse.errors import ConfigError, DataError

NAMES: Any = {"id_col": "sku", "time_col": "date", "target_col": "qty"}


@pytest.fixture
def sales() -> pl.DataFrame:
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 3, 31), eager=True)
    one = pl.DataFrame({"date": days, "qty": [float(n % 7 + 1) for n in range(len(days))]})
    return pl.concat(one.select(pl.lit(sku).alias("sku"), pl.all()) for sku in ("007", "008"))


def test_names_come_out_of_every_frame_as_they_came_in(sales: pl.DataFrame, tmp_path: Path) -> None:
    model = ls.SeasonalNaive(7).fit(sales, **NAMES)
    assert model.predict(quantiles=[0.5]).columns == ["sku", "date", "mean", "q0.5"]
    assert model.predict(sales).columns[:2] == model.forecast().frame().columns[:2] == ["sku", "date"]
    assert model.predict(sales.to_pandas()).columns.tolist()[:2] == ["sku", "date"]
    model.save(tmp_path / "model")
    loaded = ls.load(tmp_path / "model")
    assert loaded.predict().columns[:2] == loaded.predict(sales).columns[:2] == ["sku", "date"]
    results = ls.backtest(ls.SeasonalNaive(7), sales, windows=2, **NAMES)
    assert results.columns[:5] == ["sku", "date", "cutoff", "qty", "mean"]


def test_a_fitted_model_backtests_with_its_own_columns(sales: pl.DataFrame) -> None:
    model = ls.SeasonalNaive(7).fit(sales, until="2024-03-01", **NAMES)
    results = ls.backtest(model, sales, windows=3)
    assert results.columns[:4] == ["sku", "date", "cutoff", "qty"]
    assert ls.backtest(model, sales, windows=3, refit=True).equals(results)
    renamed = sales.rename({"qty": "amount"})
    assert ls.backtest(model, renamed, windows=3, target_col="amount").columns[3] == "amount"


def test_several_models_keep_the_names_and_are_scored_and_reported_by_them(sales: pl.DataFrame, tmp_path: Path) -> None:
    week = ls.SeasonalNaive(7).fit(sales, until="2024-03-01", **NAMES)
    results = ls.backtest({"day": ls.SeasonalNaive(7, season=1), "week": week}, sales, windows=3)
    assert results.columns[:6] == ["sku", "date", "cutoff", "qty", "model", "mean"]
    given = ls.backtest([ls.SeasonalNaive(7, season=1), ls.SeasonalNaive(7)], sales, windows=3, **NAMES)
    assert given.drop("model").equals(results.drop("model"))
    assert ls.score(results)["model"].to_list() == ["week", "day"]
    for by in ("sku", "unique_id"):
        assert ls.score(results, by=by).select("sku", "model").rows()[:2] == [("007", "week"), ("007", "day")]
    results.write_csv(tmp_path / "results.csv")
    printed = logsparse("score", tmp_path / "results.csv", "--by", "sku").out
    assert printed.split()[:2] == ["sku", "model"]
    assert "007" in printed
    page = ls.report(tmp_path / "results.csv", tmp_path / "report.html").read_text()
    assert "week has the lowest error of 2 models" in page


def test_attention_has_the_names_too(sales: pl.DataFrame) -> None:
    train = ls.TrainConfig(batch=4, epochs=1, steps_per_epoch=1)
    config = ls.Config(context=14, horizon=3, train=train)
    model = ls.LogSparse(horizon=3, config=config, verbose=False).fit(sales, **NAMES)
    assert model.attention().frame().columns == ["sku", "date", "value", "weight"]
    assert model.attention(step=None).frame().columns == ["sku", "date", "attended", "weight"]


def test_a_name_that_results_use_themselves_gives_way_to_the_default(sales: pl.DataFrame) -> None:
    odd = sales.rename({"qty": "mean", "sku": "model", "date": "q0.5"})
    results = ls.backtest(ls.SeasonalNaive(7), odd, id_col="model", time_col="q0.5", target_col="mean")
    assert results.columns[:5] == ["unique_id", "ds", "cutoff", "y", "mean"]
    crossed = sales.rename({"sku": "mean", "date": "unique_id"})
    model = ls.SeasonalNaive(7).fit(crossed, id_col="mean", time_col="unique_id", target_col="qty")
    assert model.predict().columns[:3] == ["unique_id", "ds", "mean"]


def test_a_wide_table_keeps_the_default_names(sales: pl.DataFrame) -> None:
    wide = sales.pivot("sku", index="date", values="qty")
    assert ls.SeasonalNaive(7).fit(wide, time_col="date").predict().columns[:2] == ["unique_id", "ds"]
    assert ls.backtest(ls.SeasonalNaive(7), wide).columns[:4] == ["unique_id", "ds", "cutoff", "y"]


def test_score_and_report_understand_a_backtest_under_any_names(sales: pl.DataFrame, tmp_path: Path) -> None:
    results = ls.backtest(ls.SeasonalNaive(7), sales, windows=2, **NAMES)
    standard = results.rename({"sku": "unique_id", "date": "ds", "qty": "y"})
    results.write_csv(tmp_path / "results.csv")
    for data in (results, tmp_path / "results.csv"):
        assert ls.score(data).equals(ls.score(standard))
        assert ls.score(data, by="step").equals(ls.score(standard, by="step"))
        for by in ("sku", "unique_id"):
            scores = ls.score(data, by=by)
            assert scores["sku"].to_list() == ["007", "008"]
    shuffled = results.select(pl.lit(1.0).alias("y"), "qty", "cutoff", "mean", "date", "sku")
    named = ls.score(shuffled, by="sku", **NAMES)
    assert named["mae"].to_list() == ls.score(results.drop("q0.5"), by="sku")["mae"].to_list()
    page = ls.report(results, tmp_path / "report.html").read_text()
    assert page == ls.report(standard, tmp_path / "again.html").read_text()
    assert ls.report(shuffled, tmp_path / "named.html", **NAMES).exists()


def test_names_that_are_not_there_are_refused(sales: pl.DataFrame) -> None:
    results = ls.backtest(ls.SeasonalNaive(7), sales, **NAMES)
    with pytest.raises(DataError, match=r"Got id_col='skus', and the columns sku, date.*did you mean 'sku'"):
        ls.score(results, id_col="skus")
    with pytest.raises(
        ConfigError, match=r"by must be None, 'sku', 'step', 'cutoff' or another column.*did you mean 'sku'"
    ):
        ls.score(results, by="skus")
    with pytest.raises(ConfigError, match="unknown keyword 'idcol'"):
        ls.score(results, idcol="sku")  # type: ignore[call-arg]
    with pytest.raises(DataError, match="no unique_id, y among sku, day, qty"):
        ls.score(sales.rename({"date": "day"}))


def test_a_folder_of_the_first_version_has_the_names_of_its_columns(sales: pl.DataFrame, tmp_path: Path) -> None:
    from logsparse.folder import read, write

    ls.SeasonalNaive(7).fit(sales, **NAMES).save(tmp_path / "new")
    folder = read(tmp_path / "new")
    for key in ("names", "written"):
        del folder.series["panel"]["origin"][key]
    write(tmp_path / "old", folder)
    assert "names" not in json.loads((tmp_path / "old" / "series.json").read_text())["panel"]["origin"]
    assert ls.load(tmp_path / "old").predict().columns[:2] == ["sku", "date"]


def test_the_commands_read_local_times_and_keep_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    times = pd.date_range("2024-10-20", periods=400, freq="h", tz="Europe/Berlin")
    rows = [f"m{m};{time:%d.%m.%Y %H:%M};{n % 24},5" for m in (1, 2) for n, time in enumerate(times)]
    Path("meters.csv").write_text("\n".join(["meter;zeit;kwh", *rows]))
    names = ("--id-col", "meter", "--time-col", "zeit", "--target-col", "kwh")
    asked = ("--tz", "Europe/Berlin", "--dayfirst")
    assert "'zeit'" in logsparse("check", "meters.csv", *names).err
    checked = logsparse("check", "meters.csv", *names, *asked)
    assert checked.code == 0
    assert "Europe/Berlin" in checked.out
    assert "0 (0.00%)" in checked.out
    form = ("--tz", "Europe/Berlin", "--time-format", "%d.%m.%Y %H:%M")
    assert logsparse("check", "meters.csv", *names, *form).out == checked.out
    fitted = logsparse("fit", "meters.csv", "-o", "model", "--horizon", 24, *names, *asked, *QUICK)
    assert fitted.code == 0, fitted.err
    assert logsparse("predict", "model", "meters.csv", "-o", "forecast.csv").code == 0
    table = pl.read_csv("forecast.csv")
    assert table.columns[:3] == ["meter", "zeit", "mean"]
    assert table["zeit"][0] == "2024-11-05T15:00:00.000000", times[-1]
    done = logsparse("backtest", "seasonal-naive", "meters.csv", "--horizon", 24, *names, *asked, "-o", "r.csv")
    assert done.code == 0, done.err
    scored = logsparse("score", "r.csv", "--by", "meter")
    assert scored.out.splitlines()[0].split()[0] == "meter"
    assert logsparse("score", "r.csv", *names).out == logsparse("score", "r.csv").out
    assert logsparse("report", "r.csv", "-o", "r.html").code == 0
    assert logsparse("attend", "model").out.splitlines()[0].split()[0] == "zeit"
