"""Level, slope and season as matrices, and the network that outputs their parameters."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import small
from logsparse.data.windows import Batch
from logsparse.model.decode import draws
from logsparse.model.statespace import LONGEST_SEASON, NOISE_FLOOR, STARTS, WAVES, Structural, Structure, run_filter
from logsparse.train.batches import TrainingSet
from logsparse.train.loop import Training
from logsparse.train.loss import nll_sum

STRUCTURES = [Structure(), Structure(24), Structure(7, 1.0), Structure(1, 0.9), Structure(48, 0.9), Structure(31)]


def made(structure: Structure, *, missing: float = 0.1) -> tuple[Structural, TrainingSet, Batch]:
    settings = small.config({"width": 9, "layers": 2, "unknown_series": 0.1})
    data = TrainingSet.of(small.panel(missing=missing), settings)
    network = Structural(settings.model, structure, length=settings.length, features=len(data.features), series=5)
    network.initialise(torch.Generator().manual_seed(0))
    series = np.arange(5)
    return network, data, data.windows(series, data.windows.panel.lengths[series]).clone()


def test_a_short_season_has_one_state_per_phase() -> None:
    emission = Structure(3).emission(5)
    assert emission.tolist() == [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 1, 0]]
    assert Structure(24).emission(4).shape == (4, 5), "a step that no window has needs no state"


def test_a_long_season_is_a_sum_of_periodic_waves() -> None:
    season = LONGEST_SEASON + 1
    emission = Structure(season).emission(2 * season)[:, 1:]
    assert emission.shape[1] == 2 * WAVES
    torch.testing.assert_close(emission[:season], emission[season:])
    torch.testing.assert_close(emission.square().sum(1), torch.ones(2 * season, dtype=torch.float64))
    alike = emission[:season] @ emission[0]
    assert alike.argmax() == 0
    assert (alike[season // 4 : 3 * season // 4] < 0.3).all(), "what happens at one step hardly moves far ones"


def test_a_slope_is_added_to_the_level_and_damped_by_the_trend() -> None:
    structure = Structure(2, 0.5)
    transition, state = structure.transition(3), torch.tensor([1.0, 8.0, 0.0, 0.0]).double()
    assert transition is not None
    levels = [float(torch.linalg.matrix_power(transition, n)[0] @ state) for n in range(4)]
    assert levels == [1, 1 + 4, 1 + 4 + 2, 1 + 4 + 2 + 1]
    assert float(structure.emission(3)[0] @ state) == 1 + 4, "a step is where the slope has brought the level"
    assert Structure(2).transition(3) is None


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_the_outputs_of_a_fresh_network_are_its_starts(structure: Structure) -> None:
    network, _, batch = made(structure)
    with torch.no_grad():
        network.output.weight.zero_()
        model = network.model(network(batch))
    assert model.noise_BL.sqrt().numpy() == pytest.approx(STARTS["noise"] + NOISE_FLOOR)
    assert model.innovation_BLD[..., 0].numpy() == pytest.approx(STARTS["level"])
    slopes = int(structure.trend != 0)
    moves = model.innovation_BLD[..., 1 + slopes :]
    if structure.season > 1:
        assert (moves * model.emission_BLD[..., 1 + slopes :]).sum(-1).numpy() == pytest.approx(STARTS["season"])
    first = run_filter(model, batch.values_BL, torch.zeros_like(batch.observed_BL)).variance_BL[:, 0]
    parts = [STARTS["first_level"], structure.trend * STARTS["first_slope"], STARTS["noise"] + NOISE_FLOOR]
    parts += [STARTS["first_season"]] if structure.season > 1 else []
    assert first.numpy() == pytest.approx(sum(part**2 for part in parts))


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_the_density_is_that_of_the_raw_values_and_the_horizon_alone_is_its_end(structure: Structure) -> None:
    network, data, _ = made(structure)
    batch = data.windows(np.arange(5), np.full(5, 40)).clone()
    raw, scale = network(batch), batch.scale_B[:, None].double()
    filtered = run_filter(network.model(raw), batch.values_BL / scale, batch.observed_BL)
    expected = torch.distributions.Normal(filtered.mean_BL * scale, filtered.variance_BL.sqrt() * scale)
    found = network.log_density(raw, batch)
    seen = batch.observed_BL
    error = (batch.values_BL - expected.mean) / expected.stddev
    by_hand = -error.square() / 2 - expected.stddev.log() - math.log(2 * math.pi) / 2
    torch.testing.assert_close(found[seen], by_hand[seen].float())
    assert (found[~seen] == 0).all()
    assert torch.equal(network.log_density(raw, batch, batch.context), found[:, batch.context :])


def test_the_lstm_never_sees_a_value() -> None:
    network, _, batch = made(Structure(24))
    other = replace(batch, values_BL=batch.values_BL + 5, lagged_BLK=batch.lagged_BLK + 5)
    assert torch.equal(network(batch), network(other))


def test_missing_targets_do_not_touch_density_or_gradients() -> None:
    network, data, _ = made(Structure(24, 1.0), missing=0.3)
    batch = data.windows(np.arange(5), np.full(5, 40)).clone()
    poisoned = batch.clone()
    poisoned.values_BL[~poisoned.observed_BL] = 1e9
    found = []
    for windows in (batch, poisoned):
        network.zero_grad()
        total, _ = nll_sum(network, network, windows, "all")
        torch.autograd.backward(total)
        found.append([total, *(weight.grad.clone() for weight in network.parameters() if weight.grad is not None)])
    for one, other in zip(*found, strict=True):
        assert torch.isfinite(one).all()
        assert torch.equal(one, other)


def test_dropout_acts_only_with_a_generator() -> None:
    network, _, batch = made(Structure(24))
    assert torch.equal(network(batch), network(batch))
    dropped = [network(batch, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(dropped[0], dropped[1])
    assert not torch.equal(dropped[0], dropped[2])


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_mean_and_quantiles_agree_with_those_of_many_paths(structure: Structure) -> None:
    network, _, batch = made(structure)
    uniform = draws(0, np.arange(5, dtype=np.uint64), 4000, batch.horizon)
    levels = (0.1, 0.5, 0.9)
    found = network.forecast(batch, uniform, levels, "ancestral")
    spread = found.paths_BNH.std(1)
    assert ((found.paths_BNH.mean(1) - found.mean_BH) / spread).abs().max() < 0.06
    drawn = torch.quantile(found.paths_BNH, torch.tensor(levels), dim=1).transpose(0, 1)
    assert ((drawn - found.quantiles_BQH) / spread[:, None]).abs().max() < 0.1
    torch.testing.assert_close(found.quantiles_BQH[:, 1], found.mean_BH)


def test_a_forecast_ignores_the_horizon_and_agrees_with_the_density() -> None:
    network, data, _ = made(Structure(24), missing=0)
    batch = data.windows(np.arange(5), np.full(5, 60)).clone()
    changed = batch.clone()
    changed.values_BL[:, batch.context :] = 1e6
    uniform = draws(0, np.arange(5, dtype=np.uint64), 3, batch.horizon)
    one, other = (network.forecast(windows, uniform, (0.5,), "ancestral") for windows in (batch, changed))
    assert torch.equal(one.paths_BNH, other.paths_BNH)
    scale = batch.scale_B[:, None].double()
    filtered = run_filter(network.model(network(batch)), batch.values_BL / scale, batch.observed_BL)
    now = batch.context
    torch.testing.assert_close(one.mean_BH[:, 0], (filtered.mean_BL * scale)[:, now].float())


def test_quantiles_of_the_targets_are_those_of_the_density_that_training_raises() -> None:
    network, _, batch = made(Structure(24))
    raw = network(batch).detach()
    middle, upper = network.quantiles(raw, batch, 3, (0.5, 0.8)).double().unbind(-1)
    deviation = (upper - middle) / torch.special.ndtri(torch.tensor(0.8).double())
    error = (batch.values_BL[:, 3:] - middle) / deviation
    density = -error.square() / 2 - deviation.log() - math.log(2 * math.pi) / 2
    expected = torch.where(batch.observed_BL[:, 3:], density, 0).float()
    torch.testing.assert_close(network.log_density(raw, batch, 3), expected, rtol=1e-4, atol=1e-4)


def test_training_lowers_the_loss() -> None:
    network, data, _ = made(Structure(24))
    run = Training(network, data, small.config(epochs=8, lr=1e-2).train, seed=0, verbose=False)
    before = run.validate()[0]
    story = run.run()
    assert story.best is not None
    assert story.best < before - 0.1
