"""Probabilistic forecasting of many related series with a long past: frame in, frame with quantiles out."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

import logsparse.process  # noqa: F401 (from now on every fork is noticed)

if TYPE_CHECKING:
    from logsparse.baselines.classical import AutoArima, AutoEts
    from logsparse.baselines.deepar import DeepAR
    from logsparse.baselines.deepstate import DeepState
    from logsparse.baselines.naive import SeasonalNaive
    from logsparse.baselines.trmf import Trmf
    from logsparse.data.frame import to_panel
    from logsparse.data.panel import Panel
    from logsparse.errors import ConfigError, DataError, LogsparseError, NotFittedError
    from logsparse.evaluation.backtest import backtest
    from logsparse.evaluation.metrics import crps_samples, score
    from logsparse.forecast import Evidence, Forecast, Forecaster
    from logsparse.forecaster import LogSparse
    from logsparse.registry import load
    from logsparse.reporting.report import report

__version__ = version("logsparse")

# Loaded on first use, so that `logsparse --help` and `import logsparse` need neither torch nor polars.
_HOMES = {
    "backtest": "evaluation.backtest",
    "AutoArima": "baselines.classical",
    "AutoEts": "baselines.classical",
    "DeepAR": "baselines.deepar",
    "DeepState": "baselines.deepstate",
    "SeasonalNaive": "baselines.naive",
    "Trmf": "baselines.trmf",
    "to_panel": "data.frame",
    "Panel": "data.panel",
    "ConfigError": "errors",
    "DataError": "errors",
    "LogsparseError": "errors",
    "NotFittedError": "errors",
    "Evidence": "forecast",
    "Forecast": "forecast",
    "Forecaster": "forecast",
    "LogSparse": "forecaster",
    "crps_samples": "evaluation.metrics",
    "load": "registry",
    "score": "evaluation.metrics",
    "report": "reporting.report",
}

__all__ = [
    "AutoArima",
    "AutoEts",
    "ConfigError",
    "DataError",
    "DeepAR",
    "DeepState",
    "Evidence",
    "Forecast",
    "Forecaster",
    "LogSparse",
    "LogsparseError",
    "NotFittedError",
    "Panel",
    "SeasonalNaive",
    "Trmf",
    "backtest",
    "crps_samples",
    "load",
    "report",
    "score",
    "to_panel",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'logsparse' has no attribute {name!r}")
    found = getattr(import_module(f"logsparse.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
