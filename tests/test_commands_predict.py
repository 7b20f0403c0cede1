"""`logsparse predict`: a file of quantiles from a saved model, for its own history or another."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import logsparse as ls
from command import QUICK, logsparse, refusal


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a model of it, and one with a covariate."""
    folder = tmp_path_factory.mktemp("predict")
    times = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 5), "1h", eager=True, closed="left")
    wave = [10.0 + hour % 24 for hour in range(len(times))]
    frame = pl.DataFrame({"unique_id": "a", "ds": times, "y": wave, "price": wave})
    frame.write_csv(folder / "hours.csv")
    assert logsparse("fit", folder / "hours.csv", "--horizon", 6, "-o", folder / "model", *QUICK).code == 0
    with_price = ["--covariates", "price", "-o", folder / "priced"]
    assert logsparse("fit", folder / "hours.csv", "--horizon", 6, *with_price, *QUICK).code == 0
    later = times.dt.offset_by("4d").head(6)
    pl.DataFrame({"unique_id": "a", "ds": later, "price": 1.0}).write_csv(folder / "future.csv")
    ls.SeasonalNaive(horizon=6).fit(frame).save(folder / "naive")
    return folder


def test_the_forecast_starts_after_the_fitted_data(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "forecast.csv"
    done = logsparse("predict", place / "model", "-o", out)
    assert done.code == 0, done.err
    assert "from 2024-01-05 00:00:00 to 2024-01-05 05:00:00" in done.out
    assert f"wrote {out}" in done.err
    found = pl.read_csv(out, try_parse_dates=True)
    assert found.columns == ["unique_id", "ds", "mean", *(f"q0.{level}" for level in range(1, 10))]
    expected = ls.load(place / "model").predict()
    assert found["q0.5"].to_numpy() == pytest.approx(expected["q0.5"].to_numpy(), rel=1e-5)


def test_the_method_can_be_given(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "forecast.parquet"
    assert logsparse("predict", place / "model", "--method", "direct", "-o", out).code == 0
    expected = ls.load(place / "model", method="direct").predict()
    assert pl.read_parquet(out)["q0.9"].to_list() == expected["q0.9"].to_list()


def test_a_forecast_loads_nothing_that_it_does_not_need(place: Path, tmp_path: Path) -> None:
    script = """
import sys
from logsparse.cli import main
try:
    main()
except SystemExit as left:
    print(left.code or 0, *sorted({name.split(".")[0] for name in sys.modules}))
"""
    words = ["predict", str(place / "model"), "-o", str(tmp_path / "forecast.csv")]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    code, *loaded = done.stdout.splitlines()[-1].split()
    assert code == "0"
    assert "torch" in loaded
    # sympy stands for torch's compiler, which is never needed here and takes seconds.
    heavy = {"matplotlib", "scipy", "jinja2", "pandas", "pyarrow", "statsforecast", "psutil", "sympy", "triton"}
    assert not heavy & set(loaded)


def test_history_quantiles_and_samples_can_be_given(place: Path, tmp_path: Path) -> None:
    history = pl.read_csv(place / "hours.csv", try_parse_dates=True).head(50).drop("price")
    history.write_parquet(tmp_path / "other.parquet")
    out = tmp_path / "forecast.parquet"
    words = ["--quantiles", "0.9,0.05", "--samples", 7, "-o", out]
    assert logsparse("predict", place / "model", tmp_path / "other.parquet", *words).code == 0
    expected = ls.load(place / "model", samples=7).predict(history, quantiles=[0.05, 0.9])
    assert pl.read_parquet(out).equals(expected)


@pytest.mark.parametrize("installed", [True, False])
def test_a_model_fitted_on_pandas_forecasts_with_and_without_it(
    installed: bool, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pl.read_csv(place / "hours.csv", try_parse_dates=True)
    model = ls.SeasonalNaive(horizon=6).fit(frame.to_pandas())
    model.save(tmp_path / "model")
    if not installed:
        monkeypatch.setitem(sys.modules, "pandas", None)
    assert logsparse("predict", tmp_path / "model", "-o", tmp_path / "forecast.parquet").code == 0
    expected = ls.load(place / "naive").predict()
    assert pl.read_parquet(tmp_path / "forecast.parquet").equals(expected)


def test_covariates_of_the_future_come_from_a_file(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "forecast.parquet"
    assert logsparse("predict", place / "priced", "--future", place / "future.csv", "-o", out).code == 0
    assert pl.read_parquet(out).height == 6
    assert "must be known for the 6 steps to forecast" in refusal("predict", place / "priced", "-o", out)


def test_a_new_item_is_forecast_from_its_kind_and_visitors_need_no_future(place: Path, tmp_path: Path) -> None:
    hours = pl.read_csv(place / "hours.csv").with_columns(visitors=2 * pl.col("y"))
    shops = [
        hours.with_columns(unique_id=pl.lit(name), kind=pl.lit(kind)) for name, kind in zip("abc", "xyx", strict=True)
    ]
    pl.concat(shops).write_csv(tmp_path / "shops.csv")
    pl.DataFrame({"unique_id": ["new"], "kind": ["x"]}).write_csv(tmp_path / "new.csv")
    columns = ["--past-covariates", "visitors", "--static", "kind", "-o", tmp_path / "model"]
    done = logsparse("fit", tmp_path / "shops.csv", "--horizon", 6, *columns, *QUICK)
    assert done.code == 0, done.err
    assert re.search(r"past covariates +visitors", done.out)
    out = tmp_path / "forecast.csv"
    done = logsparse("predict", tmp_path / "model", "--future", tmp_path / "new.csv", "-o", out)
    assert done.code == 0, done.err
    assert pl.read_csv(out)["unique_id"].unique(maintain_order=True).to_list() == ["a", "b", "c", "new"]
    text = refusal("predict", place / "model", "--future", tmp_path / "new.csv", "-o", out)
    assert "Got series 'new' without a history, and a model without static columns and covariates." in text
    assert "Hint: fit it with --static A,B or model.hidden_history=0.1; or pass" in text
    text = refusal("predict", tmp_path / "model", place / "hours.csv", "-o", out)
    assert "was fitted with (static: kind; past covariates: visitors). Got no kind, visitors." in text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nowhere"], "nowhere must be the folder of a saved logsparse model. Got no such folder."),
        (["model", "--quantiles", "a"], "--quantiles must be levels between 0 and 1. Got 'a'."),
        (["model", "--quantiles", "0.5,1"], "Quantiles must be a list of levels between 0 and 1"),
        (["model", "--quantiles", ","], "Quantiles must be a list of levels between 0 and 1"),
        (["model", "--samples", 0], "samples must be at least 1. Got 0."),
        (["naive", "--method", "direct"], "Got method='direct'. Hint: leave it out."),
        (["model", "--method", "ancestral"], "Got ancestral of a network trained for two-way and direct."),
        (["naive", "--samples", 9], "Got samples=9. Hint: leave it out."),
        (["model", "--future", "future.csv"], "Future values are for covariates named at fit."),
        (["model", "no.csv"], "no.csv: no such file"),
        (["model", "-o", "x.xls"], "Results are written as parquet, csv, feather or json."),
        (["model", "-o", "/proc/x.csv"], "The result must be writable."),
    ],
)
def test_an_error_is_one_line_and_writes_nothing(
    place: Path, words: list[Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    assert text in refusal("predict", *words)
    assert sorted(place.rglob("*")) == before


def test_a_forecast_is_never_written_over_its_inputs(place: Path) -> None:
    data = place / "hours.csv"
    before = data.read_bytes()
    for out in (data, place / "model" / "x.csv"):
        assert "must not be written over its inputs" in refusal("predict", place / "model", data, "-o", out)
    assert data.read_bytes() == before
    assert not (place / "model" / "x.csv").exists()
