"""Probabilistic forecasting of many related series with a long past: frame in, frame with quantiles out."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

import logsparse.process  # noqa: F401 (registers the check for forked processes)

if TYPE_CHECKING:
    from logsparse import presets
    from logsparse.attention import pattern as patterns
    from logsparse.attention.attend import attend
    from logsparse.attention.layer import ConvAttention
    from logsparse.baselines.classical import AutoARIMA, AutoETS
    from logsparse.baselines.naive import SeasonalNaive
    from logsparse.baselines.recurrent import DeepAR, DeepState
    from logsparse.baselines.trmf import TRMF
    from logsparse.cluster.jobs import ShardRun, backtest_shards, predict_shards
    from logsparse.cluster.shards import shard
    from logsparse.config import Config, ModelConfig, TrainConfig
    from logsparse.data.frame import to_panel
    from logsparse.data.health import Health
    from logsparse.data.panel import Panel
    from logsparse.ensemble import Ensemble
    from logsparse.errors import ConfigError, DataError, LogsparseError, NotFittedError
    from logsparse.evaluation.backtest import backtest
    from logsparse.evaluation.check import check
    from logsparse.evaluation.importance import Importance, importance
    from logsparse.evaluation.metrics import crps_samples, score
    from logsparse.evaluation.what_if import WhatIf, what_if
    from logsparse.forecast import Forecast, Forecaster
    from logsparse.forecaster import LogSparse
    from logsparse.params import Diagnostics
    from logsparse.registry import load, register
    from logsparse.reporting.report import report
    from logsparse.serving.server import serve

__version__ = version("logsparse")

# Name -> module, imported on first use: `logsparse --help` and `import logsparse` need neither torch nor polars.
_HOMES = {
    "ConvAttention": "attention.layer",
    "attend": "attention.attend",
    "backtest": "evaluation.backtest",
    "check": "evaluation.check",
    "ShardRun": "cluster.jobs",
    "backtest_shards": "cluster.jobs",
    "predict_shards": "cluster.jobs",
    "shard": "cluster.shards",
    "Config": "config",
    "ModelConfig": "config",
    "TrainConfig": "config",
    "AutoARIMA": "baselines.classical",
    "AutoETS": "baselines.classical",
    "DeepAR": "baselines.recurrent",
    "DeepState": "baselines.recurrent",
    "SeasonalNaive": "baselines.naive",
    "TRMF": "baselines.trmf",
    "to_panel": "data.frame",
    "Panel": "data.panel",
    "Health": "data.health",
    "Ensemble": "ensemble",
    "ConfigError": "errors",
    "DataError": "errors",
    "LogsparseError": "errors",
    "NotFittedError": "errors",
    "Diagnostics": "params",
    "Forecast": "forecast",
    "Forecaster": "forecast",
    "LogSparse": "forecaster",
    "Importance": "evaluation.importance",
    "importance": "evaluation.importance",
    "WhatIf": "evaluation.what_if",
    "what_if": "evaluation.what_if",
    "crps_samples": "evaluation.metrics",
    "load": "registry",
    "register": "registry",
    "score": "evaluation.metrics",
    "report": "reporting.report",
    "serve": "serving.server",
}

_MODULES = {"patterns": "attention.pattern", "presets": "presets"}

__all__ = [
    "TRMF",
    "AutoARIMA",
    "AutoETS",
    "Config",
    "ConfigError",
    "ConvAttention",
    "DataError",
    "DeepAR",
    "DeepState",
    "Diagnostics",
    "Ensemble",
    "Forecast",
    "Forecaster",
    "Health",
    "Importance",
    "LogSparse",
    "LogsparseError",
    "ModelConfig",
    "NotFittedError",
    "Panel",
    "SeasonalNaive",
    "ShardRun",
    "TrainConfig",
    "WhatIf",
    "attend",
    "backtest",
    "backtest_shards",
    "check",
    "crps_samples",
    "importance",
    "load",
    "patterns",
    "predict_shards",
    "presets",
    "register",
    "report",
    "score",
    "serve",
    "shard",
    "to_panel",
    "what_if",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES and name not in _MODULES:
        raise AttributeError(f"module 'logsparse' has no attribute {name!r}")
    module = import_module(f"logsparse.{_MODULES.get(name) or _HOMES[name]}")
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
