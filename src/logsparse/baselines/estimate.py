"""Values of one series -> its ARIMA or ETS as plain numbers -> mean and spread of the next steps; many in processes.

Only this module uses statsforecast. A task and its answer are plain JSON, so that they can be saved and sent to worker
processes, which read and write lines of JSON. multiprocessing is not used: it would import the caller's script in every
process, and run again what is not behind `if __name__ == "__main__"`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from logsparse.errors import is_number
from logsparse.process import Worker, answer_lines
from logsparse.storage import a_list, entries, number, require, text, whole_number, wholes

Kind = Literal["arima", "ets"]
Task = dict[str, Any]
"""`kind`, `season`, `values`, `horizon`, and `model`: None to estimate one, else it is filtered forward."""
Answer = dict[str, Any]
"""`model` as plain numbers, `mean` and `spread` per step of the horizon; or `failed`, the reason."""

Doubles = NDArray[np.float64]

# More than auto.arima ever tries.
_HIGHEST_ORDER = 10
# One interval gives the spread: the distributions of both families are Gaussian.
_PERCENT = 80
_DEVIATIONS = NormalDist().inv_cdf(0.5 + _PERCENT / 200)


def answer(task: Task) -> Answer:
    """Estimate the model of a series, or filter a given one forward, and forecast.

    A failure is returned, not raised, so that other series are not affected.
    """
    values, season = np.array(task["values"], np.float64), int(task["season"])
    if np.isnan(values).all():
        return {"failed": "no value in its span"}
    run = _arima if task["kind"] == "arima" else _ets
    with warnings.catch_warnings():
        # Warnings are of optimisers that stopped early, mostly on models that are not chosen.
        warnings.simplefilter("ignore")
        try:
            found = run(values, season, task["model"], int(task["horizon"]))
        except Exception as error:  # noqa: BLE001 (statsforecast raises anything, plain Exception included)
            return {"failed": f"{type(error).__name__}: {error}"}
    if not np.isfinite([found["mean"], found["spread"]]).all():
        return {"failed": "its forecast is not finite"}
    return found


def check_model(kind: Kind, season: int, span: int, model: Any) -> Task:
    """Return a saved model if it is safe for statsforecast, which checks nothing; else raise InvalidContentError."""
    if isinstance(model, dict) and "failed" in model:
        return {"failed": text("failed", model["failed"])}
    if kind == "arima":
        entries("arima", model, "arma", "coef", "sigma2", "steps")
        ar, ma, season_ar, season_ma, period, _, _ = wholes("arma", model["arma"], 7, 0, max(season, _HIGHEST_ORDER))
        orders = {"ar": ar, "ma": ma, "sar": season_ar, "sma": season_ma}
        require("arma", f"orders up to {_HIGHEST_ORDER}", model["arma"], holds=max(orders.values()) <= _HIGHEST_ORDER)
        require("arma", f"of period 1 or {season}", model["arma"], holds=period in (1, season))
        needed = {f"{name}{lag}" for name, order in orders.items() for lag in range(1, order + 1)}
        coef = {name: number(f"coef/{name}", value) for name, value in entries("coef", model["coef"]).items()}
        require("coef", f"of {sorted(needed)}", model["coef"], holds=set(coef) - {"intercept", "drift"} == needed)
        number("sigma2", model["sigma2"], 0)
        whole_number("steps", model["steps"], 1, span)
    else:
        entries("ets", model, "components", "m", "par", "n_params")
        form = re.fullmatch("[AM]([NAM])([NAM])([ND])", text("components", model["components"]))
        require("components", "a form of error, trend and season", model["components"], holds=form is not None)
        period = whole_number("m", model["m"], 1, season)
        require("m", f"1 or {season}", period, holds=period in (1, season))
        assert form is not None, "required above"
        states = 1 + (form[1] != "N") + period * (form[2] != "N")
        par = a_list("par", model["par"], 4 + states)
        # Smoothing parameters that the form lacks are None; alpha and the states are always there.
        used = (True, form[1] != "N", form[2] != "N", form[3] == "D", *([True] * states))
        for value, is_used in zip(par, used, strict=True):
            require("par", "a number", value, holds=(value is None and not is_used) or is_number(value))
        whole_number("n_params", model["n_params"], 1, 8 + states)
    found: Task = model
    return found


def fill(values: Doubles, season: int) -> Doubles:
    """Return the values with NaN interpolated between neighbours of the same phase; the nearest one at the ends."""
    filled = values.copy()
    for phase in range(min(season, values.size)):
        _bridge(filled[phase::season])
    _bridge(filled)  # phases never seen
    return filled


def _bridge(values: Doubles) -> None:
    """Interpolate in place; `values` may be a view with a stride."""
    hole = np.isnan(values)
    if hole.any() and not hole.all():
        at = np.arange(values.size)
        values[hole] = np.interp(at[hole], at[~hole], values[~hole])


def _arima(values: Doubles, season: int, model: Task | None, horizon: int) -> Answer:
    from statsforecast.models import AutoARIMA

    filled = fill(values, season)
    # None follows auto.arima: orders of long series are compared by conditional sums of squares.
    family = AutoARIMA(season_length=season, approximation=None)
    # A model of a constant series is estimated anew once the series moves.
    if model is None or (model["sigma2"] == 0 and np.ptp(filled) > 0):
        family.fit(filled)
        model = {
            "arma": [int(order) for order in family.model_["arma"]],
            "coef": {name: float(value) for name, value in family.model_["coef"].items()},
            "sigma2": float(family.model_["sigma2"]),
            "steps": filled.size,
        }
    family.model_ = {**model, "x": filled[:0], "xreg": None, "lambda": None}
    if "drift" in model["coef"]:
        steps = model["steps"]
        family.model_ |= {"x": np.zeros(steps), "xreg": np.arange(1.0, steps + 1)[:, None]}
    return {"model": model, **_read(family.forward(_holes_kept(values, filled, season), horizon, level=[_PERCENT]))}


def _holes_kept(values: Doubles, filled: Doubles, season: int) -> Doubles:
    """Return the values with NaN for the Kalman filter to handle; filled where a whole phase is missing."""
    seen = [not np.isnan(values[phase::season]).all() for phase in range(season)]
    return np.where(np.resize(seen, values.size), values, filled)


def _ets(values: Doubles, season: int, model: Task | None, horizon: int) -> Answer:
    from statsforecast.models import AutoETS

    filled = fill(values, season)
    family = AutoETS(season_length=season)
    if model is None:
        family.fit(filled)
        found = family.model_
        model = {
            "components": str(found["components"]),
            "m": int(found["m"]),
            "par": [None if np.isnan(value) else float(value) for value in found["par"]],
            "n_params": int(found["n_params"]),
        }
    family.model_ = {**model, "par": np.array(model["par"], np.float64), "fit": None}
    return {"model": model, **_read(family.forward(filled, horizon, level=[_PERCENT]))}


def _read(found: dict[str, Any]) -> Answer:
    mean_H, high_H = (np.asarray(found[key], np.float64) for key in ("mean", f"hi-{_PERCENT}"))
    return {"mean": mean_H.tolist(), "spread": ((high_H - mean_H) / _DEVIATIONS).tolist()}


# A worker takes about three seconds to start, so it needs this many estimates to pay off. Filtering forward takes
# about a hundredth of the time of an estimate.
_ESTIMATES_A_WORKER, _FORWARDS_AN_ESTIMATE = 4, 100
_SERVE = "from logsparse.baselines.estimate import serve; serve()"


def answers(tasks: Sequence[Task], processes: int, done: Callable[[], object]) -> list[Answer]:
    """Return the answers in the order of the tasks, by worker processes if it pays; call `done` after each task."""
    afresh = sum(task["model"] is None for task in tasks)
    estimates = afresh + (len(tasks) - afresh) // _FORWARDS_AN_ESTIMATE
    count = min(processes, estimates // _ESTIMATES_A_WORKER)
    if count < 2:
        found = []
        for task in tasks:
            found.append(answer(task))
            done()
        return found
    free: SimpleQueue[Worker] = SimpleQueue()
    workers = [Worker(_SERVE) for _ in range(count)]
    for worker in workers:
        free.put(worker)

    def ask(task: Task) -> Answer:
        worker = free.get()
        try:
            found = worker.ask(task)
            return {"failed": "its process died"} if found is None else found
        finally:
            free.put(worker)

    pool = ThreadPoolExecutor(count)
    try:
        places = {pool.submit(ask, task): place for place, task in enumerate(tasks)}
        given: list[Answer] = [{} for _ in tasks]
        for future in as_completed(places):
            given[places[future]] = future.result()
            done()
        return given
    finally:
        # After Ctrl-C no task is waited for: killing its process ends its thread.
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()
        pool.shutdown()
        for worker in workers:
            worker.close()


def serve() -> None:
    """Answer tasks; the main function of a worker."""
    answer_lines(answer)
