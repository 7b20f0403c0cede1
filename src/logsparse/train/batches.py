"""(Panel, Config, seed) -> the batch of any step, as a function of the step: training can resume at any step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypedDict

import numpy as np
import torch

from logsparse.config import Config, TrainConfig
from logsparse.data.calendar import DAY, Freq, Ints
from logsparse.data.features import Features, holidays_of
from logsparse.data.panel import Panel
from logsparse.data.sampler import Candidates, Pairs, Sampler, epoch, learned_steps, split
from logsparse.data.scale import Profile, reach
from logsparse.data.windows import Batch, Windows
from logsparse.errors import ConfigError
from logsparse.train.distributed import Ranks

# One window in so many keeps all its lags, which is enough to learn one step ahead (docs/RECIPE.md).
_UNMASKED_EVERY = 4


@dataclass(frozen=True)
class TrainingSet:
    """Training windows and validation windows, with features fitted on the former."""

    windows: Windows
    training: Candidates
    validation_windows: Windows
    validation: Candidates
    masks_future_lags: bool
    """True if three windows of four hide the lags that are unknown at their forecast start."""
    hidden_history: float = 0.0
    """Share of training windows whose whole history is hidden."""
    refits: bool = False
    """True for a second training, on all data."""
    unknown: float = 0.0
    """Share of training windows whose series counts as unknown, so that its embedding is trained."""

    @classmethod
    def of(cls, panel: Panel, config: Config, features: Features | None = None) -> TrainingSet:
        """Split a panel: validation windows have their horizon in the last part of each series.

        Training windows end before that part. `features` are fitted on the panel unless given.
        """
        panel = panel.to_last_value()
        train = config.train
        held_back = (train.validation_steps, train.validation_share)
        if config.blend == 1 and learned_from(panel, config).max() <= config.horizon:
            # Nothing can be held back, and the network, which has no say, need not be chosen.
            training = validation = Candidates.of(panel, config.context, config.horizon)
        else:
            training, validation = split(panel, config.context, config.horizon, *held_back)
        features = features or _features(panel, config)
        windows = windows_of(panel, features, config)
        return cls(windows, training, windows, validation, **_hidden(panel, config))

    @classmethod
    def of_two(cls, training: Panel, validation: Panel, config: Config) -> TrainingSet:
        """Take all windows of one panel for training and all windows of another for validation."""
        training, validation = training.to_last_value(), validation.to_last_value()
        features = _features(training, config)
        panels = (training, validation)
        candidates = [Candidates.of(panel, config.context, config.horizon) for panel in panels]
        windows = [windows_of(panel, features, config) for panel in panels]
        return cls(windows[0], candidates[0], windows[1], candidates[1], **_hidden(training, config))

    def whole(self) -> TrainingSet:
        """Return the set that learns from every window, those of the validation part included."""
        training = self.training
        candidates = Candidates.of(training.panel, training.context, training.horizon)
        return replace(self, training=candidates, refits=True)

    @property
    def features(self) -> Features:
        """The features of all windows."""
        return self.windows.features

    def validation_pairs(self, most: int) -> Pairs:
        """Return at most `most` validation windows, spread evenly over all of them."""
        count = min(most, len(self.validation))
        return self.validation.at(np.linspace(0, len(self.validation) - 1, count).astype(np.int64))

    def validation_batches(self, train: TrainConfig, ranks: Ranks) -> Iterator[Batch]:
        """Yield the validation windows of this rank, the same at every validation."""
        windows = self.validation_windows
        for pairs in epoch(self.validation_pairs(train.validation_windows), train.batch):
            if len(_places(windows.panel, pairs, ranks)):
                yield self.gather(windows, pairs, ranks)

    def gather(
        self,
        windows: Windows,
        pairs: Pairs,
        ranks: Ranks,
        hiding: np.random.Generator | None = None,
        generator: torch.Generator | None = None,
    ) -> Batch:
        """Return the share of this rank of a global batch.

        `hiding` chooses windows whose history is hidden, `generator` those whose series counts as unknown. The same
        windows are chosen, and masked, however many ranks share the batch.
        """
        place_B = _places(windows.panel, pairs, ranks)
        unknown_A = None
        if generator is not None and self.unknown > 0:
            unknown_A = torch.rand(len(pairs), generator=generator, device=generator.device) < self.unknown
        if len(place_B) == 0:
            return windows.blank().to(ranks.device)
        share, hidden_B = pairs.at(place_B), None
        if hiding is not None and self.hidden_history > 0:
            hidden_B = (hiding.random(len(pairs)) < self.hidden_history)[place_B]
        batch = windows(share.series_B, share.start_B, hidden_B)
        if self.masks_future_lags:
            masked_B = torch.from_numpy(place_B) % _UNMASKED_EVERY > 0
            if hidden_B is not None:  # a window without a history is forecast without lags only
                masked_B |= torch.from_numpy(hidden_B)
            batch.mask_future_lags(windows.lags, masked_B)
        if unknown_A is not None:
            batch.forget_series(unknown_A.cpu()[place_B])
        return batch.to(ranks.device)


class Draws:
    """The batch of step n: fresh draws, or windows of a fixed set that is shuffled in every epoch."""

    def __init__(self, data: TrainingSet, train: TrainConfig, *, seed: int, ranks: Ranks) -> None:
        self.data, self.train, self.seed, self.ranks = data, train, seed, ranks
        self.sampler = Sampler(data.training, data.windows.scaling if train.weighted else None)
        self._shuffled = -1
        # An unweighted set of at least as many windows as there are is all of them, each once.
        self._every = train.windows is not None and not train.weighted and train.windows >= len(data.training)

    @cached_property
    def _set(self) -> Pairs | Candidates | None:
        if self._every or self.train.windows is None:
            return self.data.training if self._every else None
        return self.sampler.draw(self.train.windows, np.random.default_rng([self.seed, 0]))

    @property
    def steps_per_epoch(self) -> int:
        """Complete batches in the set, or the configured number of fresh draws."""
        if self.train.windows is None:
            return self.train.steps_per_epoch
        return max(1, (len(self.data.training) if self._every else self.train.windows) // self.train.batch)

    @property
    def steps(self) -> int:
        """Number of steps of the whole training."""
        return self.train.epochs * self.steps_per_epoch if self.train.steps is None else self.train.steps

    def __call__(self, step: int, generator: torch.Generator | None = None) -> Batch:
        """Return the share of this rank of the batch of this step; the generator must be the same on all ranks."""
        hiding = np.random.default_rng([self.seed, 3, step])
        return self.data.gather(self.data.windows, self._pairs(step), self.ranks, hiding, generator)

    def _pairs(self, step: int) -> Pairs:
        if self._set is None:
            return self.sampler.draw(self.train.batch, np.random.default_rng([self.seed, 1, step]))
        number, place = divmod(step, self.steps_per_epoch)
        if self._shuffled != number:
            self._order = np.random.default_rng([self.seed, 2, number]).permutation(len(self._set))
            self._shuffled = number
        return self._set.at(self._order[place * self.train.batch : (place + 1) * self.train.batch])


def _places(panel: Panel, pairs: Pairs, ranks: Ranks) -> Ints:
    """Return the positions in a global batch of the windows of this rank: those it holds, or an equal share."""
    return pairs.held_by(panel) if len(panel.held) < len(panel) else pairs.share(ranks.rank, ranks.count)


class _Hidden(TypedDict):
    masks_future_lags: bool
    hidden_history: float
    unknown: float


def _hidden(panel: Panel, config: Config) -> _Hidden:
    """Return what is hidden from a network in training."""
    model = config.model
    embedded = model.embed_series or bool(panel.static)
    return {
        "masks_future_lags": config.masks_future_lags,
        "hidden_history": model.hidden_history,
        "unknown": model.unknown_series if embedded else 0.0,
    }


def _features(panel: Panel, config: Config) -> Features:
    holidays = holidays_of(panel, config.holidays) if config.holidays else None
    _check_alike(panel.freq, config)
    return Features.fit(panel, config.features, panel.ahead, past=panel.past, lags=config.model.lags, holidays=holidays)


def _check_alike(freq: Freq, config: Config) -> None:
    """Raise ConfigError for a profile of days alike without holidays, or with steps that are not those of a day."""
    for profile in profiles_of(config):
        whole_day = freq.kind == "tick" and profile.step * freq.count == DAY
        if profile.alike and not (config.holidays and whole_day):
            raise ConfigError(
                "A profile of days alike needs holidays, and as many steps as a day has.",
                got=f"{profile} with steps of {freq} and {'holidays' if config.holidays else 'no holidays'}",
                hint='give holidays, such as "DE", or leave the profile out.',
            )


def windows_of(panel: Panel, features: Features, config: Config, delays: Mapping[str, int] | None = None) -> Windows:
    """Return the windows of a panel with the inputs that the settings ask for."""
    model = config.model
    return Windows(
        panel,
        features,
        context=config.context,
        horizon=config.horizon,
        lags=model.lags,
        profiles=profiles_of(config),
        scale=model.scale,
        delays=delays,
    )


def learned_from(panel: Panel, config: Config) -> Ints:
    """Return the steps per series before the part that `TrainingSet.of` keeps for validation."""
    train = config.train
    return learned_steps(panel.to_last_value(), config.horizon, train.validation_steps, train.validation_share)


def looks_back(config: Config) -> int:
    """Return how many steps before a window its inputs reach back."""
    return reach(config.model.lags, profiles_of(config), config.horizon)


def profiles_of(config: Config) -> list[Profile]:
    """Return the profiles that the settings ask for."""
    return [Profile.parse(profile) for profile in config.model.profiles]
