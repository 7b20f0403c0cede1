"""Windows that begin before their series: every network reads from the first real step on, and nothing before it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import small
from logsparse.attention.maps import attending
from logsparse.attention.pattern import full, restart
from logsparse.config import Config
from logsparse.data.windows import Batch
from logsparse.model.decode import Decoder, decode, decode_plainly, draws
from logsparse.model.network import Network
from logsparse.model.recurrent import Recurrent
from logsparse.model.statespace import Structural, Structure
from logsparse.model.transformer import Transformer
from logsparse.train.batches import TrainingSet

Maker = Callable[[Config, TrainingSet], Network]


def structural(structure: Structure) -> Maker:
    def make(settings: Config, data: TrainingSet) -> Network:
        return Structural(settings.model, structure, length=settings.length, features=len(data.features), series=5)

    return make


def recurrent(settings: Config, data: TrainingSet) -> Network:
    return Recurrent(settings.model, length=settings.length, features=len(data.features), series=5)


DEFAULT = {"width": 16, "head_width": "split", "norm": "pre", "see_missing": True, "lags": (1, 24), "anchor": True}
NETWORKS: dict[str, tuple[dict[str, object], Maker]] = {
    "paper": ({}, small.network),
    "default": ({**DEFAULT, "profiles": ("3x2",)}, small.network),
    "restart": ({"patterns": (full(), restart(8, dense_rows=12))}, small.network),
    "recurrent": ({"width": 9, "layers": 3, "lags": (1, 4)}, recurrent),
    "level": ({"width": 9}, structural(Structure())),
    "level and season": ({"width": 9}, structural(Structure(7, 0.9))),
    "waves": ({"width": 9}, structural(Structure(48))),
}


def made(name: str) -> tuple[Network, Batch]:
    """A network and five windows of which three are padded; all weights are far from 0."""
    changes, maker = NETWORKS[name]
    settings = small.config({**changes, "embed_series": False})
    data = TrainingSet.of(small.panel(missing=0), settings)
    network = maker(settings, data)
    network.initialise(torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return network, small.short_windows(data)


@pytest.mark.parametrize("filling", [1e3, torch.nan], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_neither_losses_nor_gradients_depend_on_what_stands_in_padded_cells(name: str, filling: float) -> None:
    network, batch = made(name)

    def found(windows: Batch) -> list[torch.Tensor]:
        loss = network.log_density(network(windows), windows).sum()
        return [loss.detach(), *torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)]

    for before, after in zip(found(batch), found(small.soiled(batch, filling)), strict=True):
        assert (before is None) == (after is None)
        assert before is None or torch.equal(before, after)


@pytest.mark.parametrize("name", NETWORKS)
def test_forecasts_do_not_depend_on_what_stands_in_padded_cells(name: str) -> None:
    network, batch = made(name)
    uniform = draws(0, np.arange(5, dtype=np.uint64), 3, 6)
    before, after = (
        network.forecast(windows, uniform, [0.1, 0.9], "two-way") for windows in (batch, small.soiled(batch, torch.nan))
    )
    for part in ("paths_BNH", "mean_BH", "quantiles_BQH"):
        assert torch.equal(getattr(before, part), getattr(after, part)), part
        assert getattr(before, part).isfinite().all()


@pytest.mark.parametrize("name", ["recurrent", "level", "level and season", "waves"])
def test_a_padded_window_is_read_like_one_that_begins_with_its_series(name: str) -> None:
    network, batch = made(name)
    density_BL = network.log_density(network(batch), batch)
    for row, padding in enumerate(batch.padding_B.tolist()):
        alone = cut(batch, row, padding)
        if isinstance(network, Structural):
            length, features = alone.values_BL.shape[1], alone.features_BLF.shape[2]
            again = Structural(network.config, network.structure, length=length, features=features, series=5)
            again.load_state_dict(network.state_dict())
            found_L = again.log_density(again(alone), alone)[0]
        else:
            found_L = network.log_density(network(alone), alone)[0]
        torch.testing.assert_close(density_BL[row, padding:], found_L, rtol=1e-4, atol=1e-4)


def cut(batch: Batch, row: int, padding: int) -> Batch:
    """One window without its padding, as if the context were so much shorter."""
    per_step = {"values_BL", "observed_BL", "lagged_BLK", "lag_observed_BLK", "profile_BLR", "spread_BLR"}
    per_step |= {"profile_observed_BLR", "features_BLF"}
    tensors = {
        name: part[row : row + 1, padding:] if name in per_step else part[row : row + 1]
        for name, part in vars(batch).items()
        if name != "context"
    }
    tensors["padding_B"] = torch.zeros(1, dtype=torch.int64)
    return Batch(context=batch.context - padding, **tensors)


@pytest.mark.parametrize("method", ["ancestral", "mean-path"])
@pytest.mark.parametrize("name", ["paper", "default", "restart", "recurrent"])
def test_decoding_a_padded_window_step_by_step_equals_whole_passes(name: str, method: str) -> None:
    network, batch = made(name)
    assert isinstance(network, Decoder)
    uniform = draws(0, np.arange(5, dtype=np.uint64), 3, 6)
    found = decode(network, batch, uniform, [0.5], method).paths_BNH
    torch.testing.assert_close(found, decode_plainly(network, batch, uniform, method), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["paper", "default", "restart"])
def test_a_window_is_forecast_the_same_beside_padded_ones_and_alone(name: str) -> None:
    network, batch = made(name)
    assert isinstance(network, Transformer)
    alone = batch.each(lambda part: part[3:4])
    assert alone.starts_B is None
    torch.testing.assert_close(network(batch)[3:4], network(alone), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("step", [None, 0, 5])
@pytest.mark.parametrize("name", ["paper", "default", "restart"])
def test_padded_cells_have_exactly_no_weight_in_what_a_forecast_looks_at(
    name: str, step: int | None, layer: int
) -> None:
    network, batch = made(name)
    assert isinstance(network, Transformer)
    for row in range(4):
        window, padding = batch.each(lambda part, row=row: part[row : row + 1]), int(batch.padding_B[row])  # type: ignore[misc]
        weights = attending(network, window, layer, step).weights
        assert (weights[..., :padding] == 0).all()
        seen = weights[..., padding:, padding:] if step is None else weights[..., padding:]
        np.testing.assert_allclose(seen.sum(-1), 1, rtol=1e-5)
