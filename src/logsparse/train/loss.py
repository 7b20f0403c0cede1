"""Batch and network -> sums of losses over the observed targets, which ranks add up before they divide."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from logsparse.data.windows import Batch
from logsparse.model.network import Network

# B windows, L positions of a window, H horizon, P parameters, Q quantile levels

# Of the quantile loss of a validation.
_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def nll_sum(
    forward: nn.Module, network: Network, batch: Batch, loss_on: str, generator: Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Return the sum of the negative log-likelihood over the observed targets, and their number.

    Both are weighted as `loss_on` says. `forward` is the network itself, or the network as the ranks share it.
    """
    begin = batch.context if loss_on == "horizon" else 0
    log_density_BL = network.log_density(forward(batch, generator), batch, begin)
    counted_BL = batch.observed_BL[:, begin:]
    if loss_on == "both":
        weight_L = torch.ones(len(counted_BL[0]), device=log_density_BL.device)
        weight_L[batch.context :] = batch.context / batch.horizon
        log_density_BL, counted_BL = log_density_BL * weight_L, counted_BL * weight_L
    return -log_density_BL.sum(), counted_BL.sum()


def validation_sums(network: Network, batch: Batch) -> Tensor:
    """Return four sums over the observed targets of the horizon.

    They are the negative log-likelihood, the number of targets, twice the mean quantile loss, and the sizes of targets.
    """
    now, raw_BLP = batch.context, network(batch)
    density_BH = network.log_density(raw_BLP, batch, now)
    level_Q = torch.tensor(_LEVELS, device=raw_BLP.device)
    target_BH, observed_BH = batch.values_BL[:, now:], batch.observed_BL[:, now:]
    error_BHQ = target_BH[..., None] - network.quantiles(raw_BLP, batch, now, _LEVELS)
    loss_BH = 2 * torch.maximum(level_Q * error_BHQ, (level_Q - 1) * error_BHQ).mean(-1)
    size_BH = (target_BH + batch.centre_B[:, None]).abs()
    loss, size = (torch.where(observed_BH, part, 0).sum() for part in (loss_BH, size_BH))
    return torch.stack([part.double() for part in (-density_BH.sum(), observed_BH.sum(), loss, size)])
