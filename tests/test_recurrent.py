"""DeepAR's network: causal, the same step by step as over whole windows, its dropout only with a generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import small
from logsparse.data.windows import Batch
from logsparse.model.decode import decode, decode_plainly, draws
from logsparse.model.recurrent import Recurrent
from logsparse.train.batches import TrainingSet
from logsparse.train.loop import Training


def made() -> tuple[Recurrent, TrainingSet, Batch]:
    settings = small.config(
        {"width": 9, "layers": 3, "lags": (1, 4), "profiles": ("2x2", "3x1"), "see_missing": True, "anchor": True}
    )
    data = TrainingSet.of(small.panel(), settings)
    network = Recurrent(settings.model, length=settings.length, features=len(data.features), series=5)
    network.initialise(torch.Generator().manual_seed(0))
    series = np.arange(5)
    return network, data, data.windows(series, data.windows.panel.lengths[series]).clone()


@pytest.mark.parametrize("method", ["ancestral", "mean-path"])
def test_paths_step_by_step_equal_plain_ones(method: str) -> None:
    network, _, batch = made()
    uniform = draws(0, np.arange(5, dtype=np.uint64), 3, 6)
    found = decode(network, batch, uniform, [0.5], method).paths_BNH
    torch.testing.assert_close(found, decode_plainly(network, batch, uniform, method), rtol=1e-4, atol=1e-4)


def test_a_position_does_not_depend_on_what_comes_later() -> None:
    network, _, batch = made()
    changed = batch.clone()
    changed.lagged_BLK[:, 20:] += 7
    before, after = network(batch), network(changed)
    torch.testing.assert_close(before[:, :20], after[:, :20])
    assert (before[:, 20:] != after[:, 20:]).any()


def test_dropout_acts_only_with_a_generator() -> None:
    network, _, batch = made()
    assert torch.equal(network(batch), network(batch))
    dropped = [network(batch, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(dropped[0], dropped[1])
    assert not torch.equal(dropped[0], dropped[2])


def test_training_lowers_the_loss() -> None:
    network, data, _ = made()
    run = Training(network, data, small.config(epochs=8, lr=1e-2).train, seed=0, verbose=False)
    before = run.validate()[0]
    story = run.run()
    assert story.best is not None
    assert story.best < before
