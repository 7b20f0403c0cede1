"""Network + windows of any number -> their sample paths, means and quantiles, in memory that is bounded."""

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

# W windows, U series, B windows of a batch, N sample paths, H horizon, Q quantile levels, X anything

# Paths decoded side by side: enough for large matrix products, few enough to stay in the caches (docs/LOG.md).
ROWS = 512
# Windows whose history is read side by side, for the same reason.
WINDOWS = 256
# What the caches of the windows decoded side by side may take.
BYTES = 512 * 2**20


@dataclass(frozen=True)
class Sampled:
    """Of every window asked for; `paths_WNH` where they were to be kept."""

    mean_WH: Floats
    quantiles_WQH: Floats
    paths_WNH: Floats | None


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to draw."""

    paths: int
    levels: Sequence[float]
    method: str
    seed: int
    keep_paths: bool


def sample(
    network: Network, windows: Windows, pairs: Pairs, ask: Sampling, *, report: Callable[[int], None] | None = None
) -> Sampled:
    """Sample each window independently of its neighbours: the work is split by memory only.

    `report` is called with the number of windows done.
    """
    horizon = windows.horizon
    found = Sampled(
        np.empty((len(pairs), horizon), np.float32),
        np.empty((len(pairs), len(ask.levels), horizon), np.float32),
        np.empty((len(pairs), ask.paths, horizon), np.float32) if ask.keep_paths else None,
    )
    device = next(network.parameters()).device
    size, parts = _split(network, windows, max(1, network.paths_read(ask.paths, ask.method)))
    key_W = window_keys(windows.panel, pairs)
    # Batch after batch needs the same memory; fresh pages would take a fifth of the time. A single one leaves it alone.
    with kept_memory() if len(pairs) > size else nullcontext():
        for begin in range(0, len(pairs), size):
            part = slice(begin, begin + size)
            batch = windows(pairs.series_B[part], pairs.start_B[part]).to(device)
            uniform_BNH = draws(ask.seed, key_W[part], ask.paths, horizon).to(device)
            decoded = _joined(
                [network.forecast(batch, u, ask.levels, ask.method) for u in uniform_BNH.tensor_split(parts, 1)]
            )
            centre_B1 = batch.centre_B[:, None]
            found.mean_WH[part] = (decoded.mean_BH + centre_B1).cpu().numpy()
            found.quantiles_WQH[part] = (decoded.quantiles_BQH + centre_B1[:, None]).cpu().numpy()
            if found.paths_WNH is not None:
                found.paths_WNH[part] = (decoded.paths_BNH + centre_B1[:, None]).cpu().numpy()
            if report is not None:
                report(len(batch))
    return found


def _split(network: Network, windows: Windows, paths: int) -> tuple[int, int]:
    """Windows decoded side by side, and parts into which the paths of one are split if they are too many for it."""
    bytes_a_path = 4 * network.memory_width * windows.horizon
    most = max(1, min(ROWS, BYTES // bytes_a_path))
    bytes_a_window = 4 * network.memory_width * windows.context + min(paths, most) * bytes_a_path
    return max(1, min(most // paths, BYTES // bytes_a_window, WINDOWS)), -(-paths // most)


def _joined(parts: Sequence[Decoded]) -> Decoded:
    """Parts of one window's paths. Of so many paths each, the mean of their quantiles is as good as theirs together."""
    if len(parts) == 1:
        return parts[0]
    share = [part.paths_BNH.shape[1] / sum(part.paths_BNH.shape[1] for part in parts) for part in parts]
    return Decoded(
        torch.cat([part.paths_BNH for part in parts], dim=1),
        sum((part.mean_BH * s for part, s in zip(parts, share, strict=True)), torch.tensor(0.0)),
        sum((part.quantiles_BQH * s for part, s in zip(parts, share, strict=True)), torch.tensor(0.0)),
    )


def window_keys(panel: Panel, pairs: Pairs) -> Keys:
    """A number for each series id and time of its forecast start, the same in every panel that has them."""
    series_U, which_W = np.unique(pairs.series_B, return_inverse=True)
    names = [repr(panel.ids[series]).encode() for series in series_U.tolist()]
    name_U = np.array([int.from_bytes(blake2b(name, digest_size=8).digest(), "little") for name in names], np.uint64)
    time_W = panel.freq.add(panel.starts[pairs.series_B], pairs.start_B)
    # Overflow is welcome; `draws` mixes the bits, so that neighbouring times are far apart.
    return np.asarray(name_U[which_W] + time_W.astype(np.uint64))
