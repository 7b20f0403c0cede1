"""Network + TrainingSet + TrainConfig -> the network with its best weights, and the history of its training."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Self

import numpy as np
import torch
from torch import Generator, Tensor, nn

from logsparse.config import TrainConfig
from logsparse.data.windows import Batch
from logsparse.errors import LogsparseError
from logsparse.model.network import Network
from logsparse.process import kept_memory
from logsparse.progress import Progress
from logsparse.storage import InvalidContentError, a_list, entries, number, text, write_whole
from logsparse.train.batches import Draws, TrainingSet
from logsparse.train.checkpoint import checked_parts, damaged, differences, exists, identity, load, save, under
from logsparse.train.distributed import Ranks
from logsparse.train.optim import (
    EarlyStopping,
    WeightAverage,
    clip_gradients,
    optimiser,
    optimiser_state,
    progress_of,
    restore_optimiser,
    schedule,
    set_rate,
)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Whoever has set a handler of their own keeps it, and a process that ignores Ctrl-C goes on ignoring it.
_USUAL = (signal.SIG_DFL, signal.default_int_handler)


@dataclass
class Wish:
    """Whether a stop was asked for."""

    stop: bool = False


@contextmanager
def asked_to_stop(*, heed: bool = True) -> Iterator[Wish]:
    """Inside, the first signal ends no step in its middle; the second one is a KeyboardInterrupt at once.

    Python gives signals to its main thread only: in any other, and without `heed`, they do as usual.
    """
    wish = Wish()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if wish.stop:
            raise KeyboardInterrupt
        wish.stop = True

    heed = heed and threading.current_thread() is threading.main_thread()
    taken = {number: was for number in _SIGNALS if heed and (was := signal.getsignal(number)) in _USUAL}
    try:
        for number in taken:
            signal.signal(number, ask)
        yield wish
    finally:
        for number, was in taken.items():
            signal.signal(number, was)


# B windows, L positions, P parameters of the likelihood

CHECKPOINT = "training"
INTERRUPTED = "interrupted"
_ROW = ("step", "seconds", "nll", "validation_nll")
_WORST = float(np.finfo(np.float32).max)


class TrainingError(LogsparseError):
    """Training cannot go on; the last good checkpoint is kept."""


@dataclass
class TrainingHistory:
    """What happened: one row for each look at the validation windows."""

    rows: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    best: float | None = None
    ended: str = "all steps taken"

    @classmethod
    def from_dict(cls, facts: Any) -> Self:
        """What `asdict` gave, or what a stranger made of it."""
        entries("story", facts, "rows", "seconds", "best", "ended")
        rows = [
            {name: number(f"story/rows/{name}", value) for name, value in entries("story/rows", row, *_ROW).items()}
            for row in a_list("story/rows", facts["rows"])
        ]
        best = None if facts["best"] is None else number("story/best", facts["best"])
        return cls(rows, number("story/seconds", facts["seconds"], 0), best, text("story/ended", facts["ended"]))


class Training:
    """One run of one seed. Whatever a step draws is keyed by (seed, step), so that it can be taken up anywhere."""

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
        self.optim = optimiser(train.optimiser, network, lr=train.lr, weight_decay=_decay(train), clip=train.clip)
        self.average = WeightAverage(network, train.average) if train.average else None
        self.best = _copy(network)
        self.history, self.step = TrainingHistory(), 0
        epoch = self.draws.steps_per_epoch
        self.steps, self.validate_every = train.epochs * epoch, min(train.validate_every, epoch)
        self.stopping = EarlyStopping((train.patience or train.epochs) * -(-epoch // self.validate_every))
        self.identity = identity(network, data, train, seed) if folder else {}
        if folder and exists(folder, name=CHECKPOINT):
            self._resume(folder)

    def run(self) -> TrainingHistory:
        """Next batch, loss, backward, clip, step; now and then look, keep the best, save."""
        began, every = time.monotonic() - self.history.seconds, self.validate_every
        minutes, told = self.train.minutes, self.verbose and self.ranks.leads
        limit = None if minutes is None else 60 * minutes - self.history.seconds
        title = f"training, seed {self.seed}"
        # Ranks must stop at the same step, so one alone is not asked.
        with (
            kept_memory(),
            asked_to_stop(heed=self.ranks.count == 1) as wish,
            Progress(title, self.steps, limit=limit, verbose=told) as progress,
        ):
            progress.skip_to(self.step)
            looked_at = self.step
            try:
                while self.step < self.steps and not self.stopping.stop:
                    self.history.seconds = time.monotonic() - began
                    if wish.stop:
                        self.history.ended = INTERRUPTED
                        break
                    # However few the minutes, one step makes a model.
                    if self.step and self.ranks.agree(self._share_of_time() >= 1):
                        self.history.ended = f"{self.train.minutes:g} minutes are over"
                        break
                    loss = self.learn()
                    if self.step % every == 0:
                        self.look(loss)
                    progress.step(1, nll=loss, **self._best())
            except KeyboardInterrupt:
                self.history.ended = INTERRUPTED
            if self.step % every and self.step > looked_at:
                self.look(loss)
                progress.step(0, nll=loss, **self._best())
            elif self.folder and self.ranks.leads and self.step > looked_at:
                self._save(self.folder)  # the last look's checkpoint does not know that the time is over
        if self.stopping.stop and self.step < self.steps:
            self.history.ended = f"no better for {self.stopping.patience} looks"
        self.history.seconds = time.monotonic() - began
        self.network.load_state_dict(self.best)
        return self.history

    def learn(self) -> float:
        """One step; the loss is the mean over the observed targets of all ranks."""
        generator = Generator(self.ranks.device).manual_seed(_key(self.seed, self.step, self.ranks.rank))
        with torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=self.train.precision == "bfloat16"):
            total, count = nll_sum(self.forward, self.network, self.draws(self.step), self.train.loss_on, generator)
        everywhere = self.ranks.total(count).clamp(min=1)
        self.optim.zero_grad()
        # DistributedDataParallel takes the mean over ranks: times their number it is the sum again.
        torch.autograd.backward(total * self.ranks.count / everywhere)
        # BERTAdam clips each tensor itself: clipped together first, no tensor would ever reach that limit.
        limit = math.inf if self.train.optimiser == "bertadam" else self.train.clip
        norm = clip_gradients(self.network.parameters(), limit)
        loss = float(self.ranks.total(total.detach()) / everywhere)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._stop_at(loss, norm)
        share = max(progress_of(self.step, self.steps), self._share_of_time())
        set_rate(self.optim, self.train.lr * schedule(self.train.schedule)(min(share, 1.0)))
        self.optim.step()
        if self.average:
            self.average.update()
        self.step += 1
        return loss

    def look(self, loss: float) -> None:
        """Validate, keep the weights if they are the best so far, write a row and a checkpoint."""
        with self.average.swapped_in() if self.average else nullcontext():
            validation = self.validate()
            if self.stopping.update(validation):
                self.best, self.history.best = _copy(self.network), validation
        row = {"step": self.step, "seconds": round(self.history.seconds, 1), "nll": loss, "validation_nll": validation}
        self.history.rows.append(row)
        if self.folder and self.ranks.leads:
            self._save(self.folder)
        self.ranks.wait()

    @torch.no_grad()
    def validate(self) -> float:
        """Mean negative log-likelihood of the horizon over the validation windows."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.ranks.device)
        for batch in self.data.looks(self.train, self.ranks):
            total, count = nll_sum(self.network, self.network, batch, "horizon")
            sums += torch.stack((total, count)).double()
        total, count = self.ranks.total(sums)
        mean = float(total / count.clamp(min=1))
        # An outlier among the validation windows can be beyond all numbers: that is bad, but no reason to stop.
        return mean if math.isfinite(mean) else _WORST

    def _best(self) -> dict[str, float]:
        return {} if self.history.best is None else {"best": self.history.best}

    def _share_of_time(self) -> float:
        return 0.0 if self.train.minutes is None else self.history.seconds / (60 * self.train.minutes)

    def _stop_at(self, loss: float, norm: float) -> NoReturn:
        where = f"; the checkpoint of the last look is in {self.folder}" if self.folder and self.history.rows else ""
        raise TrainingError(
            "The loss and its gradients must stay finite.",
            got=f"a loss of {loss:g} with gradients of norm {norm:g} at step {self.step}{where}",
            hint="lower train.lr, or look for extreme values in the data.",
        )

    def _save(self, folder: Path) -> None:
        moments, settings = optimiser_state(self.optim)
        averaged, counts = self.average.state() if self.average else ({}, {})
        tensors = {
            **under("weights", self.network.state_dict()),
            **under("best", self.best),
            **under("optimiser", moments),
            **under("average", averaged),
        }
        _, stopping = self.stopping.state()
        state = {"step": self.step, **self.identity, "story": asdict(self.history)}
        save(
            folder, tensors, {**state, "optimiser": settings, "average": counts, "stopping": stopping}, name=CHECKPOINT
        )
        lines = (json.dumps({"seed": self.seed, **row}) + "\n" for row in self.history.rows)
        write_whole(folder / "metrics.jsonl", "".join(lines).encode(), "The losses of a training")

    def _resume(self, folder: Path) -> None:
        checkpoint = load(folder, name=CHECKPOINT)
        state = checkpoint.state
        if changed := differences(state, self.identity):
            limit = " (minutes are --minutes of fit, --budget of reproduce)" if "minutes" in str(changed) else ""
            raise TrainingError(
                "A run is resumed with the data and settings it was started with.",
                got=f"{', '.join(changed)} in {folder}",
                hint=f"give them as they were{limit}, or remove the folder to begin anew.",
            )
        try:
            parts = checked_parts(checkpoint, self.network, self.optim, self.average, self.stopping, self.steps)
            story = TrainingHistory.from_dict(state["story"])
        except InvalidContentError as error:
            raise damaged(folder / f"{CHECKPOINT}.json", str(error)) from error
        self.network.load_state_dict(parts["weights"])
        self.best = parts["best"]
        restore_optimiser(self.optim, (parts["optimiser"], state["optimiser"]))
        if self.average:
            self.average.restore((parts["average"], state["average"]))
        self.stopping.restore(({}, state["stopping"]))
        self.step, self.history = state["step"], replace(story, ended=TrainingHistory.ended)


