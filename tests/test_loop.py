"""Training learns, stops when it should, repeats with its seed, and resumes as if it had not been interrupted."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import softplus

import small
from logsparse.data.panel import Panel
from logsparse.errors import DataError
from logsparse.pictures import draw_losses
from logsparse.train.batches import TrainingSet
from logsparse.train.loop import Training, TrainingError, TrainingHistory, best_of
from logsparse.train.loss import nll_sum

LOSSES = Path(__file__).parent / "losses" / "small.txt"


def training(folder: Path | None = None, *, panel: Panel | None = None, seed: int = 0, **settings: Any) -> Training:
    config = small.config(settings.pop("model", None), **settings)
    data = TrainingSet.of(small.panel() if panel is None else panel, config)
    return Training(small.network(config, data, seed), data, config.train, seed=seed, folder=folder, verbose=False)


def weights(network: nn.Module) -> str:
    """A hash of every bit of every weight."""
    state = sorted(network.state_dict().items())
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for _, tensor in state)).hexdigest()


def test_training_lowers_the_validation_loss() -> None:
    run = training(epochs=10, steps_per_epoch=20, lr=3e-3)
    before = run.validate()[0]
    history = run.run()
    assert history.best is not None
    assert history.best < before - 0.5
    assert run.validate()[0] == pytest.approx(history.best)


def test_the_quantile_loss_of_a_validation_is_the_wql_of_its_windows() -> None:
    run = training(panel=small.panel(missing=0.2))
    loss = size = 0.0
    for batch in run.data.validation_batches(run.train, run.ranks):
        raw, scale_B1 = run.network(batch).detach().double(), batch.scale_B[:, None].double()
        mean, deviation = raw[..., 0] * scale_B1, (softplus(raw[..., 1]) + 1e-6) * scale_B1
        for b, step in batch.observed_BL[:, batch.context :].nonzero().tolist():
            value = float(batch.values_BL[b, batch.context + step])
            size += abs(value + float(batch.centre_B[b]))
            for level in np.linspace(0.1, 0.9, 9):
                place = b, batch.context + step
                error = value - float(mean[place] + deviation[place] * torch.special.ndtri(torch.tensor(level)))
                loss += 2 / 9 * max(level * error, (level - 1) * error)
    assert run.validate()[1] == pytest.approx(loss / size, rel=1e-5)


def test_the_loss_is_the_mean_negative_log_density_of_the_observed_targets() -> None:
    run = training()
    batch = run.draws(0)
    total, count = nll_sum(run.network, run.network, batch, "all")
    raw = run.network(batch).detach().double()
    scale_B1 = batch.scale_B[:, None].double()
    mean, deviation = raw[..., 0] * scale_B1, (softplus(raw[..., 1]) + 1e-6) * scale_B1
    z = (batch.values_BL - mean) / deviation
    density = -z.square() / 2 - deviation.log() - np.log(2 * np.pi) / 2
    expected = -float(density[batch.observed_BL].sum())
    assert count == batch.observed_BL.sum()
    assert total.item() == pytest.approx(expected, rel=1e-5)


def test_the_loss_may_count_the_horizon_only() -> None:
    run = training()
    batch = run.draws(0)
    _, count = nll_sum(run.network, run.network, batch, "horizon")
    assert count == batch.observed_BL[:, batch.context :].sum()


def test_the_loss_may_count_the_horizon_as_much_as_the_history() -> None:
    run = training()
    batch = run.draws(0)
    parts = {on: nll_sum(run.network, run.network, batch, on) for on in ("all", "horizon", "both")}
    (all_, count), (ahead, count_ahead), (both, count_both) = parts.values()
    weight = batch.context / batch.horizon
    assert both.item() == pytest.approx((all_ - ahead + weight * ahead).item(), rel=1e-5)
    assert count_both.item() == pytest.approx((count - count_ahead + weight * count_ahead).item())


def test_missing_targets_do_not_touch_the_gradients() -> None:
    run = training()
    batch = run.draws(0).clone()
    poisoned = batch.clone()
    poisoned.values_BL[~poisoned.observed_BL] = 1e9
    gradients = []
    for windows in (batch, poisoned):
        run.network.zero_grad()
        torch.autograd.backward(nll_sum(run.network, run.network, windows, "all")[0])
        gradients.append([weight.grad.clone() for weight in run.network.parameters() if weight.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("windows", [None, 24], ids=["fresh draws", "a set"])
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(windows: int | None) -> None:
    runs = [training(seed=seed, windows=windows, average=0.9) for seed in (3, 3, 4)]
    for run in runs:
        run.run()
    assert weights(runs[0].network) == weights(runs[1].network) != weights(runs[2].network)


@pytest.mark.parametrize("clip", [1.0, 0.05])
def test_bertadam_clips_each_tensor_and_nothing_clips_before_it(clip: float) -> None:
    plain, run = training(clip=1e9), training(optimiser="bertadam", clip=clip)
    for each in (plain, run):
        each.learn()
    gradients = {name: weight.grad for name, weight in plain.network.named_parameters() if weight.grad is not None}
    assert torch.stack([gradient.norm() for gradient in gradients.values()]).norm() > 2 * clip
    for name, weight in run.network.named_parameters():
        if name in gradients:
            clipped = gradients[name] * (clip / gradients[name].norm().clamp(min=1e-12)).clamp(max=1)
            torch.testing.assert_close(run.optim.state[weight]["exp_avg"], 0.1 * clipped, rtol=1e-4, atol=1e-9)


def test_a_fixed_seed_reproduces_the_committed_loss_curve() -> None:
    """Regenerate after a change that is meant to change numbers: LOGSPARSE_WRITE_LOSSES=1 make test."""
    torch.set_num_threads(1)
    run = training(epochs=3, optimiser="bertadam", schedule="warmup-decay")
    losses = [run.learn() for _ in range(9)]
    if os.environ.get("LOGSPARSE_WRITE_LOSSES"):
        LOSSES.write_text("".join(f"{loss:.6f}\n" for loss in losses))
    expected = [float(line) for line in LOSSES.read_text().split()]
    np.testing.assert_allclose(losses, expected, rtol=2e-4)


def test_training_stops_when_validation_does_not_improve_and_keeps_the_best_weights() -> None:
    run = training(epochs=50, patience=2, lr=1.0)
    history = run.run()
    assert history.ended == "no improvement in 2 validations"
    assert run.validate()[0] == pytest.approx(min(row["validation_nll"] for row in history.rows))


def test_a_long_epoch_has_several_validations_and_patience_counts_epochs() -> None:
    run = training(epochs=50, steps_per_epoch=5, validate_every=2, patience=1, lr=1.0)
    history = run.run()
    assert [row["step"] for row in history.rows[:3]] == [2, 4, 6]
    assert history.ended == "no improvement in 3 validations"


def test_the_last_line_of_the_progress_has_the_lowest_validation_loss(capsys: pytest.CaptureFixture[str]) -> None:
    run = training(epochs=1, steps_per_epoch=5, validate_every=4)
    run.verbose = True
    best = run.run().best
    assert capsys.readouterr().err.rstrip().endswith(f"validation {best:.4g}")


def test_a_time_budget_ends_training() -> None:
    run = training(epochs=10_000, patience=None, minutes=0.03)
    began = time.monotonic()
    assert run.run().ended == "time limit of 0.03 minutes reached"
    assert time.monotonic() - began < 30


def test_at_least_one_step_is_taken_however_short_the_time() -> None:
    run = training(minutes=1e-7)
    history = run.run()
    assert (run.step, len(history.rows), history.ended) == (1, 1, "time limit of 1e-07 minutes reached")
    assert history.best is not None


def test_a_run_whose_time_was_over_resumes_and_ends_at_once(tmp_path: Path) -> None:
    first = training(tmp_path, epochs=10_000, steps_per_epoch=100, patience=None, minutes=0.02)
    first.run()
    again = training(tmp_path, epochs=10_000, steps_per_epoch=100, patience=None, minutes=0.02)
    assert again.run().ended == "time limit of 0.02 minutes reached"
    assert again.step == first.step
    assert weights(again.network) == weights(first.network)


def test_a_loss_that_is_not_finite_stops_with_the_last_checkpoint_kept(tmp_path: Path) -> None:
    run = training(tmp_path, epochs=2)
    run.run()
    again = training(tmp_path, epochs=2)
    with torch.no_grad():
        next(again.network.parameters()).fill_(float("nan"))
    with pytest.raises(
        TrainingError,
        match=r"Got a loss of nan with gradients of norm nan at step 6; the last checkpoint .* Hint",
    ):
        again.learn()
    assert training(tmp_path, epochs=2).step == 6


def test_a_gradient_that_is_not_finite_is_reported_with_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    run = training()
    monkeypatch.setattr("logsparse.train.loop.clip_gradients", lambda _weights, _limit: float("inf"))
    with pytest.raises(TrainingError, match=r"Got a loss of \d\S+ with gradients of norm inf at step 0\. Hint: lower"):
        run.learn()


def test_a_run_resumed_after_any_validation_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = training(average=0.9, windows=24)
    whole.run()
    cut = training(tmp_path, average=0.9, windows=24)
    for _ in range(3):
        loss = cut.learn()
    cut.validate_and_save(loss)
    resumed = training(tmp_path, average=0.9, windows=24)
    assert resumed.step == 3
    assert vars(resumed.stopping) == vars(cut.stopping)
    resumed.run()
    assert weights(resumed.network) == weights(whole.network)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 6, 9, 12]


def test_other_settings_do_not_resume_a_run(tmp_path: Path) -> None:
    training(tmp_path, epochs=1, minutes=5).run()
    rule = "A training is resumed with the data and settings it was started with. Got"
    with pytest.raises(
        TrainingError, match=rf"{rule} seed 1 \(was 0\) in {tmp_path}\. Hint: use those it was started with, or rem"
    ):
        training(tmp_path, epochs=1, minutes=5, seed=1)
    with pytest.raises(TrainingError, match=rf"{rule} another network in"):
        training(tmp_path, epochs=1, minutes=5, model={"kernel": 2})
    with pytest.raises(TrainingError, match=rf"{rule} other data in"):
        training(tmp_path, epochs=1, minutes=5, panel=small.panel(seed=1))
    with pytest.raises(
        TrainingError, match=rf"{rule} train.minutes 9 \(was 5\) in .* \(minutes are --minutes of fit, --bud"
    ):
        training(tmp_path, epochs=1, minutes=9)
    assert training(tmp_path, epochs=1, minutes=5).step == 3


def test_of_several_seeds_the_one_with_the_lowest_validation_loss_wins() -> None:
    runs = {seed: training(seed=seed) for seed in (0, 1, 2)}
    best = best_of(runs.__getitem__, [0, 1, 2])
    found = {seed: run.history.best for seed, run in runs.items()}
    assert best is runs[min(found, key=lambda seed: found[seed] or np.inf)]
    assert best.validate()[0] == pytest.approx(best.history.best)


def test_an_interruption_keeps_the_best_weights_and_a_checkpoint_and_ends_the_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = training(tmp_path, epochs=5)
    learn = run.learn

    def interrupted() -> float:
        if run.step == 7:
            raise KeyboardInterrupt
        return learn()

    monkeypatch.setattr(run, "learn", interrupted)
    assert best_of(lambda _: run, [0, 1]) is run
    assert run.history.ended == "interrupted"
    assert run.validate()[0] == pytest.approx(min(row["validation_nll"] for row in run.history.rows))
    assert training(tmp_path, epochs=5).step == 7


def test_the_loss_curves_are_drawn() -> None:
    history = training().run()
    losses, validation, star = draw_losses(history.rows).axes[0].get_lines()
    assert len(losses.get_ydata()) == len(validation.get_ydata()) == 4  # type: ignore[arg-type]
    assert star.get_ydata() == [min(row["validation_nll"] for row in history.rows)]


KILLED = """
import sys, torch
sys.path[:0] = {path!r}
torch.set_num_threads(1)
from pathlib import Path
from test_loop import training, weights
run = training(Path(sys.argv[1]), epochs=40, patience=None, average=0.9)
print("ready", flush=True)
run.run()
print(weights(run.network))
"""


def test_a_killed_run_resumes_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    code = KILLED.format(path=[str(Path(__file__).parent)])

    def start(folder: Path) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)

    with start(tmp_path / "whole") as whole:
        expected = whole.communicate()[0].split()[-1]
    with start(tmp_path / "killed") as victim:
        metrics = tmp_path / "killed" / "metrics.jsonl"
        while not (metrics.exists() and len(metrics.read_text().splitlines()) >= 5):
            time.sleep(0.005)
        victim.send_signal(signal.SIGKILL)
    assert len(metrics.read_text().splitlines()) < 40
    with start(tmp_path / "killed") as resumed:
        assert resumed.communicate()[0].split()[-1] == expected


def test_a_history_draws_its_losses_and_refuses_if_there_are_none() -> None:
    rows = [{"step": float(n), "seconds": 1.0, "nll": 2 / n, "validation_nll": 3 / n} for n in (1, 2)]
    for count in (1, 2):
        (axes,) = TrainingHistory(rows=rows[:count]).plot().axes
        drawn = {one.get_label(): np.asarray(one.get_ydata()).tolist() for one in axes.get_lines()}
        assert drawn["validation"] == [3, 1.5][:count]
    with pytest.raises(DataError, match=r"is drawn by its validations. Got none. Hint: train until the first"):
        TrainingHistory().plot()
