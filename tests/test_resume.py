"""The folder of a training's checkpoints belongs to one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import small
from logsparse.commands.resume import claim, fingerprint
from logsparse.data.panel import Static
from logsparse.errors import DataError


def test_the_same_run_goes_on_and_another_is_refused(tmp_path: Path) -> None:
    folder, panel, config = tmp_path / "model.training", small.panel(), small.config()
    assert not claim(folder, config, 0, panel)
    assert claim(folder, config, 0, panel)
    with pytest.raises(DataError, match=r"its own\. Got a training with other seed\. Hint: give the same"):
        claim(folder, config, 1, panel)
    with pytest.raises(DataError, match="Got a training with other settings and data"):
        claim(folder, small.config({"layers": 1}), 0, small.panel(seed=1))
    assert claim(folder, config, 0, panel)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="Got something that no training wrote"):
        claim(tmp_path, small.config(), 0, small.panel())
    with pytest.raises(DataError, match="Got something that no training wrote"):
        claim(tmp_path / "letter.txt", small.config(), 0, small.panel())
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DataError, match=r"Got a run\.json that cannot be read"):
        claim(tmp_path, small.config(), 0, small.panel())


def test_data_are_known_by_all_that_a_training_reads() -> None:
    panel = small.panel()
    codes = np.zeros(5, np.int64)
    others = [
        small.panel(seed=1),
        panel.cut(panel.lengths - 1),
        replace(panel, ids=tuple("abcde")),
        replace(panel, starts=panel.starts + 3_600_000_000),
        replace(panel, covariates={"price": panel.values}),
        replace(panel, static={"kind": Static(codes, ("a",))}),
        replace(panel, static={"kind": Static(codes, ("b",))}),
    ]
    prints = [fingerprint(one) for one in (panel, *others)]
    assert len(set(prints)) == len(prints)
    assert fingerprint(small.panel()) == prints[0]
