"""DeepAR: an LSTM with the inputs, likelihoods and training of LogSparse, forecasting step by step as in its paper."""

from __future__ import annotations

from dataclasses import replace

from logsparse.config import Config
from logsparse.data.known import Known
from logsparse.data.panel import Panel
from logsparse.defaults import recommend
from logsparse.forecaster import LogSparse
from logsparse.model.network import Network
from logsparse.model.recurrent import Recurrent


class DeepAR(LogSparse):
    """As LogSparse; `config.model.layers` and `config.model.width` are the LSTM's layers and its hidden size."""

    def _advised(self, panel: Panel) -> Config:
        advised = recommend(panel, self.horizon, self.context)
        model, train = replace(advised.model, layers=3, width=40), replace(advised.train, loss_on="all")
        return replace(advised, method="ancestral", model=model, train=train)

    def _network(self, config: Config, features: int, known: Known) -> Network:
        static = [len(found) for found in known.categories.values()]
        return Recurrent(config.model, length=config.length, features=features, series=len(known.ids), static=static)
