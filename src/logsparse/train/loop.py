"""Network + TrainingSet + TrainConfig -> the network with its best weights, and the history of its training."""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import torch
from torch import Generator, Tensor, nn

from logsparse.config import TrainConfig
from logsparse.errors import DataError, LogsparseError
from logsparse.model.network import Network
from logsparse.pictures import draw_losses
from logsparse.process import Progress, kept_memory
from logsparse.storage import InvalidContentError, whole_number, write_whole
from logsparse.train.batches import Draws, TrainingSet
from logsparse.train.checkpoint import STATE, check_tensors, damaged, differences, exists, identity, load, save
from logsparse.train.distributed import Ranks
from logsparse.train.loss import nll_sum, validation_sums
from logsparse.train.optim import (
    SCHEDULES,
    EarlyStopping,
    WeightAverage,
    clip_gradients,
    optimiser,
    optimiser_layout,
    optimiser_state,
    progress_of,
    restore_optimiser,
    set_rate,
)

if TYPE_CHECKING:
    from logsparse.canvas import Picture

CHECKPOINT, METRICS = "checkpoint", "metrics.jsonl"
INTERRUPTED, _NO_IMPROVEMENT = "interrupted", "no improvement"
# A training that is cut below this share of its steps is not what was planned.
_NEARLY_ALL = 0.9
# Least share of the range of all validation losses by which the last quarter of them improves if it still falls.
_FALLING = 0.01
# Fewer validations show no course.
_FEWEST_VALIDATIONS = 4
# Fewest validations of a training with a given number of steps, as many as the default recipe has.
_VALIDATIONS = 16
_FORMER_CHECKPOINT = "training.json"
LOSSES = ("nll", "validation_nll", "validation_wql")
"""Of a row of the history; models saved by an earlier version lack the last."""
_ROW, _LATER = ("step", "seconds", "nll", "validation_nll"), "validation_wql"
_WORST, _SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Handlers that may be replaced: a handler of the caller stays, and so does an ignored signal.
_USUAL = (signal.SIG_DFL, signal.default_int_handler)


class TrainingError(LogsparseError):
    """Training cannot continue; the last good checkpoint is kept."""


