"""DeepAR: the forecaster LogSparse with an LSTM in place of attention; all other settings are the same by default."""

from __future__ import annotations

from dataclasses import replace

from logsparse.config import Config
from logsparse.data.calendar import Freq
from logsparse.data.panel import Panel
from logsparse.data.series_index import SeriesIndex
from logsparse.defaults import recommend
from logsparse.forecaster import LogSparse
from logsparse.model.network import Network
from logsparse.model.recurrent import Recurrent


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
        usual = recommend(panel, self.horizon, self.context)
        return replace(usual, model=replace(usual.model, layers=3, width=40))

    def _network(self, config: Config, features: int, known: SeriesIndex, freq: Freq) -> Network:
        del freq
        static = [len(categories) for categories in known.categories.values()]
        return Recurrent(config.model, length=config.length, features=features, series=len(known.ids), static=static)
