"""The table and the picture of a pattern: right figures, whole files, the same bytes each time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logsparse.attention.draw import _runs, draw, path_to_last, picture, summary
from logsparse.attention.pattern import Pattern, from_distances, full, local, logsparse, restart
from logsparse.errors import ConfigError, DataError

PICTURES = [
    (logsparse(), 1),
    (full(), 16),
    (logsparse(), 16),
    (restart(8, 1, dense_rows=3), 40),
    (from_distances([2, 6], dense_rows=3), 24),
    (from_distances([1]), 100),
    (restart(96, dense_rows=112), 768),
    (local(7), 5000),
]


def test_the_summary_states_the_paper_s_memory_figures() -> None:
    assert dict(summary(restart(96), 768)) == {
        "pattern": "restart(sub_length=96, width=7, base=2)",
        "length": "768",
        "cells": "46,864",
        "density": "15.9 % of the causal cells",
        "fullest row": "112 cells",
        "layers to reach": "4",
        "memory per layer": "86,016 scores, 14.6 % of full attention's 589,824",
        "costs as much as": "full attention of length 293",
    }
    assert dict(summary(restart(72), 576))["costs as much as"] == "full attention of length 254"


def test_the_summary_of_full_attention_is_its_own_measure() -> None:
    facts = dict(summary(full(), 100))
    assert facts["density"] == "100 % of the causal cells"
    assert facts["memory per layer"] == "10,000 scores, 100 % of full attention's 10,000"
    assert facts["costs as much as"] == "full attention of length 100"


def test_the_summary_says_when_no_number_of_layers_suffices() -> None:
    assert dict(summary(from_distances([2]), 8))["layers to reach"] == "no number suffices"


@pytest.mark.parametrize(("pattern", "length"), PICTURES, ids=str)
def test_every_pattern_draws_at_any_length_to_a_whole_svg(pattern: Pattern, length: int, tmp_path: Path) -> None:
    target = tmp_path / "picture.svg"
    assert draw(pattern, length, target) == target
    root = ET.fromstring(target.read_text())  # noqa: S314
    assert root.tag.endswith("svg")
    assert target.stat().st_size < 1_500_000
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("name", ["one.svg", "one.png", "one.PNG"])
def test_the_same_pattern_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    first = draw(logsparse(), 16, tmp_path / name).read_bytes()
    assert draw(logsparse(), 16, tmp_path / name).read_bytes() == first
    assert draw(logsparse(), 17, tmp_path / name).read_bytes() != first


def test_a_notebook_displays_the_picture_of_a_pattern() -> None:
    data, size = picture(logsparse(), 16)._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert size == {"width": 1100, "height": 490}


@pytest.mark.parametrize("path", [None, 5, "a\0.svg"], ids=repr)
def test_a_picture_goes_to_a_path(path: Any) -> None:
    with pytest.raises(ConfigError, match=r"^A picture is written to the path of a file. Got .* Hint: write"):
        draw(full(), 8, path)


def test_a_picture_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"written as svg, png or pdf\. Got .*picture\.doc\. Hint: end the name in"):
        draw(full(), 8, tmp_path / "picture.doc")


@given(cells=st.sets(st.integers(0, 60)))
def test_runs_are_the_cells_and_never_touch(cells: set[int]) -> None:
    runs = _runs(np.array(sorted(cells), dtype=int))
    assert {cell for first, last in runs for cell in range(first, last + 1)} == cells
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(runs))


@pytest.mark.parametrize(("pattern", "length"), [(p, n) for p, n in PICTURES if n < 1000], ids=str)
def test_the_drawn_path_follows_the_mask_and_is_a_shortest_one(pattern: Pattern, length: int) -> None:
    mask, layer_of = pattern.mask(length), pattern.arrivals(length)
    for cell in np.flatnonzero(layer_of >= 0):
        path = path_to_last(layer_of, pattern, int(cell))
        assert path[0] == cell
        assert path[-1] == length - 1
        assert len(path) == layer_of[cell] + 1
        assert all(mask[hearer, heard] for heard, hearer in pairwise(path))


def test_the_path_of_the_proof_takes_the_binary_digits_from_the_smallest() -> None:
    assert path_to_last(logsparse().arrivals(16), logsparse(), 2) == [2, 3, 7, 15]
