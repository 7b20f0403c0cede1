"""Optimisers against a slow oracle, schedules, clipping, early stopping; a restored optimiser continues bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from logsparse.train.optim import (
    SCHEDULES,
    EarlyStopping,
    clip_gradients,
    one_cycle,
    optimiser,
    optimiser_layout,
    optimiser_state,
    progress_of,
    restore_optimiser,
    set_rate,
    warmup_decay,
)


def small_model(seed: int = 0, width: int = 3) -> nn.Module:
    model = nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), nn.Linear(width, 2))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return model


def put_gradients(model: nn.Module, step: int, size: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(1000 + step)
    for weight in model.parameters():
        weight.grad = size * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)


def bert_adam_by_hand(
    weight: list[float], gradients: list[list[float]], rates: list[float], decay: float
) -> list[float]:
    """The rule of the method page in plain Python, one number at a time."""
    first, second = [0.0] * len(weight), [0.0] * len(weight)
    for gradient, rate in zip(gradients, rates, strict=True):
        norm = math.sqrt(sum(g * g for g in gradient))
        if norm > 1:
            gradient = [g / norm for g in gradient]  # noqa: PLW2901
        for i, g in enumerate(gradient):
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.999 * second[i] + 0.001 * g * g
            weight[i] -= rate * (first[i] / (math.sqrt(second[i]) + 1e-6) + decay * weight[i])
    return weight


@pytest.mark.parametrize("size", [1e-4, 0.1, 30.0])
def test_bert_adam_follows_the_rule_written_out_by_hand(size: float) -> None:
    model = small_model().double()
    total, peak = 40, 0.01
    rates = [peak * warmup_decay(progress_of(step, total)) for step in range(total)]
    start = {name: weight.detach().flatten().tolist() for name, weight in model.named_parameters()}
    seen: dict[str, list[list[float]]] = {name: [] for name in start}
    optim = optimiser("bertadam", model, lr=peak)
    for step in range(total):
        put_gradients(model, step, size)
        for name, weight in model.named_parameters():
            assert weight.grad is not None
            seen[name].append(weight.grad.flatten().tolist())
        set_rate(optim, rates[step])
        optim.step()
    for name, weight in model.named_parameters():
        decay = 0.01 if weight.ndim >= 2 else 0.0
        want = bert_adam_by_hand(start[name], seen[name], rates, decay)
        assert weight.flatten().tolist() == pytest.approx(want, rel=1e-9, abs=1e-12)


def test_weights_without_a_gradient_stay_where_they_are() -> None:
    model = small_model()
    before = model[0].weight.detach().clone()  # type: ignore[index]
    put_gradients(model, 0)
    model[0].weight.grad = None  # type: ignore[index]
    optimiser("bertadam", model, lr=0.1).step()
    assert torch.equal(model[0].weight, before)  # type: ignore[index]


@pytest.mark.parametrize("name", ["adamw", "bertadam"])
def test_weight_decay_shrinks_matrices_but_neither_biases_nor_norms(name: str) -> None:
    model = small_model()
    before = {key: weight.detach().clone() for key, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimiser(name, model, lr=0.1).step()
    for key, weight in model.named_parameters():
        shrink = 1 - 0.1 * 0.01 if key in {"0.weight", "2.weight"} else 1.0
        torch.testing.assert_close(weight.detach(), before[key] * shrink)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_first_moves_every_weight_by_the_learning_rate(name: str) -> None:
    model = small_model()
    before = [weight.detach().clone() for weight in model.parameters()]
    put_gradients(model, 0)
    optimiser(name, model, lr=0.01, weight_decay=0.0).step()
    for weight, old in zip(model.parameters(), before, strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.detach(), old - 0.01 * weight.grad.sign(), rtol=0, atol=1e-6)


def test_frozen_weights_are_left_out_of_the_optimiser() -> None:
    model = small_model()
    model[0].requires_grad_(requires_grad=False)  # type: ignore[index]
    assert sum(len(group["params"]) for group in optimiser("adam", model, lr=0.1).param_groups) == 4


@pytest.mark.parametrize("name", ["adam", "adamw", "bertadam"])
def test_a_restored_optimiser_continues_bit_for_bit(name: str) -> None:
    def run(steps: range, model: nn.Module, optim: torch.optim.Optimizer) -> None:
        for step in steps:
            put_gradients(model, step)
            set_rate(optim, 0.01 / (1 + step))
            optim.step()

    whole, cut, resumed = small_model(), small_model(), small_model(seed=9)
    run(range(9), whole, optimiser(name, whole, lr=0.01))
    before_cut = optimiser(name, cut, lr=0.01)
    run(range(4), cut, before_cut)
    tensors = {key: tensor.clone() for key, tensor in optimiser_state(before_cut).items()}
    weights = {key: weight.clone() for key, weight in cut.state_dict().items()}
    resumed.load_state_dict(weights)
    after_cut = optimiser(name, resumed, lr=0.01)
    restore_optimiser(after_cut, tensors)
    run(range(4, 9), resumed, after_cut)
    assert not torch.equal(tensors["0.weight.exp_avg"], optimiser_state(after_cut)["0.weight.exp_avg"])
    for key, weight in whole.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[key]), key


def test_plain_adam_has_no_weight_decay() -> None:
    optim = optimiser("adam", small_model(), lr=0.1, weight_decay=0.5)
    assert [group["weight_decay"] for group in optim.param_groups] == [0.0, 0.0]


@pytest.mark.parametrize("name", ["adam", "adamw", "bertadam"])
def test_the_layout_of_a_state_has_its_names_shapes_and_types(name: str) -> None:
    model = small_model()
    optim = optimiser(name, model, lr=0.1)
    assert optimiser_layout(optim, []) == optimiser_state(optim) == {}
    put_gradients(model, 0)
    model[2].bias.grad = None  # type: ignore[index]
    optim.step()
    state = optimiser_state(optim)
    layout = optimiser_layout(optim, state)
    assert {key: (tensor.shape, tensor.dtype) for key, tensor in layout.items()} == {
        key: (tensor.shape, tensor.dtype) for key, tensor in state.items()
    }
    assert "2.bias.exp_avg" not in layout


def test_warmup_and_decay_meet_at_the_top_without_a_jump() -> None:
    assert warmup_decay(0.0) == 0.0
    assert warmup_decay(0.05) == pytest.approx(0.5)
    assert warmup_decay(0.1) == pytest.approx(1.0)
    assert warmup_decay(0.1 + 1e-9) == pytest.approx(1.0)
    assert warmup_decay(0.55) == pytest.approx(0.5)
    assert warmup_decay(1.0) == 0.0
    assert warmup_decay(1.2) == 0.0
    assert warmup_decay(0.5, warmup=0.0) == pytest.approx(0.5)


def test_one_cycle_goes_up_then_down_along_cosines() -> None:
    assert one_cycle(0.0) == pytest.approx(0.04)
    assert one_cycle(0.15) == pytest.approx(0.52)
    assert one_cycle(0.3) == pytest.approx(1.0)
    assert one_cycle(0.65) == pytest.approx(0.5, abs=1e-5)
    assert one_cycle(1.0) == pytest.approx(4e-6)
    assert one_cycle(1.3) == pytest.approx(4e-6)


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_no_schedule_jumps_exceeds_the_peak_or_wastes_a_step(name: str) -> None:
    factors = [SCHEDULES[name](progress_of(step, 1000)) for step in range(1000)]
    assert all(0 < factor <= 1 for factor in factors)
    assert max(factors) == pytest.approx(1.0, abs=0.01)
    assert max(abs(b - a) for a, b in pairwise(factors)) <= 0.0101


def all_gradients(model: nn.Module) -> Tensor:
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def test_clipping_scales_all_gradients_together_and_returns_the_norm_before() -> None:
    model = small_model()
    put_gradients(model, 0)
    before = all_gradients(model)
    assert clip_gradients(model.parameters(), 1.0) == pytest.approx(before.norm().item())
    torch.testing.assert_close(all_gradients(model), before / before.norm())


@pytest.mark.parametrize(
    "spoil", [lambda g: g.mul_(1e-3), lambda g: g[0].fill_(math.nan), lambda g: g[0].fill_(math.inf)]
)
def test_small_and_non_finite_gradients_are_left_alone(spoil: Callable[[Tensor], Tensor]) -> None:
    model = small_model()
    put_gradients(model, 0)
    for weight in model.parameters():
        assert weight.grad is not None
        spoil(weight.grad)
    before = all_gradients(model)
    norm = clip_gradients(model.parameters(), 1.0)
    assert norm < 1 or not math.isfinite(norm)
    torch.testing.assert_close(all_gradients(model), before, rtol=0, atol=0, equal_nan=True)


def test_early_stopping_waits_for_its_patience_after_the_best_loss() -> None:
    stopping = EarlyStopping(patience=2)
    seen = [(stopping.update(loss), stopping.stop) for loss in [3.0, 2.0, math.nan, 1.5, 1.5, 1.6]]
    assert seen == [
        (True, False),
        (True, False),
        (False, False),
        (True, False),
        (False, False),
        (False, True),
    ]
    assert (stopping.best, stopping.best_validation) == (1.5, 4)


def test_early_stopping_stops_a_run_whose_losses_are_all_nan() -> None:
    stopping = EarlyStopping(patience=2)
    assert [stopping.update(math.nan) or stopping.stop for _ in range(2)] == [False, True]
