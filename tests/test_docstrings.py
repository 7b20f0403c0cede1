"""Every exported name explains itself: parameters and examples stand in its docstring, and the examples run."""

from __future__ import annotations

import doctest
import inspect
import re
from types import ModuleType
from typing import Any

import polars as pl
import pytest

import logsparse as ls
from logsparse.params import Parameters

EXPORTED = {name: getattr(ls, name) for name in ls.__all__}
CALLED = [name for name in EXPORTED if not name.endswith("Error") and not isinstance(EXPORTED[name], ModuleType)]


def run_examples(thing: Any) -> set[str]:
    """Run the examples of a class and its methods, of a function, or of a module; return whose they are."""
    tests = [test for test in doctest.DocTestFinder().find(thing, thing.__name__) if test.examples]
    runner = doctest.DocTestRunner()
    for test in tests:
        test.globs = {}
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
    return {test.name for test in tests}


@pytest.mark.parametrize("name", EXPORTED)
def test_the_examples_run(name: str) -> None:
    found = run_examples(EXPORTED[name])
    assert name in found or name not in CALLED, f"{name} has no example"


def test_the_examples_that_all_forecasters_share_run() -> None:
    assert len(run_examples(Parameters)) == 3


@pytest.mark.parametrize("name", CALLED)
def test_every_parameter_is_described(name: str) -> None:
    text = inspect.getdoc(EXPORTED[name]) or ""
    section = text.partition("Parameters\n----------\n")[2]
    lines = re.findall(r"^(\w+(?:, \w+)*)(?: : .*)?$", section, re.MULTILINE)
    described = {word for line in lines for word in line.split(", ")}
    parameters = inspect.signature(EXPORTED[name]).parameters.values()
    assert {one.name for one in parameters if one.kind is not one.VAR_KEYWORD} <= described


@pytest.mark.parametrize("name", [name for name in CALLED if inspect.isclass(EXPORTED[name])])
def test_every_public_method_has_a_docstring(name: str) -> None:
    kind = EXPORTED[name]
    for base in kind.__mro__:
        for key, value in vars(base).items() if base.__module__.startswith("logsparse") else ():
            if key[0] != "_" and (inspect.isroutine(value) or isinstance(value, property)):
                assert inspect.getdoc(getattr(kind, key)), key


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("name", [name for name in CALLED if name != "Forecaster" and hasattr(EXPORTED[name], "fit")])
def test_a_forecaster_lists_its_parameters_and_what_is_called(name: str) -> None:
    model = EXPORTED[name](**({"members": ["seasonal-naive"]} if name == "Ensemble" else {}), horizon=3)
    called = {"fit", "predict", "forecast", "save", "diagnostics", "clone", "get_params", "load", "set_params"}
    trained = {"attention", "fine_tune", "method", "plan"} if isinstance(model, ls.LogSparse) else set()
    trained |= {"fine_tune"} if isinstance(model, ls.Ensemble) else set()
    assert public(model) - {"failed_"} == called | trained | set(model.get_params())
    assert not [one for one in dir(model) if one.startswith("_") and not one.startswith("__")]


def test_a_fitted_forecaster_and_its_forecast_list_what_they_hold() -> None:
    frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    fresh = ls.SeasonalNaive(horizon=3)
    before = public(fresh)
    assert public(fresh.fit(frame)) - before == {"columns_", "panel_", "season_"}
    held = {"levels", "mean", "panel", "quantiles", "samples"}
    assert public(fresh.forecast()) == held | {"first", "frame", "plot", "quantile", "table"}


def test_modules_of_patterns_and_presets_list_what_they_make() -> None:
    assert {"full", "logsparse", "local", "restart", "from_distances", "Pattern"} <= set(dir(ls.patterns))
    assert {"electricity_f", "paper", "default", "named"} <= set(dir(ls.presets))
    for module in (ls.patterns, ls.presets):
        assert not {"annotations", "Any", "Callable", "ConfigError", "replace"} & set(dir(module))
        assert all(hasattr(module, name) for name in dir(module))


def test_only_what_is_for_users_is_listed() -> None:
    assert dir(ls) == sorted([*ls.__all__, "__version__"])
    assert set(ls.__all__) >= {
        "TRMF", "AutoARIMA", "AutoETS", "Config", "ConvAttention", "DeepAR", "DeepState", "Ensemble", "Forecast",
        "LogSparse",
        "ModelConfig", "Panel", "SeasonalNaive", "TrainConfig", "attend", "backtest", "load", "patterns", "presets",
        "report", "score", "to_panel",
    }  # fmt: skip
