"""Network + windows whose outcome is known -> how the ranks of two steps of a forecast go together, by their distance.

A network that tells all steps at once tells each by itself: whether a day that begins low stays low is in none of its
laws. In windows held back from it, it shows: where the truth stood within the law of each step.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from logsparse.data.candidates import Pairs
from logsparse.data.panel import Floats
from logsparse.data.windows import Windows
from logsparse.model.network import Network
from logsparse.model.sample import Sampling, sample

# W windows, H horizon, Q quantile levels

WINDOWS = 256
"""So many tell enough."""
_LEVELS = tuple(n / 40 for n in range(1, 40))
# Fewer pairs of steps than this tell nothing: they are taken as they come, apart from each other.
_FEWEST = 30


def together(network: Network, windows: Windows, pairs: Pairs) -> Floats | None:
    """(H,): the correlation of normal scores of steps 0, 1, ..., H - 1 apart; none where paths are joint anyway."""
    if not windows.blind:
        return None
    if len(pairs) == 0:
        return _alone(windows.horizon)
    ask = Sampling(paths=1, levels=_LEVELS, method="direct", seed=0, keep_paths=False)
    quantiles_WQH = sample(network, windows, pairs, ask).quantiles_WQH
    batch = windows(pairs.series_B, pairs.start_B)
    truth_W1H = (batch.values_BL + batch.centre_B[:, None])[:, None, windows.context :].numpy()
    observed_WH = batch.observed_BL[:, windows.context :].numpy()
    # Ties, such as nights, stand in the middle of the levels that they equal.
    below_WH = ((quantiles_WQH < truth_W1H).sum(1) + (quantiles_WQH <= truth_W1H).sum(1)) / 2
    share_WH = (below_WH + 0.5) / (len(_LEVELS) + 1)
    return correlations(torch.special.ndtri(torch.from_numpy(share_WH)).numpy(), observed_WH)


def correlations(score_WH: Floats, observed_WH: NDArray[np.bool_]) -> Floats:
    """Of scores around 0 that are `distance` steps apart, where both were observed."""
    horizon = score_WH.shape[1]
    score_WH, found = np.where(observed_WH, score_WH, 0), _alone(horizon)
    for distance in range(1, horizon):
        near, far = slice(0, horizon - distance), slice(distance, horizon)
        both_WH = observed_WH[:, near] & observed_WH[:, far]
        sizes = (score_WH[:, near] ** 2 * both_WH).sum() * (score_WH[:, far] ** 2 * both_WH).sum()
        if both_WH.sum() >= _FEWEST and sizes > 0:
            found[distance] = (score_WH[:, near] * score_WH[:, far]).sum() / np.sqrt(sizes)
    return found


def _alone(horizon: int) -> Floats:
    return np.array([1.0] + [0.0] * (horizon - 1), np.float32)
