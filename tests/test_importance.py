"""Importance: what the forecast rests on is found, what it does not rest on is not, on held-back windows alone."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from explained import sales, trained
from logsparse.data.features import Features
from logsparse.data.scale import Profile
from logsparse.data.windows import Windows
from small import panel as small_panel


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return sales()


@pytest.fixture(scope="module")
def model(frame: pl.DataFrame) -> ls.LogSparse:
    return trained(frame)


@pytest.fixture(scope="module")
def found(model: ls.LogSparse) -> ls.Importance:
    return ls.importance(model)


def row(found: ls.Importance, name: str) -> dict[str, Any]:
    return found.table().row(by_predicate=pl.col("input") == name, named=True)


def test_price_and_promo_are_found_and_the_moon_is_not(found: ls.Importance) -> None:
    covariates = found.table().filter(pl.col("kind") == "covariate")
    assert covariates["input"].to_list()[-1] == "moon"
    for name in ("price", "promo"):
        assert row(found, name)["low"] > 0.5, name
    assert abs(row(found, "moon")["increase"]) < 0.1
    assert row(found, "moon")["increase"] < row(found, "promo")["low"] / 5


def test_every_kind_of_input_has_its_rows(found: ls.Importance) -> None:
    kinds = dict(found.table().group_by("kind", maintain_order=True).agg(pl.col("input").sort()).rows())
    assert kinds == {
        "covariate": ["moon", "price", "promo"],
        "static": ["size"],
        "calendar": ["age", "day", "month", "weekday", "year"],
        "lags": ["lag 1", "lag 7", "profile 7x3"],
        "past": ["past values"],
    }
    assert row(found, "weekday")["low"] > 0 or row(found, "past values")["low"] > 0


def test_a_feature_that_is_the_same_everywhere_has_no_importance_at_all(found: ls.Importance) -> None:
    # All days are of one year.
    year = row(found, "year")
    assert (year["increase"], year["low"], year["high"], year["wql"] - year["wql_without"]) == (0, 0, 0, 0)


def test_the_loss_is_that_of_the_forecasts_at_the_last_four_cutoffs(model: ls.LogSparse, found: ls.Importance) -> None:
    assert repr(found) == "Importance(13 inputs on 32 windows of 8 series, 5 repeats)"
    tables = []
    for window in range(4):
        cut = model.panel_.cut(model.panel_.lengths - 7 * (4 - window))
        forecast = model.forecast(cut)
        truth = np.stack([model.panel_[i][n : n + 7] for i, n in enumerate(cut.lengths)])
        tables.append(forecast.table().with_columns(y=pl.Series(truth.ravel()), cutoff=pl.lit(window)))
    scored = ls.score(pl.concat(tables))["wql"].item()
    assert row(found, "price")["wql"] == pytest.approx(scored, rel=1e-6)


def test_the_same_seed_gives_the_same_table_and_another_seed_another(model: ls.LogSparse, frame: pl.DataFrame) -> None:
    first, again, other = (ls.importance(model, frame, windows=1, repeats=2, seed=seed).table() for seed in (3, 3, 4))
    assert first.equals(again)
    assert not first.equals(other)
    assert model.input_delays is None


def test_windows_are_held_back_from_training(model: ls.LogSparse, frame: pl.DataFrame) -> None:
    # A tenth of 365 days is kept for validation: five weeks.
    assert ls.importance(model, frame, windows=5, repeats=1).windows == 5
    for data in (None, frame):
        with pytest.raises(ls.DataError, match=r"held back from training. Got at most 35 such steps per series, while"):
            ls.importance(model, data, windows=6)


def test_a_forecaster_that_holds_nothing_back_needs_newer_data(frame: pl.DataFrame) -> None:
    naive = ls.SeasonalNaive(horizon=7).fit(frame, covariates=["price"], static=["size"])
    with pytest.raises(ls.DataError, match=r"Got at most 0 such steps per series, while 7 are needed. Hint: pass data"):
        ls.importance(naive)
    wave = frame.with_columns(y=pl.col("ds").dt.weekday() + pl.col("moon") / 10)
    early = ls.SeasonalNaive(horizon=7).fit(wave, until="2023-12-01", covariates=["price"], static=["size"])
    table = ls.importance(early, wave).table()
    # It reads the past alone.
    assert table["input"].to_list()[0] == "past values"
    assert table["low"][0] > 0
    assert table["increase"].to_list()[1:] == [0, 0]


def test_a_loaded_model_asks_for_its_data(model: ls.LogSparse, frame: pl.DataFrame, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = ls.load(tmp_path / "model")
    with pytest.raises(ls.DataError, match=r"keeps only the end of its data.*pass the data that it was fitted on"):
        ls.importance(loaded)
    expected = ls.importance(model, frame, windows=1, repeats=1).table()
    assert ls.importance(loaded, frame, windows=1, repeats=1).table().equals(expected)
    with pytest.raises(ls.DataError, match="Got at most 35 such steps"):
        ls.importance(loaded, frame, windows=6)


def test_short_series_are_left_out_and_many_are_drawn_from(model: ls.LogSparse, frame: pl.DataFrame) -> None:
    brief = frame.filter((pl.col("unique_id") != "s3") | (pl.col("ds") > date(2023, 12, 28)))
    assert ls.importance(model, brief, windows=1, repeats=1).series == 7
    assert ls.importance(model, frame, windows=1, repeats=1, series=3).series == 3


def test_the_frame_comes_back_in_the_library_of_the_data(model: ls.LogSparse, frame: pl.DataFrame) -> None:
    given = ls.importance(model, frame.to_pandas(), windows=1, repeats=1).frame()
    assert list(given.columns) == ["kind", "input", "wql", "wql_without", "increase", "low", "high"]
    assert type(given).__module__.startswith("pandas")


def test_a_perfect_forecast_has_no_ratio() -> None:
    frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    found = ls.importance(ls.SeasonalNaive(horizon=7, season=7).fit(frame, until=55), frame)
    assert found.table().row(0)[2:3] == (0.0,)
    assert found.table()["increase"].to_list() == [None]
    assert found.plot().axes


def test_values_that_are_all_zero_have_no_weighted_loss() -> None:
    frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t) if t < 55 else 0.0 for t in range(70)]})
    table = ls.importance(ls.SeasonalNaive(horizon=7, season=7).fit(frame, until=55), frame, windows=1).table()
    assert table.select("wql", "wql_without").row(0) == (None, None)
    assert table["increase"][0] is None or np.isfinite(table["increase"][0])


def test_the_model_stays_as_talkative_as_it_was(model: ls.LogSparse, capsys: pytest.CaptureFixture[str]) -> None:
    model.verbose = True
    try:
        ls.importance(model, windows=1, repeats=1)
        assert model.verbose
    finally:
        model.verbose = False
    # One line for all forecasts together.
    assert capsys.readouterr().err.startswith("explaining: 14 of 14")


def test_the_picture_names_every_input(found: ls.Importance) -> None:
    (axes,) = found.plot().axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[0].split(" (")[0] == found.table()["input"][0]
    assert len(names) == 13
    assert "%" in axes.get_xlabel()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"windows": 0}, "windows must be at least 1"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"series": "all"}, "series must be a whole number"),
    ],
)
def test_wrong_arguments_are_refused(model: ls.LogSparse, wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ls.ConfigError, match=text):
        ls.importance(model, **wrong)


def test_only_a_fitted_forecaster_is_explained() -> None:
    with pytest.raises(ls.NotFittedError):
        ls.importance(ls.SeasonalNaive(horizon=7))
    with pytest.raises(ls.ConfigError, match=r"inputs of a forecaster. Got str"):
        ls.importance("model")  # type: ignore[arg-type]


def test_a_delayed_input_is_that_of_earlier_steps_and_the_others_stay() -> None:
    panel = small_panel(missing=0)
    features = Features.fit(panel, ("hour", "age"))
    kinds: dict[str, Any] = {"context": 24, "horizon": 6, "lags": (1, 24), "profiles": (Profile(24, 1),)}
    series, start = np.array([0, 3]), np.array([90, 100])
    plain = Windows(panel, features, **kinds)
    now, before = plain(series, start).clone(), plain(series, start - 5).clone()
    delays = {"hour": 5, "lag 24": 5, "profile 24x1": 5}
    late = Windows(panel, features, **kinds, delays=delays)(series, start)
    centred = before.centre_B - now.centre_B
    assert np.allclose(late.lagged_BLK[..., 1], before.lagged_BLK[..., 1] + centred[:, None])
    assert np.allclose(late.profile_BLR, before.profile_BLR + centred[:, None, None])
    assert (late.features_BLF[..., 0] == before.features_BLF[..., 0]).all()
    assert (late.features_BLF[..., 1] == now.features_BLF[..., 1]).all()
    for part in ("values_BL", "scale_B", "centre_B"):
        assert (getattr(late, part) == getattr(now, part)).all(), part
    assert (late.lagged_BLK[..., 0] == now.lagged_BLK[..., 0]).all()
