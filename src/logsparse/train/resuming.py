"""A checkpoint + the parts of a training -> the tensors of each part, all checked; a training's folder -> its lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from logsparse.errors import DataError
from logsparse.facts import entries, number, require, whole_number
from logsparse.storage import make_folder, turn, writing
from logsparse.train.average import WeightAverage
from logsparse.train.checkpoint import Checkpoint
from logsparse.train.optim import BertAdam, EarlyStopping, optimiser_state
from logsparse.train.sealed import check_tensors

PARTS = ("weights", "best", "optimiser", "average")


def seed_folder(folder: Path, seed: int) -> Path:
    """Where the checkpoints of one seed are."""
    return folder / f"seed-{seed}"


@contextmanager
def alone(folder: Path | None, seeds: Iterable[int]) -> Iterator[None]:
    """For the time of the block no other training writes checkpoints of these seeds; a killed one lets go of them."""
    with ExitStack() as held:
        for place in (seed_folder(folder, seed) for seed in seeds if folder):
            with writing("The folder of a training", place):
                make_folder(place)
            if not held.enter_context(turn(place, wait=False)):
                raise DataError(
                    "A folder must have one training at a time.",
                    got=f"another that is at work in {place}",
                    hint="wait until it has ended, or give another folder.",
                )
        yield


def under(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Named as those of this part."""
    return {f"{part}/{name}": tensor for name, tensor in tensors.items()}


def checked_parts(
    checkpoint: Checkpoint,
    network: nn.Module,
    optim: torch.optim.Optimizer,
    average: WeightAverage | None,
    stopping: EarlyStopping,
    steps: int,
) -> dict[str, dict[str, Tensor]]:
    """The tensors by part; an UnfitError names what cannot be of this training."""
    state, tensors = checkpoint.state, checkpoint.tensors
    entries("state", state, "step", "story", "optimiser", "average", "stopping")
    step = whole_number("state/step", state["step"], 1, steps)
    found: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        require(name, f"of {', '.join(PARTS)}", part, holds=part in PARTS)
        found[part][rest] = tensor
    for part in ("weights", "best"):
        check_tensors(network.state_dict(), found[part], part)
    check_tensors(average.average if average else {}, found["average"], "average")
    if average:
        counts = entries("state/average", state["average"], "decay", "updates")
        number("state/average/decay", counts["decay"], average.decay, average.decay)
        whole_number("state/average/updates", counts["updates"], step, step)
    _check_moments(found["optimiser"], network, optim, step)
    _check_settings(state["optimiser"], optim)
    _check_stopping(state["stopping"], stopping)
    return found


def _check_moments(found: Mapping[str, Tensor], network: nn.Module, optim: torch.optim.Optimizer, step: int) -> None:
    """A weight has all moments of its optimiser, or none if it never had a gradient."""
    moments = ("exp_avg", "exp_avg_sq") if isinstance(optim, BertAdam) else ("exp_avg", "exp_avg_sq", "step")
    weights = {name: weight for name, weight in network.named_parameters() if f"{name}.exp_avg" in found}
    count = torch.empty((), dtype=torch.float32)
    needed = {
        f"{name}.{key}": count if key == "step" else weights[name].detach() for name in weights for key in moments
    }
    check_tensors(needed, found, "optimiser")
    for name, tensor in found.items():
        if name.endswith(".exp_avg_sq"):
            require(f"optimiser {name}", "at least 0", "less", holds=bool((tensor >= 0).all()))
        if name.endswith(".step"):
            number(f"optimiser {name}", tensor.item(), 1, step)


def _check_settings(found: Any, optim: torch.optim.Optimizer) -> None:
    """All settings but the learning rate, which is set anew at every step, must be those of this training."""
    entries("state/optimiser", found, "kind", "groups")
    _, own = optimiser_state(optim)

    def told(values: Any) -> Any:
        return [{key: value for key, value in group.items() if key != "lr"} for group in values["groups"]]

    same = isinstance(found["groups"], list) and all(isinstance(group, dict) for group in found["groups"])
    same = same and found["kind"] == own["kind"] and told(found) == told(own)
    require("state/optimiser", "the settings of this training", found["kind"], holds=same)
    for group in found["groups"]:
        number("state/optimiser/lr", group.get("lr"), 0)


def _check_stopping(found: Any, own: EarlyStopping) -> None:
    entries("state/stopping", found, "patience", "looks", "best", "best_look")
    whole_number("state/stopping/patience", found["patience"], own.patience, own.patience)
    looks = whole_number("state/stopping/looks", found["looks"], 1, 2**62)
    whole_number("state/stopping/best_look", found["best_look"], 0, looks)
    if found["best"] is not None:
        number("state/stopping/best", found["best"])
