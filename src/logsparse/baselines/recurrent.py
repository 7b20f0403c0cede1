"""DeepAR and DeepState: forecasters whose network is an LSTM.

DeepAR is the forecaster LogSparse with an LSTM in place of attention; all other settings are the same by default. In
DeepState one LSTM sets the state-space model of every series (level, slope, season); a Kalman filter runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Unpack

from numpy.typing import NDArray

from logsparse.config import Config
from logsparse.data.calendar import FARTHEST, Freq
from logsparse.data.panel import Panel
from logsparse.data.series_index import SeriesIndex
from logsparse.defaults import recommend
from logsparse.errors import ConfigError, is_number, whole
from logsparse.forecaster import LogSparse
from logsparse.model.network import Network
from logsparse.model.recurrent import Recurrent
from logsparse.model.statespace import Structural, Structure
from logsparse.plan import Plan
from logsparse.settings import Settings
from logsparse.storage import entries, number, require, whole_number


class DeepAR(LogSparse):
    """Forecast many related series with an LSTM, after Salinas et al. (2020).

    Inputs, loss, windows and way of forecasting are those of LogSparse, so that a comparison is one of networks;
    `presets.named("paper", "deepar")` has the settings that the paper compares with instead.

    Parameters
    ----------
    horizon
        Number of steps to forecast.
    context, config, steps, minutes, seed, samples
        As for LogSparse.
    **settings
        As for LogSparse; `layers` and `width` are the layers of the LSTM and their size.

    Raises
    ------
    ConfigError
        If one of `settings` is unknown or has a wrong value; at `fit`, not here, for the other parameters.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.DeepAR(horizon=24, config=ls.presets.named("solar", "deepar")).config.model.layers
    3
    """

    def _default_config(self, panel: Panel) -> Config:
        usual = super()._default_config(panel)
        return replace(usual, model=replace(usual.model, layers=3, width=40))

    def _network(self, config: Config, features: int, known: SeriesIndex, freq: Freq) -> Network:
        del freq
        static = [len(categories) for categories in known.categories.values()]
        return Recurrent(config.model, length=config.length, features=features, series=len(known.ids), static=static)


class _Settings(Settings, total=False):
    """Parameters of `LogSparse` other than the horizon."""

    context: int | None
    config: Config | None
    steps: int | None
    minutes: float | None
    seed: int
    samples: int | None


class DeepState(LogSparse):
    """Forecast with a linear-Gaussian state-space model per series, after Rangapuram et al. (NeurIPS 2018).

    One LSTM sets the parameters of all models. The distribution is Gaussian; mean and quantiles are exact.
    `lags` and `method` of a config have no effect, but a method that forecasts all steps at once is refused.

    Parameters
    ----------
    horizon
        Number of steps to forecast.
    season
        Steps of a season; from the frequency if left out, 1 for none.
    trend
        Share of the slope that is kept from one step to the next: 0 for no slope, 1 for a constant one.
    **settings
        `context`, `config`, `steps`, `minutes`, `seed`, `samples` and single settings as for LogSparse; `layers` and
        `width` are the layers of the LSTM and their size.

    Raises
    ------
    ConfigError
        If one of `settings` is unknown or has a wrong value; at `fit`, not here, for the other parameters.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.DeepState(horizon=24, trend=0.9, seed=3)
    DeepState(horizon=24, seed=3, trend=0.9)
    """

    structure_: Structure

    def __init__(
        self, horizon: int, *, season: int | None = None, trend: float = 0.0, **settings: Unpack[_Settings]
    ) -> None:
        super().__init__(horizon, **settings)
        self.season, self.trend = season, trend

    def check(self) -> None:
        super().check()
        if self.season is not None:
            self.season = whole("season", self.season, hint="count its steps; 1 is no season.")
        if not is_number(self.trend) or not 0 <= self.trend <= 1:
            raise ConfigError(
                "trend must be a number from 0 to 1.", got=f"{self.trend!r}", hint="0 is no slope, 1 one that lasts."
            )
        self.trend = float(self.trend)
        base = Config(context=1, horizon=1) if self.config is None else self.config
        likelihood = vars(self).get("likelihood", base.model.likelihood)
        if likelihood != "gaussian":
            raise ConfigError(
                "DeepState must have the gaussian likelihood, the only one of its filter.",
                got=f"{likelihood}",
                hint='set model.likelihood to "gaussian", or leave config out.',
            )
        method = vars(self).get("method", base.method)
        if replace(base, method=method).masks_future_lags:
            raise ConfigError(
                f"DeepState must not have the method {method}: its filter forecasts exactly.",
                got=method,
                hint="leave method out.",
            )

    def _default_config(self, panel: Panel) -> Config:
        usual = recommend(panel, self.horizon, self.context, self._changes().get("holidays"))
        model = replace(
            usual.model,
            layers=2,
            width=40,
            embed_series=True,
            lags=(1,),
            profiles=(),
            scale="one-plus-mean",
            lowest=None,
            likelihood="gaussian",
        )
        # The LSTM reads only the features and the id of the series, so it gets all features. The filter reads the
        # history; the loss is that of the horizon given the history (docs/LOG.md).
        train = replace(usual.train, loss_on="horizon")
        return replace(usual, method="ancestral", features=None, model=model, train=train)

    def _fit(self, panel: Panel, plan: Plan | None = None, folder: Path | None = None) -> None:
        super()._fit(panel, plan, folder)
        self.structure_ = self._structure(panel.freq)

    def _structure(self, freq: Freq) -> Structure:
        return Structure(freq.season if self.season is None else self.season, self.trend)

    def _network(self, config: Config, features: int, known: SeriesIndex, freq: Freq) -> Network:
        static = [len(categories) for categories in known.categories.values()]
        sizes = {"length": config.length, "features": features, "series": len(known.ids)}
        return Structural(config.model, self._structure(freq), **sizes, static=static)

    def _remembered(self) -> int:
        return self.config_.context

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        facts, arrays = super()._state()
        return {**facts, "structure": asdict(self.structure_)}, arrays

    def _restore(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        saved = entries("learned/structure", entries("learned", facts, "structure")["structure"], "season", "trend")
        season = whole_number("learned/structure/season", saved["season"], 1, FARTHEST)
        self.structure_ = Structure(season, number("learned/structure/trend", saved["trend"], 0, 1))
        same = self._structure(self.panel_.freq)
        require("learned/structure", f"{same}, as the settings say", saved, holds=self.structure_ == same)
        super()._restore(facts, arrays)
