"""The weight average forgets the initial weights, is swapped in and out exactly, and is restored bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from logsparse.train.optim import WeightAverage


def walk(model: nn.Module, seed: int) -> Tensor:
    """Move the weights anywhere; the new first weight is returned."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return next(model.parameters()).detach().clone()


def weight_of_age(decay: float, steps: int, age: int) -> float:
    """How much the weights of that age count, found by a step that stands out."""
    model = nn.Linear(1, 1, bias=False).double()
    average = WeightAverage(model, decay)
    for step in range(steps):
        with torch.no_grad():
            model.weight.fill_(float(step == steps - 1 - age))
        average.update()
    return average.average["weight"].item()


def test_each_step_back_counts_less_by_the_decay() -> None:
    shares = [weight_of_age(0.9, 2000, age) for age in range(5)]
    assert shares == pytest.approx([0.1 * 0.9**age for age in range(5)])


def test_early_on_only_the_last_tenth_of_the_steps_counts() -> None:
    recent = sum(weight_of_age(0.999, 40, age) for age in range(12))
    assert recent > 0.95
    assert weight_of_age(0.999, 40, 39) < 1e-4
    assert weight_of_age(0.999, 2000, 0) < 0.01


def test_after_one_update_the_average_is_the_weights_themselves() -> None:
    model = nn.Linear(3, 2)
    average = WeightAverage(model, decay=0.999)
    now = walk(model, 1)
    average.update()
    assert torch.equal(average.average["weight"], now)


def test_the_model_has_the_average_inside_the_swap_and_its_own_weights_after_it() -> None:
    model = nn.Linear(3, 2)
    average = WeightAverage(model, decay=0.5)
    for step in range(3):
        own = walk(model, step)
        average.update()
    kept = average.average["weight"].clone()
    inside: list[Tensor] = []

    def evaluate_and_fail() -> None:
        with average.swapped_in():
            inside.append(model.weight.detach().clone())
            raise KeyError("half-way")

    with pytest.raises(KeyError, match="half-way"):
        evaluate_and_fail()
    assert torch.equal(inside[0], kept)
    assert torch.equal(model.weight, own)
    assert torch.equal(average.average["weight"], kept)


def test_a_restored_average_continues_bit_for_bit() -> None:
    model = nn.Linear(3, 2)
    whole = WeightAverage(model, decay=0.9)
    for step in range(3):
        walk(model, step)
        whole.update()
    resumed = WeightAverage(model, decay=0.9)
    resumed.restore(whole.average, updates=3)
    walk(model, 3)
    whole.update()
    resumed.update()
    for name, tensor in whole.average.items():
        assert torch.equal(tensor, resumed.average[name])
