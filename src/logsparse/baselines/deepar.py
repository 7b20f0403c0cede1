"""DeepAR: the forecaster LogSparse with an LSTM in the place of attention; nothing else differs unless asked for."""

from __future__ import annotations

from dataclasses import replace

from logsparse.config import Config
from logsparse.data.panel import Panel
from logsparse.data.series_index import SeriesIndex
from logsparse.defaults import recommend
from logsparse.forecaster import LogSparse
from logsparse.model.network import Network
from logsparse.model.recurrent import Recurrent


class DeepAR(LogSparse):
    """As LogSparse; `config.model.layers` and `config.model.width` are the LSTM's layers and its hidden size.

    By default inputs, loss, windows and the way of forecasting are those of LogSparse, so that a comparison is one of
    networks. `config=presets.named("paper", "deepar")` has the settings of the paper instead.
    """

    def _default_config(self, panel: Panel) -> Config:
        advised = recommend(panel, self.horizon, self.context)
        return replace(advised, model=replace(advised.model, layers=3, width=40))

    def _network(self, config: Config, features: int, known: SeriesIndex) -> Network:
        static = [len(found) for found in known.categories.values()]
        return Recurrent(config.model, length=config.length, features=features, series=len(known.ids), static=static)
