"""LogSparse: frame in, forecast out. Fits the paper's network or the default one, saves it and loads it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from logsparse.attention.maps import Attention, attention_of
from logsparse.calibration import Calibration
from logsparse.cluster.share import remembered, training_data
from logsparse.config import Config, TrainConfig
from logsparse.data.calendar import Freq
from logsparse.data.columns import Columns
from logsparse.data.features import Features
from logsparse.data.frame import Data, refuse_empty
from logsparse.data.later import NewSeries, read_like, refuse_new
from logsparse.data.panel import Panel, SeriesId
from logsparse.data.sampler import Pairs
from logsparse.data.series_index import SeriesIndex
from logsparse.data.times import When, clock_time
from logsparse.data.windows import Windows
from logsparse.defaults import for_amount, recommend, warn_of_depth, warn_of_few, warn_of_precision
from logsparse.errors import ConfigError, a_path
from logsparse.finish import finished, measured, memory
from logsparse.forecast import Forecast
from logsparse.model.decode import Sampled, Sampling, sample
from logsparse.model.network import Network
from logsparse.model.transformer import Transformer
from logsparse.params import Diagnostics
from logsparse.plan import Configured, Learned, Plan, admit, check_horizon, encode, refit_settings, together
from logsparse.process import Progress
from logsparse.settings import apply, check_setting
from logsparse.train.batches import TrainingSet, learned_from, windows_of
from logsparse.train.checkpoint import lock_seeds, seed_folder
from logsparse.train.distributed import device_named, join
from logsparse.train.loop import INTERRUPTED, Training, TrainingHistory, best_of

# W windows, S series, H steps of the horizon, Q quantile levels, N sample paths

# Fine-tuning starts from good weights: its learning rate is a tenth of the first one.
_GENTLER = 0.1
# Folder of the second training, on all data, within that of the first.
_REFIT = "all"
# Settings that decide how far back a network sees.
_REACH = {"layers", "patterns", "lags"}

log = logging.getLogger("logsparse")


class LogSparse(Configured):
    """Forecast many related series with the LogSparse Transformer of Li et al. (NeurIPS 2019).

    One network is trained on all series. Without `config`, settings follow from the data: see `config_` after `fit`.
    The same seed gives the same result on one machine with the same number of threads and without `minutes`.

    Parameters
    ----------
    horizon
        Number of steps to forecast.
    context
        Number of past steps the network sees; if left out, it follows from the frequency and the lengths of the
        series: 168 for hourly data, in general at most 336 steps or two horizons.
    config
        All settings of network and training: a `Config`, such as those of `logsparse.presets`; those that follow from
        the data if left out.
    steps
        Number of training steps, over which the learning rate is scheduled; those of the config if left out, by
        default 1,600, and fewer for less than 8,000 values.
    minutes
        Time limit for the training of one seed; none if left out.
    seed
        Seed of initial weights, training windows and sample paths.
    samples
        Number of sample paths that `forecast` draws and keeps; if left out, as many as the quantiles need, not kept.
    **settings
        `device`: "auto" (a GPU if there is one), "cpu" or "cuda". `verbose`: whether to show progress. `method`:
        "two-way" (default), "direct" (faster), "ancestral" or "mean-path". `likelihood`: "gaussian", "student-t",
        "negative-binomial" or "zero-inflated". `holidays`: a country ("DE", "DE-BY"), dates, "auto", or [] for none;
        the country whose holidays the data follow, if left out. `features`, `blend`, and any field of `ModelConfig`
        and `TrainConfig`, such as `layers=2`. They replace those of config or data.

    Attributes
    ----------
    config_, history_, network_, features_, series_index_, panel_
        After `fit`: all settings, losses by step, the torch module, its calendar features, known series, the data.
        `history_.warning` is a sentence if the training was too short, else None.
    calibration_
        After `fit`: coverage of the 80 % interval in the part held back, and factors that widen intervals; or None.

    Raises
    ------
    ConfigError
        If one of `settings` is unknown or has a wrong value; at `fit`, not here, for the other parameters, codes of
        countries, names of features and settings that contradict each other.

    Examples
    --------
    Two steps of training, to be quick; leave `steps` out for a useful model:

    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> model = ls.LogSparse(horizon=3, context=14, steps=2, layers=2, batch=4, verbose=False).fit(frame)
    >>> model.config_.model.layers
    2
    >>> model.predict(quantiles=[0.1, 0.9]).columns
    ['unique_id', 'ds', 'mean', 'q0.1', 'q0.9']
    """

    input_delays: Mapping[str, int] | None = None
    """Steps by which inputs of the network are read too early, by name; `importance` sets it in a copy."""
    series_index_: SeriesIndex
    features_: Features
    network_: Network
    history_: TrainingHistory
    calibration_: Calibration | None

    def fit(
        self,
        data: Data | Plan,
        *,
        until: When | None = None,
        folder: str | Path | None = None,
        validation: Data | None = None,
        **columns: Unpack[Columns],
    ) -> Self:
        """Train on the series of a frame, file or panel.

        Ctrl-C or SIGTERM ends the training after the current step and keeps the best weights so far.

        Parameters
        ----------
        data
            Frame, path or Panel as for every forecaster, or what `plan` returned. Processes that torchrun starts share
            the series of a folder of parts: each holds the values of its own parts only.
        until
            Time of the last step to use; each series' end if left out.
        folder
            Where to write checkpoints; an interrupted training with the same data and settings resumes there.
        validation
            Other series to validate with; the last part of each series if left out.
        **columns
            Which columns mean what, and how times are written, as for `to_panel`: `id_col`, `time_col`, `target_col`,
            `freq`, `covariates`, `past_covariates`, `static`, `tz`, `time_format`, `dayfirst`.

        Returns
        -------
        Self
            The forecaster itself, fitted.

        Raises
        ------
        ConfigError, DataError
            If a parameter or the data break a rule, or a plan is given with other settings or with its data again.
        """
        run = None if folder is None else _run_folder(folder)
        if isinstance(data, Plan):
            self.check()
            data.check(self.clone(), {**columns, "until": until, "validation": validation})
        plan = data if isinstance(data, Plan) else self.plan(data, until=until, validation=validation, **columns)
        self._fit(plan.panel, plan, run)
        self.columns_, device = plan.columns, device_named(self.device)
        self.panel_ = remembered(plan.panel, self._remembered(), device)
        return self

    def plan(
        self, data: Data, *, until: When | None = None, validation: Data | None = None, **columns: Unpack[Columns]
    ) -> Plan:
        """Prepare a training without starting it; `fit(plan)` carries it out.

        Parameters are those of `fit`, errors too.

        Returns
        -------
        Plan
            `config`, `features`, `parameters` and `steps` of the training, and its prepared data.
        """
        self.check()
        with training_data(data, device_named(self.device)) as read:
            panel, given = read(until, columns)
            other = None if validation is None else read_like(panel, validation, **given)
            config = self._configured(self.config or self._default_config(panel))
            build = partial(self._network, freq=panel.freq)
            return Plan.of(panel, other, given, config, build, made_by=self.clone(), seed=self.seed)

    def fine_tune(
        self,
        data: Data,
        *,
        until: When | None = None,
        folder: str | Path | None = None,
        steps: int | None = None,
        minutes: float | None = None,
        lr: float | None = None,
    ) -> Self:
        """Continue training on new data, which may have new series.

        Parameters
        ----------
        data
            Frame, path or Panel with the columns of `fit`.
        until
            Time of the last step to use; each series' end if left out.
        folder
            Where to write checkpoints; an interrupted training resumes there.
        steps
            Number of training steps; as many as for `fit` if left out.
        minutes
            Time limit; that of `fit` if it and `steps` are left out.
        lr
            Highest learning rate; a tenth of that of `fit` if left out.

        Returns
        -------
        Self
            The forecaster itself; the scaling of its features stays as it was.

        Raises
        ------
        NotFittedError, ConfigError, DataError
            Before `fit`, or if the data break a rule.
        """
        self.check()
        run = None if folder is None else _run_folder(folder)
        limits = {"steps": steps, "minutes": self.minutes if minutes is steps is None else minutes, "lr": lr}
        given = {name: check_setting(name, value) for name, value in limits.items() if value is not None}
        panel = self._read(data)
        refuse_empty(panel)
        if until is not None:
            panel = panel.until(clock_time(panel, until))
        known = self.series_index_.joined(panel, learned_from(panel, self.config_))
        encoded = encode(known, panel)
        network = self._network(self.config_, len(self.features_), known, panel.freq)
        network.copy_weights(self.network_)
        # The last part stays held back: there is one network to continue with, not two.
        kept = {"lr": _GENTLER * self.config_.train.lr, "seeds": 1, "minutes": None, "refit": False}
        gentle = apply(self.config_, {**kept, **given})
        admit(network, panel)
        # Steps that an earlier training lacked are still to be taken: a few more do not make up for them.
        before = self.history_
        lacking = (before.planned or 0) - before.steps if before.warning else 0
        self._train(TrainingSet.of(encoded, gentle, self.features_), gentle, lambda _seed: network, run, lacking)
        self.series_index_, self.panel_ = known, panel
        return self

    def _fit(self, panel: Panel, plan: Plan | None = None, folder: Path | None = None) -> None:
        plan = self.plan(panel) if plan is None else plan
        config, known, features = plan.config, plan.known, plan.data.features
        if (self.config or _REACH & self._changes().keys()) and isinstance(plan.network, Transformer):
            warn_of_depth(config)
        warn_of_few(plan.values, plan.parameters, config.blend)

        def fresh(seed: int) -> Network:
            network = self._network(config, len(features), known, panel.freq)
            network.initialise(torch.Generator().manual_seed(seed))
            return network

        self._train(plan.data, config, fresh, folder)
        self.config_, self.series_index_, self.features_ = config, known, features

    def _default_config(self, panel: Panel) -> Config:
        """Return the settings that follow from the data."""
        return for_amount(recommend(panel, self.horizon, self.context, self._changes().get("holidays")), panel)

    def _network(self, config: Config, features: int, known: SeriesIndex, freq: Freq) -> Network:
        """Build the network; a forecaster that differs in its network only overrides this."""
        del freq
        static = [len(categories) for categories in known.categories.values()]
        return Transformer(config.model, length=config.length, features=features, series=len(known.ids), static=static)

    def _train(
        self,
        data: TrainingSet,
        config: Config,
        make: Callable[[int], Network],
        folder: Path | None = None,
        lacking: int = 0,
    ) -> None:
        seeds = range(self.seed, self.seed + config.train.seeds)
        warn_of_precision(config.train.precision, device_named(self.device).type)
        # All ranks write as one: the first holds the lock.
        with join(device_named(self.device)) as ranks, lock_seeds(folder if ranks.leads else None, seeds):

            def run(seed: int, learned: TrainingSet = data, train: TrainConfig = config.train) -> Training:
                network, place = make(seed).to(ranks.device), folder and seed_folder(folder, seed)
                place = place and (place if learned is data else place / _REFIT)
                return Training(network, learned, train, seed=seed, folder=place, ranks=ranks, verbose=self.verbose)

            best = best_of(run, seeds)
            self.network_, self.history_ = best.network, best.history
            self.calibration_ = measured(best, config, self.seed)
            partly = data.validation_windows is data.windows  # else other series validate: nothing was held back
            if config.train.refit and partly and not best.history.cut:
                again = run(best.seed, data.whole(), refit_settings(best))
                then = again.run()
                self.network_ = best.network if then.cut else again.network
                ended = INTERRUPTED if then.ended == INTERRUPTED else best.history.ended
                self.history_ = replace(best.history, ended=ended, seconds=best.history.seconds + then.seconds)
        if lacking > best.steps:
            before = "" if best.history.ended == INTERRUPTED else f", after a training that lacked {lacking:,}"
            self.history_ = replace(best.history, planned=lacking, ended=best.history.ended + before)
        if self.history_.warning and ranks.leads:
            log.warning(self.history_.warning)
        self.network_.fill_unknown()

    def _learned(self) -> list[str]:
        if not hasattr(self, "panel_"):
            return []
        history, count = self.history_, sum(weight.numel() for weight in self.network_.parameters())
        steps = f"{history.steps:_} of {history.planned:_}" if history.warning else f"{history.steps:_}"
        loss = [] if history.best is None else [f"validation loss {history.best:.4f}"]
        simple = self.config_.blend and f"{100 * self.config_.blend:.0f} % of the forecast from simple rules"
        held = [str(note) for note in (self.calibration_, simple) if note]
        course = ["which was still falling"] if history.warning and history.falling else []
        return [*super()._learned(), f"{count:_} parameters", f"{steps} steps trained", *loss, *course, *held]

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        learned = (self.config_, self.series_index_, self.features_, self.history_, self.network_, self.calibration_)
        return Learned(*learned).pack()

    def _restore(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        build = partial(self._network, freq=self.panel_.freq)
        learned = Learned.unpack(facts, arrays, self.panel_, self.horizon, build)
        self.config_, self.series_index_, self.features_, self.history_, self.network_, self.calibration_ = learned

    def learned_until(self) -> dict[SeriesId, int]:
        """Return the time of the last step learned from, per series, fine-tuning included."""
        last = super().learned_until()
        known = dict(zip(self.series_index_.ids, self.series_index_.end_A.tolist(), strict=True))
        return {name: max(end, known.get(name, end)) for name, end in {**known, **last}.items()}

    def _read(self, data: Data | None, **columns: Unpack[Columns]) -> Panel:
        panel = super()._read(data, **columns)
        check_horizon(self.horizon, self.config_)
        return panel

    def _remembered(self) -> int:
        return memory(self.config_)

    def _check_new(self, new: NewSeries) -> None:
        if self.config_.model.hidden_history == 0:
            rule = f"{type(self).__name__} must be trained on hidden histories to forecast a series without one."
            described = bool(self.series_index_.categories or self.features_.covariates)
            refuse_new(new, rule, "fit it with static=[...] or model.hidden_history=0.1", described=described)

    def attention(
        self,
        data: Data | None = None,
        *,
        future: Data | None = None,
        series: SeriesId | None = None,
        layer: int = -1,
        head: int | None = None,
        step: int | None = 0,
    ) -> Attention:
        """Return the attention weights of a forecast.

        Parameters
        ----------
        data, future
            As for `forecast`.
        series
            Id of the series; the first one if left out.
        layer, head
            Counted from 0; the last layer and the mean over all heads if left out.
        step
            Step of the forecast whose weights are returned; None: those of every position, as a matrix. Earlier
            steps are those of the mean path.

        Returns
        -------
        Attention
            Weights with `table` and `plot`.

        Raises
        ------
        NotFittedError, ConfigError, DataError
            Before `fit`, for another network, or if a layer, head, step or series does not exist.
        """
        windows = self._windows(self.history(data, future))
        return attention_of(self._placed(), windows, series=series, layer=layer, head=head, step=step)

    def diagnostics(self) -> Diagnostics:
        """Return settings, losses, and a picture of the attention of the first series."""
        if not hasattr(self, "panel_"):
            return super().diagnostics()
        config = json.loads(json.dumps(self.config_.to_dict()))
        seen = not self.panel_.is_blank and not self.panel_.ahead
        picture = self.attention().plot() if seen and isinstance(self.network_, Transformer) else None
        held = {} if self.calibration_ is None else {"intervals": str(self.calibration_)}
        return Diagnostics({**self.settings(), **held, "config": config}, self.history_.rows, picture)

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        if self.samples is not None and self.config_.method == "direct":
            raise ConfigError(
                "The method direct forecasts each step by itself: it has no sample paths.",
                got=f"samples={self.samples}",
                hint="set samples to None, or method to two-way.",
            )
        pairs = Pairs(np.arange(len(panel)), panel.lengths)
        found = self._sample(panel, pairs, levels, keep_paths=self.samples is not None)
        return Forecast(panel, found.mean_WH, levels, found.quantiles_WQH, found.paths_WNH)

    def summaries(self, histories: Sequence[Panel], levels: tuple[float, ...]) -> Iterator[Forecast]:
        """Forecast all histories, which have one time zone, together in few large batches."""
        found = self._sample(*together(self.series_index_, histories), levels, keep_paths=False)
        ends = np.cumsum([len(panel) for panel in histories]).tolist()
        for panel, end in zip(histories, ends, strict=True):
            part = slice(end - len(panel), end)
            yield Forecast(panel, found.mean_WH[part], levels, found.quantiles_WQH[part])

    def _sample(self, panel: Panel, pairs: Pairs, levels: tuple[float, ...], *, keep_paths: bool) -> Sampled:
        wanted = levels if self.calibration_ is None else self.calibration_.levels_read(levels)
        needed = self.network_.paths_needed(levels, self.config_.method)
        # Exact quantiles need no paths: those are drawn only to be kept.
        paths = self.samples if self.samples is not None and (keep_paths or needed) else needed
        ask = Sampling(paths=paths, levels=wanted, method=self.config_.method, seed=self.seed, keep_paths=keep_paths)
        with Progress("forecasting", len(pairs), verbose=self.verbose) as progress:
            found = sample(self._placed(), self._windows(panel), pairs, ask, report=progress.step)
        learned = (self.config_, self.network_, self.features_, self.calibration_)
        return finished(found, panel, pairs, levels, *learned)

    def _placed(self) -> Network:
        """Return the network on its device; it is moved only if it must be, as another thread may be using it."""
        device, here = device_named(self.device), next(self.network_.parameters()).device
        if device.type != here.type or device.index not in {None, here.index}:
            self.network_.to(device)
        return self.network_

    def _windows(self, panel: Panel) -> Windows:
        return windows_of(encode(self.series_index_, panel), self.features_, self.config_, self.input_delays)


def _run_folder(folder: Any) -> Path:
    return a_path("A run is kept in the path of a folder.", folder, hint='write folder="run", or leave it out.')
