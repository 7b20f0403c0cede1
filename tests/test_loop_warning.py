"""A training that was too short says so: in its history, in the log, in the repr, in the saved model."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import logsparse as ls
import small
from logsparse.train.loop import Training, TrainingHistory

FALLING = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0]
LEVEL = [9.0, 5.0, 3.0, 2.02, 2.01, 2.005, 2.002, 2.0]
RISING = [9.0, 5.0, 3.0, 2.0, 2.1, 2.2, 2.3, 2.4]


def history(losses: list[float], planned: int | None, ended: str, **others: Any) -> TrainingHistory:
    rows = [{"step": 10.0 * i, "seconds": 0.0, "nll": 1.0, "validation_nll": x} for i, x in enumerate(losses, start=1)]
    return TrainingHistory(rows, best=min(losses), ended=ended, planned=planned, **others)


@pytest.mark.parametrize(
    ("losses", "planned", "ended", "said"),
    [
        (LEVEL, 1600, "2 minutes are over", "Training took 80 of 1,600 planned steps (2 minutes are over): "),
        (FALLING, 1600, "interrupted", "(interrupted), while the validation loss was still falling: "),
        (FALLING[:1], 1600, "0.05 minutes are over", "Training took 10 of 1,600 planned steps (0.05 minutes are over)"),
        (FALLING, 85, "interrupted", "ended after 80 of 85 planned steps (interrupted) while the validation loss was"),
    ],
)
def test_a_training_that_was_cut_says_how_much_of_it_there_was(
    losses: list[float], planned: int, ended: str, said: str
) -> None:
    assert said in (history(losses, planned, ended).warning or "")


@pytest.mark.parametrize(
    ("losses", "planned", "ended"),
    [
        (FALLING, 80, "all steps taken"),  # a cycle that ended is whole: the loss falls most at its end
        (LEVEL, 85, "2 minutes are over"),
        (RISING, 85, "interrupted"),
        (RISING, 1600, "no improvement in 5 validations"),
        (FALLING, None, "interrupted"),  # saved before the plan was recorded
        (FALLING[:3], 32, "interrupted"),  # too few validations to see a course
    ],
)
def test_a_training_that_was_long_enough_says_nothing(losses: list[float], planned: int | None, ended: str) -> None:
    assert history(losses, planned, ended).warning is None


def test_at_a_constant_rate_a_falling_loss_asks_for_more_steps_also_at_the_end() -> None:
    assert "still falling: train for longer" in (history(FALLING, 80, "all steps taken", anneals=False).warning or "")
    assert history(LEVEL, 80, "all steps taken", anneals=False).warning is None


def test_an_overflow_of_a_validation_does_not_hide_the_course_of_the_others() -> None:
    assert history([float(np.finfo(np.float32).max), *FALLING], 1600, "interrupted").falling


def test_what_is_saved_comes_back_and_an_older_one_has_no_plan() -> None:
    found = history(FALLING, 1600, "interrupted", anneals=False)
    saved = json.loads(json.dumps(asdict(found)))
    assert TrainingHistory.from_dict(saved) == found
    older = {name: value for name, value in saved.items() if name not in ("planned", "anneals")}
    assert TrainingHistory.from_dict(older).warning is None
    for wrong in (0, -1, "many", 2.5):
        with pytest.raises((ValueError, TypeError)):
            TrainingHistory.from_dict({**saved, "planned": wrong})


def stopped_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt every training after so many steps, as Ctrl-C does."""
    learn = Training.learn

    def some(self: Training) -> float:
        if self.step == steps:
            raise KeyboardInterrupt
        return learn(self)

    monkeypatch.setattr(Training, "learn", some)


def test_a_short_training_is_said_in_log_repr_and_saved_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "logsparse"):
        stopped_after(2, patched)
        model = ls.LogSparse(6, config=small.config(), verbose=False).fit(small.panel())
    said = "Training took 2 of 12 planned steps (interrupted): forecasts may be poor"
    assert caplog.text.count(said) == 1
    assert "2 of 12 steps trained" in repr(model)
    assert "2 of 12 steps trained" in model._repr_html_()
    model.save(tmp_path / "model")
    loaded = ls.load(tmp_path / "model")
    assert isinstance(loaded, ls.LogSparse)
    assert (loaded.history_.warning or "").startswith(said)
    # A step of fine-tuning does not make up for those that lack; all of them do.
    loaded.fine_tune(small.panel(), steps=1)
    assert "1 of 10 steps trained" in repr(loaded)
    assert "1 of 10 planned steps (all steps taken, after a training that lacked 10)" in (loaded.history_.warning or "")
    loaded.fine_tune(small.panel())
    assert "12 steps trained" in repr(loaded)
    assert loaded.history_.steps == loaded.history_.planned == 12


def test_a_whole_training_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    model = ls.LogSparse(6, config=small.config(schedule="one-cycle"), verbose=False).fit(small.panel())
    assert ("Training" in caplog.text, model.history_.warning, model.history_.planned) == (False, None, 12)


@pytest.mark.parametrize("windows", [None, 40])
def test_steps_replace_those_of_the_recipe_and_validation_comes_as_often(windows: int | None) -> None:
    config = small.config(windows=windows, schedule="one-cycle", patience=None)
    for steps in (1, 7, 50):
        model = ls.LogSparse(6, config=config, steps=steps, verbose=False).fit(small.panel())
        assert model.history_.steps == model.history_.planned == steps
        assert model.history_.warning is None
        assert len(model.history_.rows) >= min(steps, 16)
        assert model.config_.train.steps == steps


def test_the_schedule_ends_with_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    monkeypatch.setattr("logsparse.train.loop.set_rate", lambda _optim, rate: rates.append(rate))
    ls.LogSparse(6, config=small.config(), schedule="one-cycle", patience=None, steps=20, verbose=False).fit(
        small.panel()
    )
    assert len(rates) == 20
    assert rates[-1] < 0.02 * max(rates)
    assert 4 <= rates.index(max(rates)) <= 7
