"""DeepState: one LSTM for all series tells how level and season of each may move; a Kalman filter does the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, TypedDict, Unpack

from numpy.typing import NDArray

from logsparse.checks import is_number, whole
from logsparse.config import Config
from logsparse.data.calendar import FARTHEST
from logsparse.data.panel import Panel
from logsparse.data.series_index import SeriesIndex
from logsparse.defaults import recommend
from logsparse.errors import ConfigError
from logsparse.forecaster import LogSparse
from logsparse.model.network import Network
from logsparse.model.statespace import Structural, Structure
from logsparse.storage import entries, number, whole_number
from logsparse.train.batches import TrainingSet


class Settings(TypedDict, total=False):
    """What `LogSparse` takes beside the horizon."""

    context: int | None
    config: Config | None
    seed: int
    device: str
    minutes: float | None
    samples: int | None
    verbose: bool


class DeepState(LogSparse):
    """Rangapuram et al. (NeurIPS 2018). Settings as of LogSparse; `layers` and `width` are those of the LSTM.

    `season` in steps follows from the frequency unless given, 1 is none. `trend` is the share of the slope that lasts
    from one step to the next: 0 is no slope, 1 one that lasts, between them it is damped. The law is Gaussian; mean and
    quantiles are exact, `samples` are joint paths beside them. `lags` and `method` of a config have no meaning here,
    but a method that tells all steps at once is refused.
    """

    structure_: Structure

    def __init__(
        self, horizon: int, *, season: int | None = None, trend: float = 0.0, **settings: Unpack[Settings]
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
        if self.config is not None and self.config.model.likelihood != "gaussian":
            raise ConfigError(
                "DeepState must have the gaussian likelihood: its filter knows no other law.",
                got=f"{self.config.model.likelihood}",
                hint='set model.likelihood to "gaussian", or leave config out.',
            )
        if self.config is not None and self.config.masks_future_lags:
            raise ConfigError(
                f"DeepState must not have the method {self.config.method}: its filter knows one, and it is exact.",
                got=self.config.method,
                hint="leave method out.",
            )

    def _default_config(self, panel: Panel) -> Config:
        advised = recommend(panel, self.horizon, self.context)
        model = replace(
            advised.model,
            layers=2,
            width=40,
            embed_series=True,
            lags=(1,),
            profiles=(),
            scale="one-plus-mean",
            lowest=None,
            likelihood="gaussian",
        )
        # Its LSTM reads the features and the name of the series alone, so it needs all of them. The filter reads the
        # history either way; what it learns from is the horizon given it (docs/LOG.md).
        train = replace(advised.train, loss_on="horizon")
        return replace(advised, method="ancestral", features=None, model=model, train=train)

    def _prepared(self, panel: Panel) -> tuple[Config, SeriesIndex, TrainingSet]:
        season = panel.freq.season if self.season is None else self.season
        self.structure_ = Structure(season, self.trend)
        return super()._prepared(panel)

    def _network(self, config: Config, features: int, known: SeriesIndex) -> Network:
        static = [len(found) for found in known.categories.values()]
        sizes = {"length": config.length, "features": features, "series": len(known.ids)}
        return Structural(config.model, self.structure_, **sizes, static=static)

    def _remembered(self) -> int:
        return self.config_.context

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        facts, arrays = super()._state()
        return {**facts, "structure": asdict(self.structure_)}, arrays

    def _restore(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        found = entries("learned/structure", entries("learned", facts, "structure")["structure"], "season", "trend")
        season = whole_number("learned/structure/season", found["season"], 1, FARTHEST)
        self.structure_ = Structure(season, number("learned/structure/trend", found["trend"], 0, 1))
        super()._restore(facts, arrays)
