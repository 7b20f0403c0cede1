"""LogSparse: frame in, forecast out. Fits the paper's network or the better default, saves it and loads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.overrides import TorchFunctionMode

from logsparse.attention.maps import Attention, attention_of
from logsparse.checks import a_path, above_zero, truth, whole
from logsparse.config import Config, Method
from logsparse.data.columns import Columns, validate_columns
from logsparse.data.features import Features
from logsparse.data.frame import to_panel
from logsparse.data.panel import Panel, SeriesId
from logsparse.data.sampler import Pairs
from logsparse.data.series_index import SeriesIndex
from logsparse.data.times import When, clock_time
from logsparse.data.windows import Windows
from logsparse.defaults import check_agrees, check_reach, check_size, recommend, seen_values, warn_of_depth
from logsparse.errors import ConfigError, NotFittedError
from logsparse.forecast import Diagnostics, Forecast, Forecaster
from logsparse.model.network import Network
from logsparse.model.sample import Sampled, Sampling, sample
from logsparse.model.transformer import Transformer
from logsparse.progress import Progress
from logsparse.storage import UnfitError, entries, require, whole_number
from logsparse.train.batches import Draws, TrainingSet, learned_from, looks_back, windows_of
from logsparse.train.checkpoint import alone, check_tensors, seed_folder
from logsparse.train.distributed import Ranks, device_named, join
from logsparse.train.loop import Training, TrainingHistory, best_of


class Learned(NamedTuple):
    config: Config
    known: SeriesIndex
    features: Features
    story: TrainingHistory
    network: Network


def learned(
    facts: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    panel: Panel,
    horizon: int,
    make: Callable[[Config, int, SeriesIndex], Network],
) -> Learned:
    """All of it checked, each part and all together, before the network is built: it is never larger than its file."""
    entries("learned", facts, "config", "known", "features", "story")
    try:
        config = Config.from_dict(entries("learned/config", facts["config"]))
    except ConfigError as error:  # nobody's mistake in a call: the folder is not what was saved
        raise UnfitError("learned/config", str(error), facts["config"]) from error
    known, features = SeriesIndex.from_dict(facts["known"]), Features.from_dict(facts["features"])
    story = TrainingHistory.from_dict(facts["story"])
    features.check(panel.freq)
    whole_number("learned/config/horizon", config.horizon, horizon, horizon)
    # Every layer has tensors of its own: with more layers than tensors it would take long to find out what is missing.
    whole_number("learned/config/model/layers", config.model.layers, 1, len(arrays))
    static, names = tuple(known.categories), tuple(panel.static)
    require("learned/known/categories", f"of {names}", static, holds=set(static) <= set(names))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with torch.device("meta"), _WithoutValues():
        needed = make(config, len(features), known).state_dict()
    check_tensors(needed, tensors, "weight")
    network = make(config, len(features), known)
    network.load_state_dict(tensors)
    return Learned(config, known, features, story, network)


class _WithoutValues(TorchFunctionMode):
    """Fresh weights stay as they are: on the meta device drawing them imports torch's compiler, seconds for nothing."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        if getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


if TYPE_CHECKING:
    from logsparse.folder import ModelFolder

# W windows, S series

# Fine-tuning starts from weights that are good already: steps a tenth as large as those that found them.
_GENTLER = 0.1
# What the seeds of torch's generators can hold, with room for several seeds in a row.
_SEEDS = 2**62
_MOST_PATHS = _LONGEST_CONTEXT = 100_000


@dataclass(frozen=True)
class Plan:
    """What a training would do; `features` are those of the calendar."""

    config: Config
    features: tuple[str, ...]
    parameters: int
    steps: int