@dataclass
class TrainingHistory:
    """Course of a training, with one row per validation."""

    rows: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    best: float | None = None
    """Lowest validation loss."""
    ended: str = "not ended"
    """Why training ended."""
    planned: int | None = None
    """Number of steps if nothing stops the training; None for a model saved before this was recorded."""
    anneals: bool = True
    """True if the learning rate falls to about 0 at the end, where a falling loss does not ask for more steps."""

    @property
    def steps(self) -> int:
        """Number of steps taken."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @property
    def cut(self) -> bool:
        """True if training ended before its planned steps, for another reason than a loss that did not improve."""
        return self.steps < (self.planned or 0) and not self.ended.startswith(_NO_IMPROVEMENT)

    @property
    def falling(self) -> bool:
        """True if the last validation is the best, and the last quarter of them improved by over 1 % of their range."""
        losses = [row["validation_nll"] for row in self.rows if row["validation_nll"] < _WORST]
        if len(losses) < _FEWEST_VALIDATIONS or losses[-1] > min(losses):
            return False
        before = min(losses[: -(len(losses) // 4)])
        return before - losses[-1] > _FALLING * (max(losses) - losses[-1])

    @property
    def warning(self) -> str | None:
        """One sentence if the training was too short: cut below 90 % of its steps, or ended on a falling loss."""
        taken = f"{self.steps:,} of {self.planned or 0:,} planned steps ({self.ended})"
        if self.cut and self.steps < _NEARLY_ALL * (self.planned or 0):
            course = ", while the validation loss was still falling" if self.falling else ""
            return f"Training took {taken}{course}: forecasts may be poor; train for longer, or plan fewer steps."
        if self.falling and self.planned and (self.cut or not self.anneals):
            return f"Training ended after {taken} while the validation loss was still falling: train for longer."
        return None

    def __repr__(self) -> str:
        planned = f" of {self.planned:_}" if self.cut else ""
        best = "" if self.best is None else f", best validation loss {self.best:.4f}"
        return f"TrainingHistory({self.steps:_}{planned} steps in {self.seconds:.0f} s, {self.ended}{best})"

    def _repr_html_(self) -> str:
        """Return the sentence of `repr`, the warning and the picture, for notebooks."""
        notes = "".join(f"<p>{note}</p>" for note in (repr(self), self.warning) if note)
        return notes + (self.plot().html(repr(self)) if self.rows else "")

    def plot(self) -> Picture:
        """Draw training and validation loss over steps, as a figure that a notebook displays.

        Raises
        ------
        DataError
            If the training ended before its first validation.
        """
        if not self.rows:
            raise DataError(
                "A training is drawn by its validations.", got="none", hint="train until the first of them."
            )
        return draw_losses(self.rows)

    @classmethod
    def from_dict(cls, facts: Any) -> Self:
        """Return what `asdict` was given; any other value raises a KeyError, TypeError, ValueError or OverflowError."""
        # Rows first: what is not a dict raises one of these errors here.
        rows = []
        for row in facts["rows"]:
            names = (*_ROW, _LATER) if _LATER in row else _ROW
            rows.append({**{name: float(row[name]) for name in names}, "step": int(row["step"])})
        planned = facts.get("planned")
        return cls(
            rows=rows,
            seconds=float(facts["seconds"]),
            best=None if facts["best"] is None else float(facts["best"]),
            ended=str(facts["ended"]),
            planned=None if planned is None else whole_number("planned", planned, 1, sys.maxsize),
            anneals=bool(facts.get("anneals", True)),
        )


class Training:
    """The training of one seed. All random draws are keyed by (seed, step), so that it can resume at any step."""

    def __init__(
        self,
        network: Network,
        data: TrainingSet,
        train: TrainConfig,
        *,
        seed: int,
        folder: Path | None = None,
        ranks: Ranks | None = None,
        verbose: bool = True,
    ) -> None:
        self.network, self.data, self.train, self.seed = network, data, train, seed
        self.folder, self.ranks, self.verbose = folder, ranks or Ranks(), verbose
        self.forward = self.ranks.share(network)
        self.draws = Draws(data, train, seed=seed, ranks=self.ranks)
        self.optim = optimiser(train.optimiser, network, lr=train.lr, weight_decay=train.weight_decay, clip=train.clip)
        self.average = WeightAverage(network, train.average) if train.average else None
        self.best = _copy(network)
        epoch = self.draws.steps_per_epoch
        self.steps, self.validate_every = self.draws.steps, min(train.validate_every, epoch)
        if train.steps is not None:
            self.validate_every = min(self.validate_every, max(1, train.steps // _VALIDATIONS))
        self.history, self.step = self._planned(TrainingHistory()), 0
        # Without patience, more validations than there can be.
        per_epoch, never = math.ceil(epoch / self.validate_every), self.steps + 1
        self.stopping = EarlyStopping(never if train.patience is None else train.patience * per_epoch)
        self.identity = identity(network, data, train, seed) if folder else {}
        if folder:
            self._resume(folder)

    def run(self) -> TrainingHistory:
        """Train until a reason to stop; leave the best weights in the network."""
        began, first, loss = time.monotonic() - self.history.seconds, self.step, math.nan
        with (
            kept_memory(),
            # Ranks must stop at the same step, so a signal to one of several is not handled.
            stop_on_signals(enabled=self.ranks.count == 1) as request,
            self._progress() as progress,
        ):
            try:
                while True:
                    self.history.seconds = time.monotonic() - began
                    if reason := self._reason_to_stop(requested=request.stop):
                        break
                    loss = self.learn()
                    if self.step % self.validate_every == 0:
                        self.validate_and_save(loss)
                    progress.step(1, nll=loss, **self._best())
            except KeyboardInterrupt:
                reason = INTERRUPTED
            if self.step > first and self.step % self.validate_every:
                self.validate_and_save(loss)
                progress.step(0, nll=loss, **self._best())
            elif self.step > first:
                self._save()  # the checkpoint of the last validation lacks the time since then
        self.history.ended, self.history.seconds = reason, time.monotonic() - began
        self.network.load_state_dict(self.best)
        return self.history

    def learn(self) -> float:
        """Take one step; return its loss, the mean over the observed targets of all ranks."""
        common, own = (
            Generator(self.ranks.device).manual_seed(_key(self.seed, self.step, rank)) for rank in (0, self.ranks.rank)
        )
        batch = self.draws(self.step, common)
        generator = common if self.ranks.leads else own
        with torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=self.train.precision == "bfloat16"):
            total, count = nll_sum(self.forward, self.network, batch, self.train.loss_on, generator)
        everywhere = self.ranks.total(count).clamp(min=1)
        self.optim.zero_grad()
        # DistributedDataParallel averages gradients over the ranks; times their number, the average is the sum.
        torch.autograd.backward(total * self.ranks.count / everywhere)
        # BertAdam clips per tensor, which would have no effect after clipping all tensors together.
        limit = math.inf if self.train.optimiser == "bertadam" else self.train.clip
        norm = clip_gradients(self.network.parameters(), limit)
        loss = float(self.ranks.total(total.detach()) / everywhere)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._raise_not_finite(loss, norm)
        share = max(progress_of(self.step, self.steps), self._share_of_time())
        set_rate(self.optim, self.train.lr * SCHEDULES[self.train.schedule](min(share, 1.0)))
        self.optim.step()
        if self.average:
            self.average.update()
        self.step += 1
        return loss

    def validate_and_save(self, loss: float) -> None:
        """Validate, keep the weights if they are the best so far, add a row to the history, save a checkpoint."""
        with self.average.swapped_in() if self.average else nullcontext():
            validation, error = self.validate()
            if self.stopping.update(validation):
                self.best, self.history.best = _copy(self.network), validation
        losses = {"nll": loss, "validation_nll": validation, "validation_wql": error}
        self.history.rows.append({"step": self.step, "seconds": round(self.history.seconds, 1), **losses})
        self._save()
        self.ranks.wait()

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """Return the mean negative log-likelihood of the horizon over the validation windows, and its wQL.

        Both are of each value given those before it, which masked windows hide. The likelihood chooses the weights.
        The quantile loss tells how far a training has come where the likelihood has no bound: that of a Gaussian
        grows for as long as it gets narrower around values that are always the same, such as nights of solar power.
        """
        sums = torch.zeros(4, dtype=torch.float64, device=self.ranks.device)
        for batch in self.data.validation_batches(self.train, self.ranks):
            sums += validation_sums(self.network, batch)
        nll, count, loss, size = self.ranks.total(sums)
        means = nll / count.clamp(min=1), loss / size.clamp(min=_SMALLEST)
        # An outlier among the validation windows can overflow; this does not stop the training.
        mean_nll, wql = (float(mean) if math.isfinite(mean) else _WORST for mean in means)
        return mean_nll, wql

    def _reason_to_stop(self, *, requested: bool) -> str | None:
        if self.step >= self.steps:
            return "all steps taken"
        if self.stopping.stop:
            return f"{_NO_IMPROVEMENT} in {self.stopping.patience} validations"
        if requested:
            return INTERRUPTED
        # At least one step is taken, however short the time.
        if self.step and self.ranks.any(self._share_of_time() >= 1):
            return f"time limit of {self.train.minutes:g} minutes reached"
        return None

    def _share_of_time(self) -> float:
        return 0.0 if self.train.minutes is None else self.history.seconds / (60 * self.train.minutes)

    def _progress(self) -> Progress:
        limit = None if self.train.minutes is None else 60 * self.train.minutes - self.history.seconds
        verbose = self.verbose and self.ranks.leads
        what = "training on all data" if self.data.refits else "training"
        progress = Progress(f"{what}, seed {self.seed}", self.steps, limit=limit, verbose=verbose)
        progress.skip_to(self.step)
        return progress

    def _planned(self, history: TrainingHistory) -> TrainingHistory:
        return replace(history, planned=self.steps, anneals=self.train.schedule != "constant")

    def _best(self) -> dict[str, float]:
        return {} if self.history.best is None else {"validation": self.history.best}

    def _raise_not_finite(self, loss: float, norm: float) -> NoReturn:
        saved = f"; the last checkpoint is in {self.folder}" if self.folder and self.history.rows else ""
        raise TrainingError(
            "The loss and its gradients must stay finite.",
            got=f"a loss of {loss:g} with gradients of norm {norm:g} at step {self.step}{saved}",
            hint="lower train.lr, or look for extreme values in the data.",
        )

    def _parts(self) -> dict[str, Mapping[str, Tensor]]:
        """Return all tensors of a checkpoint by part; the rest of its state follows from step and history."""
        return {
            "weights": self.network.state_dict(),
            "best": self.best,
            "average": self.average.average if self.average else {},
            "optimiser": optimiser_state(self.optim),
        }

    def _save(self) -> None:
        if self.folder is None or not self.ranks.leads:
            return
        tensors = {f"{part}/{name}": tensor for part, named in self._parts().items() for name, tensor in named.items()}
        save(self.folder / CHECKPOINT, tensors, {**self.identity, "step": self.step, "history": asdict(self.history)})
        lines = (json.dumps({"seed": self.seed, **row}) + "\n" for row in self.history.rows)
        write_whole(self.folder / METRICS, "".join(lines).encode(), "The losses of a training")

    def _resume(self, folder: Path) -> None:
        """Continue from the checkpoint in the folder, if there is one."""
        if (folder / _FORMER_CHECKPOINT).exists():
            raise TrainingError(
                "A training is resumed by the version of logsparse that can read its checkpoint.",
                got=f"a checkpoint of version 0.1.0 in {folder}",
                hint="finish it with logsparse 0.1.0, or remove the folder to start again.",
            )
        if not exists(folder / CHECKPOINT):
            return
        checkpoint = load(folder / CHECKPOINT)
        try:
            if changed := differences(checkpoint.state, self.identity):
                self._raise_changed(folder, changed)
            self._restore(checkpoint.tensors, checkpoint.state)
        except LogsparseError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            reason = str(error) if isinstance(error, InvalidContentError) else repr(error)
            raise damaged(folder / CHECKPOINT / STATE, reason) from error

    def _raise_changed(self, folder: Path, changed: Sequence[str]) -> NoReturn:
        limit = " (minutes are --minutes of fit, --budget of reproduce)" if "minutes" in str(changed) else ""
        by_command = " (`logsparse fit --again` does)" if folder.parent.suffix == ".training" else ""
        raise TrainingError(
            "A training is resumed with the data and settings it was started with.",
            got=f"{', '.join(changed)} in {folder}",
            hint=f"use those it was started with{limit}, or remove the folder to start again{by_command}.",
        )

    def _restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Take over a checkpoint after all of it is validated."""
        step = whole_number("step", state["step"], 1, self.steps)
        history = TrainingHistory.from_dict(state["history"])
        needed = self._parts()
        parts: dict[str, dict[str, Tensor]] = {part: {} for part in needed}
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = tensor
        needed["optimiser"] = optimiser_layout(self.optim, parts["optimiser"])
        for part, layout in needed.items():
            check_tensors(layout, parts[part], part)
        self.network.load_state_dict(parts["weights"])
        self.best = parts["best"]
        restore_optimiser(self.optim, parts["optimiser"])
        if self.average:
            self.average.restore(parts["average"], updates=step)
        for row in history.rows:
            self.stopping.update(row["validation_nll"])
        self.step, self.history = step, self._planned(history)


