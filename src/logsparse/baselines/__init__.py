"""A name -> a forecaster to compare with: every baseline has the same face as ours."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from logsparse.checks import suggest
from logsparse.errors import ConfigError

if TYPE_CHECKING:
    from logsparse.forecast import Forecaster

NAMES = {
    "arima": "logsparse.baselines.classical:AutoArima",
    "deepar": "logsparse.baselines.deepar:DeepAR",
    "deepstate": "logsparse.baselines.deepstate:DeepState",
    "ets": "logsparse.baselines.classical:AutoEts",
    "logsparse": "logsparse.forecaster:LogSparse",
    "seasonal-naive": "logsparse.baselines.naive:SeasonalNaive",
    "trmf": "logsparse.baselines.trmf:Trmf",
}


def named(name: str, horizon: int, **settings: Any) -> Forecaster:
    """A fresh forecaster by the name that the command line knows it by, with settings of its own."""
    if name not in NAMES:
        raise ConfigError(
            f"A model must be one of: {', '.join(NAMES)}.",
            got=repr(name),
            hint=suggest(name, NAMES, "or the path of a saved model's folder; check the spelling."),
        )
    module, _, attribute = NAMES[name].partition(":")
    forecaster: Forecaster = getattr(import_module(module), attribute)(horizon, **settings)
    return forecaster
