"""Network + windows whose outcome is known -> how far its forecasts must be stretched around their median, by step.

A network says how sure it is on the windows it learned from; ahead of them it is less right than it thinks. On windows
held back from it, the central 80 % of what it says must hold 80 % of what came.
"""

from __future__ import annotations

import numpy as np

from logsparse.data.candidates import Pairs
from logsparse.data.panel import Floats
from logsparse.data.windows import Windows
from logsparse.model.network import Network
from logsparse.model.sample import Sampling, sample

# W windows, H horizon, Q quantile levels

_LEVELS = (0.1, 0.5, 0.9)
# The more sample paths, the sharper the quantiles; these are sharp enough (docs/LOG.md).
_PATHS = 20
# Fewer values than this, around one step of the horizon, tell nothing about it.
_FEWEST = 100
# Beyond so much a network is not too sure, it is wrong, and no factor mends that.
_MOST = 4.0
# Widths below this share of the value are rounding.
_FINE = 1e-5


def stretch(network: Network, windows: Windows, pairs: Pairs, method: str, seed: int) -> Floats | None:
    """(H,) factors, 1 where too little is known; none for counts, whose intervals hold more than they say by nature."""
    horizon = windows.horizon
    if network.likelihood.whole or len(pairs) == 0:
        return None
    ask = Sampling(paths=_PATHS, levels=_LEVELS, method=method, seed=seed, keep_paths=False)
    found = sample(network, windows, pairs, ask)
    batch = windows(pairs.series_B, pairs.start_B)
    truth_WH = (batch.values_BL + batch.centre_B[:, None])[:, windows.context :].numpy()
    low_WH, middle_WH, high_WH = found.quantiles_WQH.transpose(1, 0, 2)
    above_WH = truth_WH >= middle_WH
    width_WH = np.where(above_WH, high_WH - middle_WH, middle_WH - low_WH)
    # A series that never moves may be foreseen to the last digit: its width is no measure of anything.
    told_WH = batch.observed_BL[:, windows.context :].numpy() & (width_WH > _FINE * np.abs(middle_WH))
    away_WH = np.abs(truth_WH - middle_WH) / np.where(told_WH, width_WH, 1)
    near = max(1, horizon // 8)
    factors = [
        _share_of(away_WH[:, part][told_WH[:, part]])
        for part in (slice(max(0, h - near), h + near + 1) for h in range(horizon))
    ]
    return np.array(factors, np.float32)


def _share_of(away: Floats) -> float:
    """The distance, in half intervals, within which so much of the truth lies as the interval promises."""
    if away.size < _FEWEST:
        return 1.0
    return float(np.clip(np.quantile(away, _LEVELS[2] - _LEVELS[0]), 1 / _MOST, _MOST))
