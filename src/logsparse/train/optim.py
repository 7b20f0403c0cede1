"""Gradients -> weights: optimisers, schedules, clipping, early stopping, and the moving average of the weights.

Whatever has a memory gives it as (tensors, JSON values) and takes it back bit for bit, so that a checkpoint
needs no pickle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from logsparse.errors import ConfigError, DataError

State = tuple[dict[str, Tensor], dict[str, Any]]
Schedule = Callable[[float], float]
OPTIMISERS = ("adam", "adamw", "bertadam")


class BertAdam(torch.optim.Optimizer):
    """Adam without bias correction, gradients clipped tensor by tensor, weight decay beside the gradient."""

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, clip: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-6, "clip": clip, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if closure is not None:
            raise TypeError("BertAdam takes no closure: compute the gradients before the step.")
        # Lists of tensors instead of one after the other: a thousand small calls took a hundredth of a step.
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
            # A clamped ratio instead of a branch on the norm: a GPU need not be waited for.
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
    name: str, model: nn.Module, *, lr: float, weight_decay: float | None = None, clip: float = 1.0
) -> torch.optim.Optimizer:
    """The optimiser of this name over the model's trainable weights.

    Weight decay (0.01 unless given) spares biases and norms: the tensors of fewer than two dimensions. `clip` is the
    largest norm of a tensor's gradient in bertadam; the others leave clipping to `clip_gradients`.
    """
    if name not in OPTIMISERS:
        raise ConfigError(
            "The optimiser must be a known one.",
            got=f'"{name}"',
            hint=f"choose one of {', '.join(OPTIMISERS)}.",
        )
    if name == "adam" and weight_decay:
        raise ConfigError(
            "Adam goes without weight decay.", got=f"weight_decay={weight_decay:g}", hint='choose "adamw".'
        )
    decay = 0.0 if name == "adam" else 0.01 if weight_decay is None else weight_decay
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


def optimiser_state(optim: torch.optim.Optimizer) -> State:
    """Copies of the moments, named "<weight>.<moment>", and the settings of each group."""
    packed = optim.state_dict()
    names = _weight_names(packed["param_groups"])
    tensors = {
        f"{names[index]}.{key}": value.clone()
        for index, memory in packed["state"].items()
        for key, value in memory.items()
    }
    groups = [{**group, "betas": list(group["betas"])} for group in packed["param_groups"]]
    return tensors, {"kind": type(optim).__name__, "groups": groups}


def restore_optimiser(optim: torch.optim.Optimizer, state: State) -> None:
    """Put an exported memory back; it must come from the same optimiser over the same weights."""
    tensors, values = state
    names = _weight_names(optim.param_groups)
    weights = dict(zip(names, (weight for group in optim.param_groups for weight in group["params"]), strict=True))
    memory: dict[int, dict[str, Tensor]] = {}
    same = values["kind"] == type(optim).__name__ and _weight_names(values["groups"]) == names
    for key, tensor in tensors.items():
        name, moment = key.rsplit(".", 1)
        # A step count has no dimensions; every other moment has the shape of its weight.
        same = same and name in weights and (tensor.ndim == 0 or tensor.shape == weights[name].shape)
        if not same:
            break
        memory.setdefault(names.index(name), {})[moment] = tensor.clone()
    if not same:
        raise DataError(
            f"A saved optimiser must be a {type(optim).__name__} over the weights of this model.",
            got=f"a {values['kind']} over other names or shapes",
            hint="resume with the settings the run was started with.",
        )
    groups = [{**group, "betas": tuple(group["betas"])} for group in values["groups"]]
    optim.load_state_dict({"state": memory, "param_groups": groups})


def _weight_names(groups: Iterable[Mapping[str, Any]]) -> list[str]:
    return [name for group in groups for name in group["param_names"]]


def constant(progress: float) -> float:  # noqa: ARG001 - a schedule is any function of progress
    return 1.0


def warmup_decay(progress: float, warmup: float = 0.1) -> float:
    """Straight up over the first `warmup` of the run, then straight down to 0 at its end, without a jump."""
    up = progress / warmup if warmup > 0 else 1.0
    return max(0.0, min(up, (1 - progress) / (1 - warmup)))


def one_cycle(progress: float, warmup: float = 0.3, first: float = 0.04, last: float = 4e-6) -> float:
    """Half a cosine up from `first` to 1 over the first `warmup` of the run, then one down to `last`."""
    if progress < warmup:
        start, end, way = first, 1.0, progress / warmup
    else:
        start, end, way = 1.0, last, min(1.0, (progress - warmup) / (1 - warmup))
    return end + (start - end) * (1 + math.cos(math.pi * way)) / 2


SCHEDULES: dict[str, Schedule] = {"constant": constant, "warmup-decay": warmup_decay, "one-cycle": one_cycle}


def schedule(name: str) -> Schedule:
    """Progress of the run (0 to 1) -> factor of the learning rate."""
    if name not in SCHEDULES:
        raise ConfigError(
            "The schedule must be a known one.",
            got=f'"{name}"',
            hint=f"choose one of {', '.join(SCHEDULES)}.",
        )
    return SCHEDULES[name]


def progress_of(step: int, total: int) -> float:
    """The middle of step `step` (from 0) of `total`: neither the first nor the last is wasted at rate 0."""
    return (step + 0.5) / total


def set_rate(optim: torch.optim.Optimizer, rate: float) -> None:
    for group in optim.param_groups:
        group["lr"] = rate


def clip_gradients(weights: Iterable[Tensor], limit: float) -> float:
    """Scale all gradients together to a norm of at most `limit`; the norm before is returned.

    A norm that is not finite leaves the gradients alone: the loop sees it and stops with the weights intact.
    """
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = float(nn.utils.get_total_norm(gradients))
    if math.isfinite(norm) and norm > limit:
        torch._foreach_mul_(gradients, limit / norm)
    return norm


class EarlyStopping:
    """Says when a loss has not improved for `patience` looks; the lowest value and its look are kept."""

    def __init__(self, patience: int) -> None:
        if patience < 1:
            raise ConfigError(
                "The patience of early stopping must be at least 1.",
                got=f"{patience}",
                hint="leave early stopping out to train to the end.",
            )
        self.patience, self.looks = patience, 0
        self.best: float | None = None
        self.best_look = 0

    def update(self, loss: float) -> bool:
        """True when this is the best loss so far; NaN never is."""
        self.looks += 1
        improved = not math.isnan(loss) and (self.best is None or loss < self.best)
        if improved:
            self.best, self.best_look = loss, self.looks
        return improved

    @property
    def stop(self) -> bool:
        return self.looks - self.best_look >= self.patience

    def state(self) -> State:
        keys = ("patience", "looks", "best", "best_look")
        return {}, {key: getattr(self, key) for key in keys}

    def restore(self, state: State) -> None:
        _, values = state
        self.patience, self.looks = values["patience"], values["looks"]
        self.best, self.best_look = values["best"], values["best_look"]


_TENTH = 10


class WeightAverage:
    """After one update it is the weights themselves; early on it reaches back over a tenth of the steps only.

    So the start has no part in it, and weights of a short run are not those of its beginning.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise ConfigError(
                "The decay of a weight average must be at least 0 and below 1.",
                got=f"{decay:g}",
                hint="use 0.999, or less for runs under 1000 steps.",
            )
        self.decay, self.updates = decay, 0
        self._weights = dict(model.named_parameters())
        self.average = {name: weight.detach().clone() for name, weight in self._weights.items()}

    @torch.no_grad()
    def update(self) -> None:
        self.updates += 1
        share = max(1 - self.decay, _TENTH / (self.updates + _TENTH - 1))
        torch._foreach_lerp_(list(self.average.values()), list(self._weights.values()), share)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own again, bit for bit."""
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

    def state(self) -> State:
        copies = {name: tensor.clone() for name, tensor in self.average.items()}
        return copies, {"decay": self.decay, "updates": self.updates}

    @torch.no_grad()
    def restore(self, state: State) -> None:
        tensors, values = state
        mine = {name: tensor.shape for name, tensor in self.average.items()}
        if mine != {name: tensor.shape for name, tensor in tensors.items()}:
            raise DataError(
                "A saved weight average must have the weights of this model.",
                got="other names or shapes",
                hint="resume with the settings the run was started with.",
            )
        self.decay, self.updates = values["decay"], values["updates"]
        for name, tensor in tensors.items():
            self.average[name].copy_(tensor)