def best_of(make: Callable[[int], Training], seeds: Sequence[int]) -> Training:
    """Train one network per seed; return the training with the lowest validation loss.

    An interrupted training is the last one, and takes part with its best weights so far.
    """
    best: Training | None = None
    for seed in seeds:
        run = make(seed)
        history = run.run()
        if best is None or _best_loss(history) < _best_loss(best.history):
            best = run
        if history.ended == INTERRUPTED:
            break
    assert best is not None, "seeds must not be empty"
    return best


@dataclass
class StopRequest:
    """Set to True by the first signal."""

    stop: bool = False


@contextmanager
def stop_on_signals(*, enabled: bool = True) -> Iterator[StopRequest]:
    """Inside the block, turn the first SIGINT or SIGTERM into a request and the second into a KeyboardInterrupt.

    Outside the main thread, to which Python delivers signals, and unless `enabled`, signals are not handled.
    """
    request = StopRequest()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if request.stop:
            raise KeyboardInterrupt
        request.stop = True

    enabled = enabled and threading.current_thread() is threading.main_thread()
    replaced = {number: was for number in _SIGNALS if enabled and (was := signal.getsignal(number)) in _USUAL}
    try:
        for number in replaced:
            signal.signal(number, handle)
        yield request
    finally:
        for number, was in replaced.items():
            signal.signal(number, was)


def _best_loss(history: TrainingHistory) -> float:
    return math.inf if history.best is None else history.best


def _key(*numbers: int) -> int:
    """Return the seed of a torch generator for these numbers."""
    return int(np.random.default_rng(numbers).integers(2**62))


def _copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
