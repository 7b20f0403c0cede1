"""Ensembles: weights from held-back windows, members of any kind, one folder, one error for what does not fit."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import logsparse as ls
from logsparse import registry
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError, DataError, NotFittedError
from logsparse.train.loop import Training

NETWORK: dict[str, Any] = {"context": 14, "steps": 3, "layers": 1, "batch": 4, "verbose": False}
BEGIN = datetime(2024, 1, 1)  # noqa: DTZ001


def weekly(steps: int = 70, series: Sequence[str] = ("a", "b"), seed: int = 0, **more: Any) -> pl.DataFrame:
    """Days that repeat by the week, with noise."""
    rng = np.random.default_rng(seed)
    times = [BEGIN + timedelta(days=day) for day in range(steps)]
    wave = 20 + np.resize([0.0, 3, 5, 4, 2, 8, 9], steps)
    return pl.concat(
        pl.DataFrame({"unique_id": name, "ds": times, "y": wave + rng.normal(size=steps), **more}) for name in series
    )


class Off(ls.SeasonalNaive):
    """Seasonal naive, some units too high, with paths that all rise or fall together on request."""

    def __init__(self, horizon: int, season: int | None = None, by: float = 0, samples: int | None = None) -> None:
        super().__init__(horizon, season)
        self.by, self.samples = by, samples

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> ls.Forecast:
        found = super()._forecast(panel, levels)
        paths = None
        if self.samples is not None:
            order = np.random.default_rng(0).permutation(self.samples)
            paths = (found.mean[:, None] + self.by + order[:, None]).astype(np.float32)
        return ls.Forecast(panel, found.mean + self.by, levels, found.quantiles + self.by, paths)


class Refusing(ls.SeasonalNaive):
    """Takes no data at all."""

    def _fit(self, panel: Panel) -> None:
        raise DataError("Nothing is good enough.", got=f"{len(panel)} series", hint="ask another one.")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    ls.register(Off)


def test_the_weights_follow_from_the_last_windows_and_the_forecast_from_the_weights() -> None:
    frame = weekly()
    model = ls.Ensemble([Off(7, by=6), Off(7, by=-6), ls.SeasonalNaive(7, season=1)]).fit(frame)
    assert [*model.weights_] == ["Off", "Off-2", "SeasonalNaive"]
    assert sum(model.weights_.values()) == pytest.approx(1)
    assert model.weights_["Off"] == pytest.approx(model.weights_["Off-2"], abs=0.1)
    assert [*model.members_] == [name for name, weight in model.weights_.items() if weight]
    assert model.losses_["combined"] < 0.7 * min(loss for name, loss in model.losses_.items() if name != "combined")
    parts = {name: member.forecast() for name, member in model.members_.items()}
    expected = sum(model.weights_[name] * part.quantiles.astype(float) for name, part in parts.items())
    np.testing.assert_allclose(model.forecast().quantiles, expected, rtol=1e-6)
    assert "Off-2" in repr(model)
    assert f"{model.weights_['Off']:.2f} Off" in repr(model)


def test_weights_are_found_before_the_end_and_members_are_fitted_up_to_it() -> None:
    seen: list[int] = []

    class Spy(ls.SeasonalNaive):
        def _fit(self, panel: Panel) -> None:
            seen.append(int(panel.lengths[0]))
            super()._fit(panel)

    ls.Ensemble([Spy(7), Off(7, by=50)], windows=3).fit(weekly(70))
    assert seen == [70 - 3 * 7, 70]
    ls.Ensemble([Spy(7), Off(7, by=50)]).fit(weekly(40), until=BEGIN + timedelta(days=34))
    assert seen[2:] == [35 - 2 * 7, 35], "at most half of the data are held back"


def test_a_member_without_weight_is_dropped_and_one_alone_is_what_it_is() -> None:
    frame = weekly()
    model = ls.Ensemble([Off(7, by=100), "seasonal-naive"]).fit(frame)
    assert model.weights_ == {"Off": 0.0, "SeasonalNaive": 1.0}
    assert [*model.members_] == ["SeasonalNaive"]
    alone = ls.SeasonalNaive(7).fit(frame)
    assert_frame_equal(model.predict(), alone.predict(), check_exact=True)
    single = ls.Ensemble([ls.SeasonalNaive(7)]).fit(frame)
    assert_frame_equal(single.predict(), alone.predict(), check_exact=True)
    assert (single.weights_, single.losses_) == ({"SeasonalNaive": 1.0}, {})


def test_members_that_are_given_are_not_changed_and_a_clone_has_nothing_that_they_learned() -> None:
    fitted = ls.SeasonalNaive(7).fit(weekly(30))
    model = ls.Ensemble([fitted, "seasonal-naive"]).fit(weekly(70))
    assert fitted.panel_.lengths.tolist() == [30, 30]
    twin = model.clone()
    assert not hasattr(twin, "panel_")
    assert not hasattr(twin.members[0], "panel_")
    assert repr(twin) == "Ensemble(members=[SeasonalNaive(horizon=7), 'seasonal-naive'], horizon=7)"
    assert model.members[0] is fitted


def test_short_series_have_equal_weights_and_a_line_that_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model = ls.Ensemble([Off(7, by=2), ls.SeasonalNaive(7)]).fit(weekly(13))
    assert model.weights_ == {"Off": 0.5, "SeasonalNaive": 0.5}
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "Ensemble: no series is long enough to hold back a window, so all members weigh the same"


def test_without_windows_members_are_fitted_once_on_all_data_and_weigh_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lengths = []

    class Spy(Off):
        def _fit(self, panel: Panel) -> None:
            lengths.append(panel.lengths.tolist())
            super()._fit(panel)

    model = ls.Ensemble([Spy(7), Off(7, by=50)], windows=0).fit(weekly(70))
    assert model.weights_ == {"Spy": 0.5, "Off": 0.5}
    assert lengths == [[70, 70]]
    assert not caplog.records


def test_series_that_are_too_short_are_forecast_without_a_say_in_the_weights() -> None:
    late = weekly(70, ["late"]).with_columns(y=pl.when(pl.col("ds") > BEGIN + timedelta(days=60)).then("y"))
    frame = pl.concat([weekly(70, ["long"]), weekly(5, ["short"]), late])
    model = ls.Ensemble([Off(7, by=100), ls.SeasonalNaive(7)]).fit(frame)
    assert model.weights_ == {"Off": 0.0, "SeasonalNaive": 1.0}
    assert model.predict()["unique_id"].unique().sort().to_list() == ["late", "long", "short"]


def test_a_fit_that_fails_leaves_what_was_learned_before() -> None:
    model = ls.Ensemble([Off(7, by=1), ls.SeasonalNaive(7)]).fit(weekly())
    before = model.predict()
    with pytest.raises(DataError, match="Nothing is good enough"):
        model.set_params(members=[Refusing(7)]).fit(weekly(40))
    assert_frame_equal(model.predict(), before, check_exact=True)


def test_a_member_that_refuses_the_data_is_left_out_by_name(caplog: pytest.LogCaptureFixture) -> None:
    frame = weekly()
    model = ls.Ensemble([Refusing(7), ls.SeasonalNaive(7)]).fit(frame)
    assert model.weights_ == {"Refusing": 0.0, "SeasonalNaive": 1.0}
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("Ensemble: Refusing is left out: Nothing is good enough. Got 2 series. Hint: ask another")
    with pytest.raises(DataError, match=r"^Nothing is good enough. Got 2 series"):
        ls.Ensemble([Refusing(7), Refusing(7)]).fit(frame)
    short = ls.Ensemble([Refusing(7), ls.SeasonalNaive(7), Off(7)]).fit(weekly(13))
    assert short.weights_ == {"Refusing": 0.0, "SeasonalNaive": 0.5, "Off": 0.5}


def test_a_network_is_fitted_on_few_values_and_left_out_where_none_can_be(caplog: pytest.LogCaptureFixture) -> None:
    few = ls.Ensemble([ls.LogSparse(7, **NETWORK), ls.SeasonalNaive(7)]).fit(weekly(30))
    assert set(few.losses_) == {"LogSparse", "SeasonalNaive", "combined"}
    assert "left out" not in caplog.text
    fewest = ls.Ensemble([ls.LogSparse(3, verbose=False), ls.SeasonalNaive(3)]).fit(weekly(2))
    assert fewest.weights_ == {"LogSparse": 0.0, "SeasonalNaive": 1.0}
    assert "LogSparse is left out: At least one series must have one step of history" in caplog.text


def test_a_member_whose_package_is_missing_is_refused_before_anything_is_fitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logsparse.baselines.classical.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"^AutoETS needs the package statsforecast. .* Hint: pip install"):
        ls.Ensemble(["seasonal-naive", "ets"], 7).fit("no such file")


@pytest.mark.parametrize(
    ("members", "horizon", "message"),
    [
        ([], 7, r"^An ensemble has a list of forecasters, or of their names. Got \[\]. Hint: write Ensemble\(\["),
        ("ets", 7, r"^An ensemble has a list of forecasters, or of their names. Got 'ets'"),
        (ls.SeasonalNaive(7), 7, r"^An ensemble has a list of forecasters, .* Got SeasonalNaive\(horizon=7\)"),
        ([ls.SeasonalNaive], 7, r"^A member of an ensemble must be a forecaster .* Got the class SeasonalNaive. Hint"),
        ([3], 7, r"^A member of an ensemble must be a forecaster with its settings, or a name. Got 3"),
        (["etz"], 7, r"^A model must be one of: .* Got 'etz'. Hint: did you mean 'ets'"),
        (["seasonal-naive"], None, r"^An ensemble of names needs a horizon. Got none. Hint: write Ensemble\(\['seas"),
        ([ls.SeasonalNaive(7), Off(8)], None, r"^Members of an ensemble must have its horizon. Got 8 for Off, 7 for"),
        (["trmf"], 7, r"^An ensemble needs a member with quantiles. Got TRMF, with one value per step. Hint: add"),
    ],
)
def test_wrong_members_are_refused_at_fit(members: Any, horizon: int | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ls.Ensemble(members, horizon).fit(weekly())


def test_windows_must_be_a_count() -> None:
    with pytest.raises(ConfigError, match=r"^windows must be at least 0. Got -1. Hint: count the windows to hold back"):
        ls.Ensemble(["seasonal-naive"], 7, windows=-1).fit(weekly())


@pytest.mark.usefixtures("registered")
def test_a_registered_class_is_known_by_name_and_its_folder_needs_it_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ls.Ensemble(["Off", Off(7, by=1)], 7).fit(weekly())
    model.save(tmp_path / "model")
    assert_frame_equal(ls.load(tmp_path / "model").predict(), model.predict(), check_exact=True)
    monkeypatch.setattr(registry, "_registered", {})
    with pytest.raises(DataError, match=r"^Members of a saved ensemble must be of kinds .* Got Off. Hint: "):
        ls.load(tmp_path / "model")


@pytest.mark.usefixtures("registered")
def test_paths_are_whole_paths_of_members_with_the_quantiles_of_all() -> None:
    members = [Off(7, by=3, samples=100), Off(7, by=-3, samples=80), ls.SeasonalNaive(7)]
    model = ls.Ensemble(members).fit(weekly(13))  # too short for other weights than equal ones
    forecast = model.forecast(quantiles=[0.25, 0.75])
    assert forecast.samples is not None
    assert forecast.samples.shape == (2, 80, 7)
    ranks = forecast.samples.argsort(1).argsort(1)
    assert (ranks.std(axis=2) <= 1).all(), "a path that is high stays high, as those of the members do"
    assert model.predict().columns[:3] == ["unique_id", "ds", "mean"]
    assert ls.Ensemble([Off(7, by=3), Off(7, by=-3)]).fit(weekly()).forecast().samples is None


def test_a_forecaster_of_one_value_takes_part_with_it_at_every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    model = ls.Ensemble([ls.TRMF(7, rank=2, verbose=False), "seasonal-naive"]).fit(weekly(13))
    median = model.members_["TRMF"].forecast().quantile(0.5)
    naive = model.members_["SeasonalNaive"].forecast(quantiles=[0.1, 0.9])
    np.testing.assert_allclose(model.forecast(quantiles=[0.1, 0.9]).quantile(0.9), (median + naive.quantile(0.9)) / 2)


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return weekly(70, price=1.0, kind="x")


@pytest.fixture(scope="module")
def mixed(frame: pl.DataFrame) -> ls.Ensemble:
    """A network, with equal weight by force of a short history, and seasonal naive."""
    model = ls.Ensemble([ls.LogSparse(7, samples=20, **NETWORK), "seasonal-naive"])
    model.fit(frame, covariates=["price"], static=["kind"])
    if len(model.members_) < 2:  # hardly trained: give it a say
        network = ls.LogSparse(7, samples=20, **NETWORK).fit(model.panel_)
        model.members_ = {"LogSparse": network, **model.members_}
        model.weights_ = {"LogSparse": 0.25, "SeasonalNaive": 0.75}
    return model


def later(steps: int = 7, price: float = 1.0) -> pl.DataFrame:
    times = [BEGIN + timedelta(days=70 + day) for day in range(steps)]
    return pl.concat(pl.DataFrame({"unique_id": name, "ds": times, "price": price}) for name in ("a", "b"))


def test_covariates_horizon_and_findings_are_those_of_any_forecaster(mixed: ls.Ensemble, frame: pl.DataFrame) -> None:
    whole = mixed.predict(future=later())
    assert whole.height == 14
    first = whole.group_by("unique_id", maintain_order=True).head(3)
    assert_frame_equal(mixed.predict(future=later(3), horizon=3), first, check_exact=True)
    with pytest.raises((ConfigError, DataError), match="future"):
        mixed.predict()
    dead = frame.with_columns(pl.when(pl.col("unique_id") == "b").then(None).otherwise("y").alias("y"))
    assert mixed.predict(dead, future=later(), on_bad="skip")["unique_id"].unique().to_list() == ["a"]
    changed = ls.what_if(mixed, later(), later(price=2.0))
    assert changed.table().height == 3 * 14
    with pytest.raises(
        ConfigError, match=r"^A fitted ensemble forecasts the horizon of its members. Got horizon=3 for"
    ):
        ls.Ensemble(["seasonal-naive"], 7).fit(frame).set_params(horizon=3).predict()


def test_a_folder_holds_all_members_and_loading_changes_those_that_can_be(mixed: ls.Ensemble, tmp_path: Path) -> None:
    mixed.save(tmp_path / "model")
    names = {"config.json", "model.safetensors", "series.json", "history.safetensors"}
    assert {path.name for path in (tmp_path / "model").iterdir()} >= names
    loaded = ls.load(tmp_path / "model")
    assert isinstance(loaded, ls.Ensemble)
    assert (loaded.weights_, loaded.losses_) == (mixed.weights_, mixed.losses_)
    before, after = mixed.forecast(future=later()), loaded.forecast(future=later())
    np.testing.assert_array_equal(before.quantiles, after.quantiles)
    np.testing.assert_array_equal(before.samples, after.samples)
    fewer = ls.load(tmp_path / "model", samples=5, method="two-way").forecast(future=later())
    assert fewer.samples is not None
    assert fewer.samples.shape[1] == 5
    with pytest.raises(ConfigError, match=r"^Only .*device, .* can be changed on loading. Got sample=5. Hint: did you"):
        ls.load(tmp_path / "model", sample=5)
    with pytest.raises(ConfigError, match="samples must be at least 1"):
        ls.load(tmp_path / "model", samples=0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda learned: learned["weights"].update(SeasonalNaive=0.9),
        lambda learned: learned["weights"].pop("SeasonalNaive"),
        lambda learned: learned["members"].pop(),
        lambda learned: learned["members"][0].pop("learned"),
        lambda learned: learned["members"][0]["settings"].update(horizon=8),
        lambda learned: learned.update(losses=[1.0]),
    ],
)
def test_a_folder_that_does_not_fit_together_is_refused(mixed: ls.Ensemble, damage: Any) -> None:
    facts, arrays = mixed._state()
    facts = json.loads(json.dumps(facts))
    damage(facts)
    other = mixed.clone()
    other.check()
    other.panel_, other.columns_ = mixed.panel_, mixed.columns_
    with pytest.raises((ValueError, KeyError)):
        other._restore(facts, arrays)


def test_it_is_tested_scored_explained_and_reported_like_any_other(
    mixed: ls.Ensemble, frame: pl.DataFrame, tmp_path: Path
) -> None:
    models = {"both": ls.Ensemble([Off(7, by=3), Off(7, by=-3)]), "naive": ls.SeasonalNaive(7)}
    results = ls.backtest(models, frame, windows=2)
    scores = ls.score(results)
    assert set(scores["model"]) == {"both", "naive"}
    explained = ls.importance(ls.Ensemble([Off(7), Off(7, by=1)]).fit(frame, until=BEGIN + timedelta(days=55)), frame)
    assert explained.table()["input"].to_list() == ["past values"]
    alone = ls.backtest(ls.Ensemble(["seasonal-naive"], 7), frame)
    page = Path(ls.report(alone, tmp_path / "report.html", model=mixed)).read_text()
    assert "Settings of Ensemble" in page
    assert "weights" in page
    with pytest.raises(DataError, match="A backtest must begin after the model's training ended"):
        ls.backtest(mixed, frame)


def test_networks_are_trained_further_together_and_others_are_named(mixed: ls.Ensemble, frame: pl.DataFrame) -> None:
    with pytest.raises(
        ConfigError, match=r"whose members are all networks .* Got one with SeasonalNaive. Hint: fit it"
    ):
        mixed.fine_tune(frame)
    with pytest.raises(NotFittedError, match=r"^Ensemble must be fitted"):
        ls.Ensemble([ls.LogSparse(7, **NETWORK)]).fine_tune(frame)
    model = ls.Ensemble([ls.LogSparse(7, **NETWORK)]).fit(weekly(60))
    model.fine_tune(weekly(70, ("a", "c")), steps=2)
    assert model.panel_.ids == ("a", "c")
    assert model.members_["LogSparse"].history_.steps == 2  # type: ignore[attr-defined]
    assert len(model.learned_until()) == 3


def test_an_interrupt_stops_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal

    learn = Training.learn

    def interrupted(self: Training) -> float:
        os.kill(os.getpid(), signal.SIGINT)
        return learn(self)

    monkeypatch.setattr(Training, "learn", interrupted)
    model = ls.Ensemble([ls.LogSparse(7, **NETWORK), "seasonal-naive"])
    with pytest.raises(KeyboardInterrupt):
        model.fit(weekly())
    assert not hasattr(model, "panel_")


def test_an_ensemble_may_be_a_member(tmp_path: Path) -> None:
    inner = ls.Ensemble([ls.SeasonalNaive(7), ls.SeasonalNaive(7, season=1)])
    model = ls.Ensemble([inner, ls.SeasonalNaive(7, season=14)]).fit(weekly())
    model.save(tmp_path / "model")
    assert_frame_equal(ls.load(tmp_path / "model").predict(), model.predict(), check_exact=True)
