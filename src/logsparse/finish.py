"""Forecasts of a network -> what the settings ask for: blended with simple rules, intervals measured and widened."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from logsparse.calibration import LEVELS, Calibration, came, measure
from logsparse.combine import average, joint_paths, middles, path_quantiles
from logsparse.config import Config
from logsparse.data.features import Features
from logsparse.data.panel import Floats, Panel
from logsparse.data.sampler import Pairs
from logsparse.model.decode import Sampled, Sampling, sample
from logsparse.model.network import Network
from logsparse.simple import REACH, simple_forecasts
from logsparse.train.batches import looks_back
from logsparse.train.loop import Training

# W windows, H steps of the horizon, Q quantile levels, N sample paths, X any

# Most windows on which the coverage of intervals is measured; with simple rules, which are computed one by one.
_MEASURED, _MEASURED_SIMPLE = 256, 64


def measured(first: Training, config: Config, seed: int) -> Calibration | None:
    """Compare forecasts of windows that were held back with what came, as `train.calibrate` asks."""
    windows = first.data.validation_windows
    pairs = first.data.validation_pairs(_MEASURED_SIMPLE if config.blend else _MEASURED)
    if config.train.calibrate == "off" or len(pairs) == 0:
        return None
    paths = first.network.paths_needed(LEVELS, config.method)
    ask = Sampling(paths=paths, levels=LEVELS, method=config.method, seed=seed, keep_paths=False)
    panel, here_W = windows.panel, pairs.held_by(windows.panel)
    here = pairs.at(here_W)
    sampled, features = sample(first.network, windows, here, ask), first.data.features
    found = blended(sampled, panel, here, LEVELS, config, first.network, features)
    parts = panel.everywhere((here_W, came(panel, here, config.horizon), found.quantiles_WQH))
    order_W, truth_WH, quantiles_WQH = (np.concatenate(part) for part in zip(*parts, strict=True))
    # Series may begin and end at any time: counted from their end, cutoffs never seem further apart than they are.
    before_W = panel.lengths[pairs.series_B] - pairs.start_B
    return measure(truth_WH, quantiles_WQH, before_W[order_W], widen=config.train.calibrate == "widen")


def finished(
    found: Sampled,
    panel: Panel,
    pairs: Pairs,
    asked: tuple[float, ...],
    config: Config,
    network: Network,
    features: Features,
    calibration: Calibration | None,
) -> Sampled:
    """Return the forecasts of a network, blended with simple rules and widened as the settings ask."""
    levels = asked if calibration is None else calibration.levels_read(asked)
    found = blended(found, panel, pairs, levels, config, network, features)
    return found if calibration is None else widened(calibration, found, asked, network)


def memory(config: Config) -> int:
    """Return how many last steps per series a forecast needs."""
    return max(config.context + looks_back(config), REACH if config.blend else 0)


def blended(
    found: Sampled,
    panel: Panel,
    pairs: Pairs,
    levels: tuple[float, ...],
    config: Config,
    network: Network,
    features: Features,
) -> Sampled:
    """Return forecasts of which `config.blend` comes from simple rules.

    All from the network without a history, and on holidays, which the rules do not know.
    """
    if config.blend == 0:
        return found
    step_WH = pairs.start_B[:, None] + np.arange(config.horizon)
    alone_WH = features.special(panel, pairs.series_B, step_WH) & (config.blend < 1)
    lowest, integer = _support(network)

    def mixed(learned_WX: Floats, simple_WX: Floats, *, whole_numbers: bool) -> Floats:
        mixed_WX: Floats = average([learned_WX, simple_WX], [1 - config.blend, config.blend])
        mixed_WX = np.floor(mixed_WX + np.float32(0.5)) if whole_numbers else mixed_WX
        alone_WX = alone_WH if mixed_WX.ndim == alone_WH.ndim else alone_WH[:, None]
        return np.where(np.isnan(simple_WX) | alone_WX, learned_WX, np.maximum(mixed_WX, np.float32(lowest)))

    mean_WH, quantiles_WQH = simple_forecasts(panel, pairs, config.horizon, levels)
    mean_WH = mixed(found.mean_WH, mean_WH, whole_numbers=False)
    quantiles_WQH = mixed(found.quantiles_WQH, quantiles_WQH, whole_numbers=integer)
    if (paths_WNH := found.paths_WNH) is None:
        return Sampled(mean_WH, quantiles_WQH, None)
    count = paths_WNH.shape[1]
    _, simple_WNH = simple_forecasts(panel, pairs, config.horizon, middles(count))
    combined_WNH = mixed(path_quantiles(paths_WNH, count), simple_WNH, whole_numbers=integer)
    return Sampled(mean_WH, quantiles_WQH, joint_paths([paths_WNH], [1.0], combined_WNH))


def _support(network: Network) -> tuple[float, bool]:
    """Return the lowest possible value, and whether values are whole numbers."""
    lowest = network.config.lowest
    return max(network.likelihood.lowest, -math.inf if lowest is None else lowest), network.likelihood.integer


def widened(calibration: Calibration, found: Sampled, asked: tuple[float, ...], network: Network) -> Sampled:
    """Return forecasts at the levels asked for, quantiles and paths further from the median; the mean stays."""
    if not calibration.widens:
        return found
    levels, (lowest, integer) = calibration.levels_read(asked), _support(network)
    wider = partial(
        calibration.widened,
        median_WH=found.quantiles_WQH[:, levels.index(0.5)],
        lowest=lowest,
        integer=integer,
    )
    quantiles_WQH = found.quantiles_WQH[:, [levels.index(level) for level in asked]]
    paths_WNH = None if found.paths_WNH is None else wider(found.paths_WNH)
    return Sampled(found.mean_WH, wider(quantiles_WQH), paths_WNH)
