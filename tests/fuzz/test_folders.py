"""The generator of damaged folders: the same seed makes the same case; every kind occurs; every outcome is clear."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from fuzz.case import ACCEPTED, REFUSED, outcome
from fuzz.folders import CHECKPOINT_DAMAGES, MODEL_DAMAGES, case


def test_damaged_folders_are_refused_or_forecast_as_they_should(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(60):
        found = case(np.random.default_rng([20, seed]), tmp_path)
        result = outcome(found)
        counts[result] += 1
        counts[found.kind] += 1
        if found.kind.endswith(("flipped bit", "cut")):
            assert result == REFUSED, found.label
        if found.kind.endswith("untouched"):
            assert result == ACCEPTED, found.label
    assert counts[ACCEPTED] > 5
    assert counts[REFUSED] > 20
    kinds = {f"folder: {kind}" for kind in MODEL_DAMAGES} | {f"checkpoint: {kind}" for kind in CHECKPOINT_DAMAGES}
    assert len(kinds & set(counts)) > len(kinds) / 2


def test_the_same_seed_gives_the_same_case(tmp_path: Path) -> None:
    def cases() -> list[tuple[str, str]]:
        return [case(np.random.default_rng([21, seed]), tmp_path)[:2] for seed in range(10)]

    assert cases() == cases()
