"""One more position of every path by the kernel equals the computation in torch; paths are independent."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import small
from logsparse.attention.native import available, extension
from logsparse.attention.pattern import Pattern, from_distances, full, logsparse, restart
from logsparse.model import transformer as module
from logsparse.model.block import TiledMemory, kernel_serves
from logsparse.model.transformer import Transformer
from logsparse.train.batches import TrainingSet

# B windows, N paths, T positions of the history, S steps, I inputs, P parameters

pytestmark = pytest.mark.skipif(not available(), reason="the kernel was not built")

LEVELS = extension().levels() if available() else []
SPLIT = {"width": 12, "norm": "pre", "head_width": "split", "lags": (1, 2, 9), "anchor": True, "profiles": ("2x3",)}
MODELS: list[dict[str, Any]] = [{}, SPLIT, {**SPLIT, "see_missing": True, "kernel": 1}, {"anchor": True, "kernel": 6}]
STEPS = 9


def network_of(model: dict[str, Any], dtype: torch.dtype = torch.float32) -> Transformer:
    settings = small.config(model)
    network = small.network(settings, TrainingSet.of(small.panel(), settings))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return network.to(dtype)


def inputs_of(network: Transformer, series: int, paths: int) -> tuple[Tensor, Tensor]:
    """Inputs of a history of 20 positions and of the steps after it; flags of observed lags are 0 or 1."""
    generator, width = torch.Generator().manual_seed(2), network.input_width
    whole = torch.randn(series, 20 + paths * STEPS, width, generator=generator, dtype=network.output.weight.dtype)
    if network.config.see_missing:
        seen = slice(network.observed_from, network.observed_from + network.anchors)
        whole[..., seen] = (whole[..., seen] > 0).to(whole.dtype)
        whole[..., : network.anchors] *= whole[..., seen]  # lags that were not observed are 0
    return whole[:, :20], whole[:, 20:].view(series, STEPS, paths, width).movedim(1, 0)


def decoded(network: Transformer, history_BTI: Tensor, later_SBNI: Tensor, starts_B: Tensor | None = None) -> Tensor:
    """Return (S, B, N, P)."""
    with torch.no_grad():
        _, memory = network.begin(history_BTI, paths=later_SBNI.shape[2], steps=STEPS, starts_B=starts_B)
        return torch.stack([network.advance(inputs_BNI, memory) for inputs_BNI in later_SBNI])


def plainly(monkeypatch: pytest.MonkeyPatch, *given: Any) -> Tensor:
    """Return the same without the kernel."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "kernel_serves", lambda *_: False)
        return decoded(*given)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Any:
    before = extension().level()
    extension().use(request.param)
    yield request.param
    extension().use(before)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(("series", "paths"), [(1, 1), (3, 17), (5, 64), (2, 100), (70, 1)])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_step_equals_the_plain_one(
    monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], series: int, paths: int
) -> None:
    for dtype, near in ((torch.float64, 1e-10), (torch.float32, 2e-4)):
        network = network_of(model, dtype)
        given = network, *inputs_of(network, series, paths)
        torch.testing.assert_close(decoded(*given), plainly(monkeypatch, *given), rtol=near, atol=near)


@pytest.mark.parametrize("pattern", [full(), restart(8, 2), logsparse(dense_rows=27), from_distances([0, 5])], ids=str)
def test_every_pattern_and_padded_histories(monkeypatch: pytest.MonkeyPatch, pattern: Pattern) -> None:
    network = network_of({**SPLIT, "patterns": (pattern,)}, torch.float64)
    history, later = inputs_of(network, 4, 17)
    given = network, history, later, torch.tensor([0, 7, 19, 20 - 1])
    torch.testing.assert_close(decoded(*given), plainly(monkeypatch, *given), rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("level")
def test_a_path_does_not_depend_on_its_neighbours() -> None:
    network = network_of(SPLIT)
    history, later = inputs_of(network, 9, 17)
    together = decoded(network, history, later)
    with torch.no_grad():
        for series in (0, 3, 8):
            _, memory = network.begin(history, paths=5, steps=STEPS)
            found = torch.stack([network.advance(inputs[:, 12:].contiguous(), memory) for inputs in later])
            torch.testing.assert_close(found[:, series], together[:, series, 12:], rtol=0, atol=0)


def test_the_same_with_two_threads() -> None:
    network = network_of(SPLIT)
    given = network, *inputs_of(network, 9, 17)
    one, threads = decoded(*given), torch.get_num_threads()
    torch.set_num_threads(2)
    two = decoded(*given)
    torch.set_num_threads(threads)
    torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_the_kernel_serves_unless_gradients_are_enabled() -> None:
    network = network_of({})
    history_BTI, _ = inputs_of(network, 1, 1)
    assert not kernel_serves(history_BTI, network)
    with torch.no_grad():
        assert isinstance(network.begin(history_BTI, paths=1, steps=1)[1], TiledMemory)
