"""(Panel, Config, seed) -> the batch of any step, as a function of its number: a run can be taken up anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from logsparse.config import Config, TrainConfig
from logsparse.data.calendar import Ints
from logsparse.data.features import Features
from logsparse.data.panel import Panel
from logsparse.data.sampler import Candidates, Pairs, Sampler, epoch, learned_steps, split
from logsparse.data.scale import Profile, reach
from logsparse.data.windows import Batch, Windows
from logsparse.train.distributed import Ranks

# Enough to learn what the next step takes from this one, and what follows a break (docs/LOG.md).
_ONE_SEES_OF = 4


@dataclass(frozen=True)
class TrainingSet:
    """Windows to learn from and windows to validate with, and the features fitted on the former."""

    windows: Windows
    training: Candidates
    validation_windows: Windows
    validation: Candidates
    masks_future_lags: bool
    """Whether three windows of four hide what is not known at their forecast start."""

    @classmethod
    def of(cls, panel: Panel, config: Config, features: Features | None = None) -> TrainingSet:
        """Validation windows have their horizon in the last part of each series; training windows end before it.

        Features are fitted here unless a network that goes on learning brings its own.
        """
        panel = panel.to_last_value()
        training, validation = split(panel, config.context, config.horizon, config.train.validation_steps)
        features = features or Features.fit(panel, config.features, tuple(panel.covariates))
        windows = windows_of(panel, features, config)
        return cls(windows, training, windows, validation, config.masks_future_lags)

    @classmethod
    def of_two(cls, training: Panel, validation: Panel, config: Config) -> TrainingSet:
        """Every window of the one panel to learn from, every window of the other to validate with."""
        training, validation = training.to_last_value(), validation.to_last_value()
        features = Features.fit(training, config.features, tuple(training.covariates))
        learn, look = (Candidates.of(panel, config.context, config.horizon) for panel in (training, validation))
        windows = [windows_of(panel, features, config) for panel in (training, validation)]
        return cls(windows[0], learn, windows[1], look, config.masks_future_lags)

    @property
    def features(self) -> Features:
        """What the windows' features are made by."""
        return self.windows.features

    def validation_pairs(self, most: int) -> Pairs:
        """So many of the windows to validate with, or all, spread evenly over them."""
        count = min(most, len(self.validation))
        return self.validation.at(np.linspace(0, len(self.validation) - 1, count).astype(np.int64))

    def looks(self, train: TrainConfig, ranks: Ranks) -> Iterator[Batch]:
        """The validation windows of this rank, the same at every look."""
        for pairs in epoch(self.validation_pairs(train.validation_windows), train.batch):
            if len(pairs.share(ranks.rank, ranks.count)):
                yield self.gather(self.validation_windows, pairs, ranks)

    def gather(self, windows: Windows, pairs: Pairs, ranks: Ranks) -> Batch:
        """Of a global batch, the share of this rank."""
        share = pairs.share(ranks.rank, ranks.count)
        batch = windows(share.series_B, share.start_B)
        if self.masks_future_lags:
            # The same windows are blind however many ranks share the batch.
            first = len(pairs) * ranks.rank // ranks.count
            batch.mask_future_lags(windows.lags, torch.arange(first, first + len(share)) % _ONE_SEES_OF > 0)
        return batch.to(ranks.device)


class Draws:
    """The windows of step n: drawn afresh, or from a set that is shuffled anew every epoch."""

    def __init__(self, data: TrainingSet, train: TrainConfig, *, seed: int, ranks: Ranks) -> None:
        self.data, self.train, self.seed, self.ranks = data, train, seed, ranks
        self.sampler = Sampler(data.training, data.windows.scaling if train.weighted else None)
        self._set: Pairs | Candidates | None = None
        if train.windows is not None:
            # Where all are alike, a set as large as all windows is all windows, each once.
            every = not train.weighted and train.windows >= len(data.training)
            rng = np.random.default_rng([seed, 0])
            self._set = data.training if every else self.sampler.draw(train.windows, rng)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in the set, or the agreed number of fresh draws."""
        return self.train.steps_per_epoch if self._set is None else max(1, len(self._set) // self.train.batch)

    def __call__(self, step: int) -> Batch:
        """Of the global batch of this step, the share of this rank."""
        return self.data.gather(self.data.windows, self._pairs(step), self.ranks)

    def _pairs(self, step: int) -> Pairs:
        if self._set is None:
            return self.sampler.draw(self.train.batch, np.random.default_rng([self.seed, 1, step]))
        number, place = divmod(step, self.steps_per_epoch)
        if getattr(self, "_shuffled", None) != number:
            self._order = np.random.default_rng([self.seed, 2, number]).permutation(len(self._set))
            self._shuffled = number
        return self._set.at(self._order[place * self.train.batch : (place + 1) * self.train.batch])


def windows_of(panel: Panel, features: Features, config: Config) -> Windows:
    """As the settings want them."""
    model = config.model
    return Windows(
        panel,
        features,
        context=config.context,
        horizon=config.horizon,
        lags=model.lags,
        profiles=_profiles(config),
        scale=model.scale,
    )


def learned_from(panel: Panel, config: Config) -> Ints:
    """Of each series, the steps before the part that `TrainingSet.of` holds back."""
    return learned_steps(panel.to_last_value(), config.horizon, config.train.validation_steps)


def looks_back(config: Config) -> int:
    """Steps before a window that its inputs look at."""
    return reach(config.model.lags, _profiles(config), config.horizon)


def _profiles(config: Config) -> list[Profile]:
    return [Profile(*map(int, profile.split("x"))) for profile in config.model.profiles]
