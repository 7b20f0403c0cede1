"""One series is estimated and filtered forward as statsforecast does it, in plain numbers; a failure is an answer."""

from __future__ import annotations

import json
import sys
import warnings
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from logsparse.baselines.estimate import Answer, Doubles, Kind, answer, fill

KINDS: tuple[Kind, ...] = ("arima", "ets")
NAN = float("nan")


def quarters(years: int, seed: int = 0) -> Doubles:
    """A yearly pattern on a slow walk: something to choose from for both families."""
    rng = np.random.default_rng(seed)
    return np.asarray(50 + np.tile([0, 6, 2, 9], years) + np.cumsum(rng.normal(size=4 * years)))


def task(kind: Kind, values: Any, model: Any = None, season: int = 4, horizon: int = 6) -> dict[str, Any]:
    return {
        "kind": kind,
        "season": season,
        "values": np.asarray(values).tolist(),
        "model": model,
        "horizon": horizon,
    }


@pytest.fixture(scope="module")
def estimated() -> dict[Kind, Answer]:
    return {kind: answer(task(kind, quarters(9))) for kind in KINDS}


def theirs(kind: Kind, values: Doubles, later: Doubles | None = None) -> dict[str, Any]:
    """statsforecast, asked directly: fitted on `values`, then forward over `later`."""
    from statsforecast.models import AutoARIMA, AutoETS

    model: Any = AutoARIMA(season_length=4, approximation=None) if kind == "arima" else AutoETS(season_length=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if later is None:
            found: dict[str, Any] = model.forecast(values, 6, level=[50, 95])
        else:
            found = model.fit(values).forward(later, 6, level=[50, 95])
    return found


def agrees(ours: Answer, found: dict[str, Any]) -> None:
    np.testing.assert_allclose(ours["mean"], found["mean"], rtol=1e-10)
    for percent in (50, 95):
        deviations = NormalDist().inv_cdf(0.5 + percent / 200)
        for side, sign in (("lo", -1), ("hi", 1)):
            bound = np.add(ours["mean"], sign * deviations * np.array(ours["spread"]))
            np.testing.assert_allclose(bound, found[f"{side}-{percent}"], rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_an_estimate_equals_statsforecast_asked_directly(kind: Kind, estimated: dict[Kind, Answer]) -> None:
    agrees(estimated[kind], theirs(kind, quarters(9)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_sent_as_text_goes_forward_as_statsforecast_does(kind: Kind, estimated: dict[Kind, Answer]) -> None:
    model = json.loads(json.dumps(estimated[kind]["model"]))
    later = np.append(quarters(9), [70.0, 75.0, 71.0])
    found = answer(task(kind, later, model))
    agrees(found, theirs(kind, quarters(9), later))
    np.testing.assert_equal(found["model"], model)
    agrees(answer(task(kind, quarters(9), model)), theirs(kind, quarters(9)))


def test_a_model_with_drift_goes_forward_too() -> None:
    values = np.arange(30) + np.random.default_rng(2).normal(size=30).cumsum()
    found = answer(task("arima", values, season=1))
    assert "drift" in found["model"]["coef"]
    again = answer(task("arima", values, found["model"], season=1))
    np.testing.assert_allclose(again["mean"], found["mean"], rtol=1e-10)
    later = answer(task("arima", np.append(values, values[-1] + 1), found["model"], season=1))
    np.testing.assert_allclose(np.diff(later["mean"])[-1], found["model"]["coef"]["drift"], rtol=1e-6)


def test_holes_lie_on_the_line_between_neighbours_of_the_same_phase() -> None:
    values = np.array([1.0, 10.0, NAN, 30.0, 3.0, NAN, NAN, 50.0])
    assert fill(values, 2).tolist() == [1, 10, 2, 30, 3, 40, 3, 50]
    assert np.isnan(values).sum() == 3, "the caller's values stay as they are"


def test_a_phase_never_seen_is_filled_from_the_steps_beside_it() -> None:
    assert fill(np.array([1.0, NAN, 3.0, NAN, 5.0]), 2).tolist() == [1, 2, 3, 4, 5]
    assert fill(np.array([NAN, 4.0]), 3).tolist() == [4, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_holes_do_not_flatten_the_forecast(kind: Kind) -> None:
    # statsforecast itself takes a series with holes for white noise around zero, or refuses it.
    values = quarters(9)
    values[[5, 6, 20]] = NAN
    found = answer(task(kind, values))
    assert (np.abs(np.array(found["mean"]) - np.nanmean(values[-8:])) < 12).all()
    assert np.ptp(found["mean"]) > 5


def test_the_filter_of_arima_is_less_sure_after_a_hole(estimated: dict[Kind, Answer]) -> None:
    model, values = estimated["arima"]["model"], quarters(9)
    holed = values.copy()
    holed[-2:] = NAN
    after, plain = (answer(task("arima", one, model)) for one in (holed, values))
    assert after["spread"][0] > 1.2 * plain["spread"][0]


def test_a_phase_never_seen_does_not_leave_the_filter_without_bounds(estimated: dict[Kind, Answer]) -> None:
    values = quarters(9)
    values[2::4] = NAN
    found = answer(task("arima", values, estimated["arima"]["model"]))
    assert max(found["spread"]) < 50


def test_a_model_of_a_constant_is_estimated_afresh_once_the_series_moves() -> None:
    still = answer(task("arima", np.full(12, 3.0)))
    assert (still["mean"], still["spread"]) == ([3.0] * 6, [0.0] * 6)
    moving = answer(task("arima", np.append(np.full(12, 3.0), [5.0, 2.0, 6.0, 1.0]), still["model"]))
    assert moving["spread"][0] > 0.1


@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        ("ets", [1.0, 2.0], "NotImplementedError: tiny datasets"),
        ("arima", [NAN, NAN], "no value in its span"),
        ("ets", [NAN, NAN], "no value in its span"),
    ],
)
def test_a_series_that_cannot_be_estimated_is_answered_with_the_reason(
    kind: Kind, values: list[float], reason: str
) -> None:
    assert answer(task(kind, values)) == {"failed": reason}


def test_a_forecast_that_is_not_finite_is_a_failure(estimated: dict[Kind, Answer]) -> None:
    model = {**estimated["ets"]["model"], "par": [NAN] * len(estimated["ets"]["model"]["par"])}
    assert answer(task("ets", quarters(9), model)) == {"failed": "its forecast is not finite"}


def test_statsforecast_is_loaded_only_when_a_series_is_estimated() -> None:
    import subprocess

    code = "import sys, logsparse.baselines.classical; assert not {'statsforecast', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
