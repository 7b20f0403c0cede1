"""Gradients -> weights: optimisers, schedules, clipping, early stopping, and the moving average of the weights.

The state of an optimiser and of an average is a dict of tensors that restores it bit for bit, without pickle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

Schedule = Callable[[float], float]


class BertAdam(torch.optim.Optimizer):
    """Adam without bias correction, with gradients clipped per tensor and decoupled weight decay."""

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, clip: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-6, "clip": clip, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        # Operations on lists of tensors replace about a thousand small calls, which took 1 % of a training step.
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            for weight in weights:
                if not self.state[weight]:
                    self.state[weight]["exp_avg"] = torch.zeros_like(weight)
                    self.state[weight]["exp_avg_sq"] = torch.zeros_like(weight)
            means, squares = ([self.state[weight][key] for weight in weights] for key in ("exp_avg", "exp_avg_sq"))
            gradients = [cast("Tensor", weight.grad) for weight in weights]
            # A clamped ratio instead of a branch on the norm avoids waiting for a GPU.
            norms = torch._foreach_add(torch._foreach_norm(gradients), 1e-12)
            clipped = torch._foreach_mul(gradients, [(group["clip"] / norm).clamp(max=1.0) for norm in norms])
            torch._foreach_lerp_(means, clipped, 1 - beta1)
            torch._foreach_mul_(squares, beta2)
            torch._foreach_addcmul_(squares, clipped, clipped, value=1 - beta2)
            roots = torch._foreach_add(torch._foreach_sqrt(squares), group["eps"])
            updates = torch._foreach_div(means, roots)
            if group["weight_decay"] > 0:
                torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
            torch._foreach_sub_(weights, updates, alpha=group["lr"])


def optimiser(
    name: str, model: nn.Module, *, lr: float, weight_decay: float = 0.01, clip: float = 1.0
) -> torch.optim.Optimizer:
    """Return the optimiser of this name over the trainable weights of a model.

    Weight decay applies to tensors of two or more dimensions, hence not to biases and norms; adam has none. `clip`
    bounds the gradient norm per tensor in bertadam; the others leave clipping to `clip_gradients`.
    """
    decay = 0.0 if name == "adam" else weight_decay
    named = [(key, weight) for key, weight in model.named_parameters() if weight.requires_grad]
    groups = [
        {"params": [pair for pair in named if pair[1].ndim >= 2], "weight_decay": decay},
        {"params": [pair for pair in named if pair[1].ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if name == "bertadam":
        return BertAdam(groups, lr, clip)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return kind(groups, lr=lr, fused=True)


def optimiser_state(optim: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the moments themselves, not copies, named "<weight>.<moment>"."""
    return {
        f"{name}.{moment}": tensor
        for name, weight in _named_weights(optim)
        for moment, tensor in optim.state.get(weight, {}).items()
    }


def optimiser_layout(optim: torch.optim.Optimizer, names: Iterable[str]) -> dict[str, Tensor]:
    """Return tensors with the names, shapes and types that a state with these names must have.

    A weight has all moments of its optimiser, or none if it never had a gradient.
    """
    moments = {"exp_avg", "exp_avg_sq"} | (set() if isinstance(optim, BertAdam) else {"step"})
    count, given = torch.empty(()), set(names)
    return {
        f"{name}.{moment}": count if moment == "step" else weight.detach()
        for name, weight in _named_weights(optim)
        if f"{name}.exp_avg" in given
        for moment in sorted(moments)
    }


def restore_optimiser(optim: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Set the moments to those of `optimiser_state`; the settings stay those of this optimiser."""
    memory: dict[int, dict[str, Tensor]] = {}
    numbers = {name: number for number, (name, _) in enumerate(_named_weights(optim))}
    for key, tensor in tensors.items():
        name, moment = key.rsplit(".", 1)
        memory.setdefault(numbers[name], {})[moment] = tensor.clone()
    optim.load_state_dict({"state": memory, "param_groups": optim.state_dict()["param_groups"]})


def _named_weights(optim: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    for group in optim.param_groups:
        yield from zip(group["param_names"], group["params"], strict=True)


def constant(progress: float) -> float:  # noqa: ARG001 - a schedule is a function of progress
    """Return 1."""
    return 1.0


def warmup_decay(progress: float, warmup: float = 0.1) -> float:
    """Rise linearly from 0 to 1 over the first `warmup` of the run, then fall linearly to 0 at its end."""
    up = progress / warmup if warmup > 0 else 1.0
    return max(0.0, min(up, (1 - progress) / (1 - warmup)))


def one_cycle(progress: float, warmup: float = 0.3, first: float = 0.04, last: float = 4e-6) -> float:
    """Rise along half a cosine from `first` to 1 over the first `warmup` of the run, then fall along one to `last`."""
    if progress < warmup:
        start, end, way = first, 1.0, progress / warmup
    else:
        start, end, way = 1.0, last, min(1.0, (progress - warmup) / (1 - warmup))
    return end + (start - end) * (1 + math.cos(math.pi * way)) / 2


SCHEDULES: dict[str, Schedule] = {"constant": constant, "warmup-decay": warmup_decay, "one-cycle": one_cycle}
"""Progress of the run (0 to 1) -> factor of the learning rate."""


def progress_of(step: int, total: int) -> float:
    """Return the middle of step `step` (from 0) of `total`, so that neither the first nor the last has rate 0."""
    return (step + 0.5) / total


def set_rate(optim: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all groups."""
    for group in optim.param_groups:
        group["lr"] = rate


def clip_gradients(weights: Iterable[Tensor], limit: float) -> float:
    """Scale all gradients together to a norm of at most `limit`; return the norm before.

    Gradients whose norm is not finite are left as they are; the loop then stops before the weights change.
    """
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = float(nn.utils.get_total_norm(gradients))
    if math.isfinite(norm) and norm > limit:
        torch._foreach_mul_(gradients, limit / norm)
    return norm


class EarlyStopping:
    """Stops when the validation loss has not improved in `patience` validations."""

    def __init__(self, patience: int) -> None:
        self.patience, self.validations, self.best_validation = patience, 0, 0
        self.best: float | None = None

    def update(self, loss: float) -> bool:
        """Count a validation; return True if its loss is the best so far, which NaN never is."""
        self.validations += 1
        improved = not math.isnan(loss) and (self.best is None or loss < self.best)
        if improved:
            self.best, self.best_validation = loss, self.validations
        return improved

    @property
    def stop(self) -> bool:
        """True if training should stop."""
        return self.validations - self.best_validation >= self.patience


_TENTH = 10


class WeightAverage:
    """Exponential moving average of the weights.

    Early in a run it reaches back over only a tenth of the steps so far, so that the initial weights do not count:
    after one update it is the weights themselves.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self._weights = dict(model.named_parameters())
        self.average = {name: weight.detach().clone() for name, weight in self._weights.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take the current weights into the average."""
        self.updates += 1
        share = max(1 - self.decay, _TENTH / (self.updates + _TENTH - 1))
        torch._foreach_lerp_(list(self.average.values()), list(self._weights.values()), share)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Give the model the averaged weights inside the block, and its own again, bit for bit, after it."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, weight in self._weights.items():
            own = weight.clone()
            weight.copy_(self.average[name])
            self.average[name].copy_(own)

    @torch.no_grad()
    def restore(self, average: Mapping[str, Tensor], updates: int) -> None:
        """Set the average to one saved after so many updates."""
        self.updates = updates
        for name, tensor in average.items():
            self.average[name].copy_(tensor)
