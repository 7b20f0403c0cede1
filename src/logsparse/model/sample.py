"""Network + any number of windows -> their sample paths, means and quantiles, in bounded memory.

`network.forecast` does the work of a batch; model/decode.py has it for step-by-step networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch

from logsparse.data.panel import Floats, Panel
from logsparse.data.sampler import Pairs
from logsparse.data.windows import Windows
from logsparse.model.decode import Keys, draws
from logsparse.model.network import Decoded, Network
from logsparse.process import kept_memory

# Shapes: W windows, U series, B windows of a batch, N sample paths, H horizon, Q quantile levels.

# Paths decoded together: enough for large matrix products, few enough to stay in the CPU caches (docs/LOG.md).
ROWS = 512
# Windows decoded together, for the same reason.
WINDOWS = 256
# Limit on the keys, values and states of the windows decoded together.
BYTES = 512 * 2**20


@dataclass(frozen=True)
class Sampled:
    """Forecasts of all windows; `paths_WNH` is None unless `Sampling.keep_paths`."""

    mean_WH: Floats
    quantiles_WQH: Floats
    paths_WNH: Floats | None


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings of `sample`: number of paths, quantile levels, decoding method, seed."""

    paths: int
    levels: Sequence[float]
    method: str
    seed: int
    keep_paths: bool


def sample(
    network: Network, windows: Windows, pairs: Pairs, sampling: Sampling, *, report: Callable[[int], None] | None = None
) -> Sampled:
    """Forecast every window; the result for a window does not depend on the others.

    `report` is called with the number of windows of each finished batch.
    """
    horizon = windows.horizon
    result = Sampled(
        np.empty((len(pairs), horizon), np.float32),
        np.empty((len(pairs), len(sampling.levels), horizon), np.float32),
        np.empty((len(pairs), sampling.paths, horizon), np.float32) if sampling.keep_paths else None,
    )
    device = next(network.parameters()).device
    size, parts = _split(network, windows, max(1, network.paths_read(sampling.paths, sampling.method)))
    key_W = window_keys(windows.panel, pairs)
    # Every batch needs the same memory; returning it in between would cost a fifth of the time.
    with kept_memory() if len(pairs) > size else nullcontext():
        for begin in range(0, len(pairs), size):
            part = slice(begin, begin + size)
            batch = windows(pairs.series_B[part], pairs.start_B[part]).to(device)
            uniform_BNH = draws(sampling.seed, key_W[part], sampling.paths, horizon).to(device)
            decoded = _joined(
                [
                    network.forecast(batch, u, sampling.levels, sampling.method)
                    for u in uniform_BNH.tensor_split(parts, 1)
                ]
            )
            centre_B1 = batch.centre_B[:, None]
            result.mean_WH[part] = (decoded.mean_BH + centre_B1).cpu().numpy()
            result.quantiles_WQH[part] = (decoded.quantiles_BQH + centre_B1[:, None]).cpu().numpy()
            if result.paths_WNH is not None:
                result.paths_WNH[part] = (decoded.paths_BNH + centre_B1[:, None]).cpu().numpy()
            if report is not None:
                report(len(batch))
    return result


def _split(network: Network, windows: Windows, paths: int) -> tuple[int, int]:
    """Return the number of windows decoded together, and into how many parts the paths of a window are split."""
    bytes_per_path = 4 * network.memory_width * windows.horizon
    most = max(1, min(ROWS, BYTES // bytes_per_path))
    bytes_per_window = 4 * network.memory_width * windows.context + min(paths, most) * bytes_per_path
    return max(1, min(most // paths, BYTES // bytes_per_window, WINDOWS)), -(-paths // most)


def _joined(parts: Sequence[Decoded]) -> Decoded:
    """Join parts of the paths; means and quantiles are averages, weighted by the number of paths."""
    if len(parts) == 1:
        return parts[0]
    share = [part.paths_BNH.shape[1] / sum(part.paths_BNH.shape[1] for part in parts) for part in parts]
    return Decoded(
        torch.cat([part.paths_BNH for part in parts], dim=1),
        sum((part.mean_BH * s for part, s in zip(parts, share, strict=True)), torch.tensor(0.0)),
        sum((part.quantiles_BQH * s for part, s in zip(parts, share, strict=True)), torch.tensor(0.0)),
    )


def window_keys(panel: Panel, pairs: Pairs) -> Keys:
    """Return a number per series id and forecast start, the same in every panel."""
    series_U, which_W = np.unique(pairs.series_B, return_inverse=True)
    names = [repr(panel.ids[series]).encode() for series in series_U.tolist()]
    name_U = np.array([int.from_bytes(blake2b(name, digest_size=8).digest(), "little") for name in names], np.uint64)
    time_W = panel.freq.add(panel.starts[pairs.series_B], pairs.start_B)
    # Overflow is intended; `draws` hashes the sum.
    return np.asarray(name_U[which_W] + time_W.astype(np.uint64))