class LogSparse(Forecaster):
    """`config` sets everything; without it the settings follow from the data (`config_` tells them after `fit`).

    `minutes` bounds the training of each seed. `samples` is the number of sample paths that a forecast draws and keeps;
    without it, as many are drawn as accurate quantiles need, and none is kept. The same seed gives the same result on
    one machine with the same number of threads and without `minutes`, which follow the clock.
    """

    changeable = ("seed", "device", "minutes", "samples", "method", "verbose")
    config_: Config
    series_index_: SeriesIndex
    features_: Features
    network_: Network
    history_: TrainingHistory
    _folder: Path | None = None
    _validation: Panel | None = None

    def __init__(
        self,
        horizon: int,
        *,
        context: int | None = None,
        config: Config | None = None,
        seed: int = 0,
        device: str = "auto",
        minutes: float | None = None,
        samples: int | None = None,
        verbose: bool = True,
    ) -> None:
        super().__init__(horizon)
        self.context, self.config, self.seed = context, config, seed
        self.device, self.minutes, self.samples, self.verbose = device, minutes, samples, verbose

    def check(self) -> None:
        super().check()
        if self.samples is not None:
            hint = "leave it out for as many as accurate quantiles need."
            self.samples = whole("samples", self.samples, most=_MOST_PATHS, hint=hint)
        self.seed = whole("seed", self.seed, least=0, most=_SEEDS, hint="any small whole number will do.")
        if self.context is not None:
            hint = "count the steps of history the model sees."
            self.context = whole("context", self.context, most=_LONGEST_CONTEXT, hint=hint)
        if self.minutes is not None:
            self.minutes = above_zero("minutes", self.minutes, hint="leave it out for no limit.")
        self.verbose = truth("verbose", self.verbose)
        device = device_named(self.device)
        self.device = "auto" if self.device == "auto" else str(device)
        if self.config is not None:
            check_agrees(self.config, horizon=self.horizon, context=self.context)

    def fit(
        self,
        data: Any,
        *,
        until: When | None = None,
        folder: str | Path | None = None,
        validation: Any = None,
        **columns: Unpack[Columns],
    ) -> Self:
        """Learn from a frame, a file or a Panel, up to `until`; with a `folder`, an interrupted run goes on there.

        `validation` are other series to validate with; without them, the last part of each series serves.
        """
        given = validate_columns(columns)
        self._folder = None if folder is None else _run_folder(folder)
        self._validation = None if validation is None else to_panel(validation, **given)
        return super().fit(data, until=until, **given)

    def plan(self, panel: Panel) -> Plan:
        """What `fit` would do with this panel; nothing is learned."""
        self.check()
        config, known, data = self._prepared(panel)
        network = self._network(config, len(data.features), known)
        steps = config.train.epochs * Draws(data, config.train, seed=self.seed, ranks=Ranks()).steps_an_epoch
        return Plan(config, data.features.names, sum(weight.numel() for weight in network.parameters()), steps)

    def fine_tune(self, data: Any, *, until: When | None = None, folder: str | Path | None = None) -> Self:
        """Go on learning from new data, new series included; what the features are scaled by stays as it was."""
        self.check()
        panel = self._read(data)
        if until is not None:
            panel = panel.until(clock_time(panel, until))
        known = self.series_index_.joined(panel, learned_from(panel, self.config_))
        told = _told(known, panel)
        network = self._network(self.config_, len(self.features_), known)
        network.take_over(self.network_)
        train = replace(self.config_.train, lr=_GENTLER * self.config_.train.lr, seeds=1, minutes=self.minutes)
        gentle = replace(self.config_, train=train)
        network.check(torch.from_numpy(seen_values(panel)))
        self._folder = None if folder is None else _run_folder(folder)
        self._train(TrainingSet.of(told, gentle, self.features_), gentle, lambda _seed: network)
        self.series_index_, self.panel_ = known, panel
        return self

    def _fit(self, panel: Panel) -> None:
        config, self.series_index_, data = self._prepared(panel)
        self.config_, self.features_ = config, data.features

        def fresh(seed: int) -> Network:
            network = self._network(config, len(data.features), self.series_index_)
            network.initialise(torch.Generator().manual_seed(seed))
            return network

        network = fresh(self.seed)
        network.check(torch.from_numpy(seen_values(panel)))
        if self.config is not None and isinstance(network, Transformer):
            warn_of_depth(config)
        self._train(data, config, fresh)

    def _prepared(self, panel: Panel) -> tuple[Config, SeriesIndex, TrainingSet]:
        config = self.config or self._default_config(panel)
        if self.minutes is not None:
            config = replace(config, train=replace(config.train, minutes=self.minutes))
        other = self._validation
        known = SeriesIndex.of(panel, learned_from(panel, config) if other is None else panel.lengths)
        told = _told(known, panel)
        data = TrainingSet.of(told, config) if other is None else TrainingSet.of_two(told, _told(known, other), config)
        check_reach(config, panel)
        return config, known, data

    def _default_config(self, panel: Panel) -> Config:
        """The settings that follow from the data."""
        return recommend(panel, self.horizon, self.context)

    def _network(self, config: Config, features: int, known: SeriesIndex) -> Network:
        """The network of these settings; a model that differs in the network only overrides this."""
        static = [len(found) for found in known.categories.values()]
        return Transformer(config.model, length=config.length, features=features, series=len(known.ids), static=static)

    def _train(self, data: TrainingSet, config: Config, make: Any) -> None:
        seeds = range(self.seed, self.seed + config.train.seeds)
        # All ranks write as one: the first holds the lock.
        with join(device_named(self.device)) as ranks, alone(self._folder if ranks.leads else None, seeds):

            def run(seed: int) -> Training:
                network = make(seed).to(ranks.device)
                folder = self._folder and seed_folder(self._folder, seed)
                told = self.verbose
                return Training(network, data, config.train, seed=seed, folder=folder, ranks=ranks, verbose=told)

            best = best_of(run, seeds)
        self.network_, self.history_ = best.network, best.history
        self.network_.settle_unknown()

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        facts = {
            "config": self.config_.to_dict(),
            "known": self.series_index_.to_dict(),
            "features": self.features_.to_dict(),
            "story": asdict(self.history_),
        }
        # A trip through JSON turns tuples into lists, as a reader will find them.
        plain: dict[str, Any] = json.loads(json.dumps(facts))
        return plain, {name: tensor.cpu().numpy() for name, tensor in self.network_.state_dict().items()}

    def _restore(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        found = learned(facts, arrays, self.panel_, self.horizon, self._network)
        self.config_, self.series_index_, self.features_, self.history_, self.network_ = found

    def learned_until(self) -> dict[SeriesId, int]:
        """In all trainings, the first and the finer ones."""
        known = dict(zip(self.series_index_.ids, self.series_index_.end_A.tolist(), strict=True))
        return {name: max(end, known.get(name, end)) for name, end in {**known, **super().learned_until()}.items()}

    def _remembered(self) -> int:
        return self.config_.context + looks_back(self.config_)

    def settings(self) -> dict[str, Any]:
        """What it was made with, as plain JSON."""
        config = None if self.config is None else json.loads(json.dumps(self.config.to_dict()))
        return {**super().settings(), "config": config}

    @classmethod
    def read_settings(cls, written: Mapping[str, Any]) -> dict[str, Any]:
        """What `settings` gave, as arguments of the constructor."""
        config = written["config"]
        return {**written, "config": None if config is None else Config.from_dict(config)}

    def attention(
        self,
        data: Any = None,
        *,
        future: Any = None,
        series: SeriesId | None = None,
        layer: int = -1,
        head: int | None = None,
        step: int | None = 0,
    ) -> Attention:
        """How a step of the forecast looks at its window; `step=None`: how every position does, as a matrix.

        Of the first series unless one is named, of the mean over all heads unless one is; layers and heads count from
        0. The steps before it are those of the mean path.
        """
        windows = self._windows(self.history(data, future))
        return attention_of(self._placed(), windows, series=series, layer=layer, head=head, step=step)

    def diagnostics(self) -> Diagnostics:
        """Settings, losses, and what the forecast of the first series looks at."""
        if not hasattr(self, "panel_"):
            return super().diagnostics()
        config = json.loads(json.dumps(self.config_.to_dict()))
        seen = not np.isnan(self.panel_.values).all() and not self.panel_.covariates
        picture = self.attention().plot() if seen and isinstance(self.network_, Transformer) else None
        return Diagnostics({**self.settings(), "config": config}, self.history_.rows, picture)

    @property
    def method(self) -> Method:
        """How forecasts are made, as `config_` says. Another that the same training serves may be set."""
        if not hasattr(self, "config_"):
            raise NotFittedError(self)
        return self.config_.method

    @method.setter
    def method(self, method: Method) -> None:
        changed = replace(self.config_, method=method)
        trained = "two-way and direct" if self.config_.masks_future_lags else "ancestral and mean-path"
        if changed.masks_future_lags != self.config_.masks_future_lags:
            raise ConfigError(
                "A network forecasts as it was trained to: by two-way or direct, or by ancestral or mean-path.",
                got=f"{method} of a network trained for {trained}",
                hint=f"fit it with method={method!r} in its config.",
            )
        self.config_ = changed

    @classmethod
    def restored(cls, written: ModelFolder, *, method: Method | None = None, **changed: Any) -> Self:
        """As it was when it was saved, but for settings to be changed; the method is one of what was learned."""
        self = super().restored(written, **changed)
        if method is not None:
            self.method = method
        return self

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        if self.samples is not None and self.method == "direct":
            raise ConfigError(
                "The method direct tells each step by itself: it has no sample paths.",
                got=f"samples={self.samples}",
                hint="set samples to None, or method to two-way.",
            )
        pairs = Pairs(np.arange(len(panel)), panel.lengths)
        found = self._sample(panel, pairs, levels, keep_paths=self.samples is not None)
        return Forecast(panel, found.mean_WH, levels, found.quantiles_WQH, found.paths_WNH)

    def summaries(self, histories: Sequence[Panel], levels: tuple[float, ...]) -> Iterator[Forecast]:
        """All histories that are parts of one panel together: few large batches instead of many small ones."""
        first, rest = histories[0], [panel for panel in histories if panel.values is not histories[0].values]
        if rest:
            for panel in histories:
                yield from self.summaries([panel], levels)
            return
        series_W = np.tile(np.arange(len(first)), len(histories))
        whole_panel = replace(first, lengths=np.max([panel.lengths for panel in histories], axis=0))
        pairs = Pairs(series_W, np.concatenate([panel.lengths for panel in histories]))
        found = self._sample(whole_panel, pairs, levels, keep_paths=False)
        for number, panel in enumerate(histories):
            part = slice(number * len(first), (number + 1) * len(first))
            yield Forecast(panel, found.mean_WH[part], levels, found.quantiles_WQH[part])

    def _sample(self, panel: Panel, pairs: Pairs, levels: tuple[float, ...], *, keep_paths: bool) -> Sampled:
        needed = self.network_.paths_needed(levels, self.method)
        # Exact quantiles need no paths: those are drawn only to be kept.
        paths = self.samples if self.samples is not None and (keep_paths or needed) else needed
        ask = Sampling(paths=paths, levels=levels, method=self.method, seed=self.seed, keep_paths=keep_paths)
        with Progress("forecasting", len(pairs), verbose=self.verbose) as progress:
            return sample(self._placed(), self._windows(panel), pairs, ask, report=progress.step)

    def _placed(self) -> Network:
        """The network on its device; moved only where it must be: another thread may be reading it."""
        device, here = device_named(self.device), next(self.network_.parameters()).device
        if device.type != here.type or device.index not in {None, here.index}:
            self.network_.to(device)
        return self.network_

    def _windows(self, panel: Panel) -> Windows:
        """Of any panel."""
        return windows_of(_told(self.series_index_, panel), self.features_, self.config_)


def _run_folder(folder: Any) -> Path:
    return a_path("A run is kept in the path of a folder.", folder, hint='write folder="run", or leave it out.')


def _told(known: SeriesIndex, panel: Panel) -> Panel:
    """Any panel that a network is to read, told in the terms of training; what it cannot read is refused."""
    check_size(panel)
    return known.encode(panel)