def best_of(make: Callable[[int], Training], seeds: Sequence[int]) -> Training:
    """One run for each seed; the one with the lowest validation loss, with its best weights in its network.

    An interrupted seed is the last: its best weights so far take part, those of later seeds do not exist.
    """
    best: Training | None = None
    for seed in seeds:
        run = make(seed)
        story = run.run()
        if best is None or _worth(story) < _worth(best.history):
            best = run
        if story.ended == INTERRUPTED:
            break
    assert best is not None, "seeds must not be empty"
    return best


def nll_sum(
    forward: nn.Module, network: Network, batch: Batch, loss_on: str, generator: Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood summed over the observed targets, and their number, weighted as `loss_on` says.

    `forward` is the network itself, or the network as ranks share it: whatever has weights is behind it.
    """
    begin = batch.context if loss_on == "horizon" else 0
    log_density_BL = network.log_density(forward(batch, generator), batch, begin)
    counted_BL = batch.observed_BL[:, begin:]
    if loss_on == "both":
        weight_L = torch.ones(len(counted_BL[0]), device=log_density_BL.device)
        weight_L[batch.context :] = batch.context / batch.horizon
        log_density_BL, counted_BL = log_density_BL * weight_L, counted_BL * weight_L
    return -log_density_BL.sum(), counted_BL.sum()


def _worth(story: TrainingHistory) -> float:
    return math.inf if story.best is None else story.best


def _decay(train: TrainConfig) -> float | None:
    return None if train.optimiser == "adam" else train.weight_decay


def _key(*numbers: int) -> int:
    """Some numbers -> the seed of a generator."""
    return int(np.random.default_rng(numbers).integers(2**62))


def _copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
