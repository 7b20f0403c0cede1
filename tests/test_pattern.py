"""Patterns: the distances of the paper, and the invariants of every pattern."""

from __future__ import annotations

import doctest
import json
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from logsparse.attention import pattern as module
from logsparse.attention.attend import attend
from logsparse.attention.pattern import PATTERNS, Pattern, from_distances, full, local, logsparse, restart, seasonal
from logsparse.errors import ConfigError

PAPER_KEPT = {*range(7), 7, 8, 10, 14, 22, 38, 70}

dense = st.integers(0, 40)
bases = st.integers(2, 5)
widths = st.integers(1, 12)
lengths = st.integers(1, 120)
patterns = st.one_of(
    st.builds(full, dense_rows=dense),
    st.builds(logsparse, bases, dense_rows=dense),
    st.builds(local, widths, bases, dense_rows=dense),
    st.builds(restart, st.integers(1, 50), st.none() | widths, bases, dense_rows=dense),
    st.builds(seasonal, st.integers(2, 50), bases, dense_rows=dense),
    st.builds(from_distances, st.sets(st.integers(0, 150), max_size=8), dense_rows=dense),
)


def test_full_is_every_distance() -> None:
    assert full().distances(6) == (0, 1, 2, 3, 4, 5)


def test_logsparse_is_the_cell_itself_and_the_powers_of_two() -> None:
    assert logsparse().distances(17) == (0, 1, 2, 4, 8, 16)
    assert logsparse().distances(16) == (0, 1, 2, 4, 8)


def test_logsparse_takes_any_base() -> None:
    assert logsparse(3).distances(28) == (0, 1, 3, 9, 27)


def test_local_is_dense_in_its_window_then_resumes_from_the_left_edge() -> None:
    assert local(4).distances(40) == (0, 1, 2, 3, 4, 5, 7, 11, 19, 35)


@given(base=bases, dense_rows=dense)
def test_local_of_width_1_is_logsparse(base: int, dense_rows: int) -> None:
    assert local(1, base, dense_rows=dense_rows) == logsparse(base, dense_rows=dense_rows)


@given(sub=st.integers(1, 50), width=widths, base=bases, length=lengths)
def test_restart_is_local_kept_to_sub_and_repeated_at_every_multiple_of_sub(
    sub: int, width: int, base: int, length: int
) -> None:
    kept = [s for s in local(width, base).distances(length + sub + width) if s <= sub]
    repeated = {s + m * sub for s in kept for m in range(length)}
    assert restart(sub, width, base).distances(length) == tuple(sorted(s for s in repeated if s < length))


@given(sub=st.integers(2, 5000))
def test_restart_without_a_width_takes_the_paper_s_logarithm(sub: int) -> None:
    assert restart(sub) == restart(sub, math.ceil(math.log2(sub)))
    assert restart(1) == restart(1, 1)


def test_the_seasonal_pattern_adds_every_season_and_its_neighbours_to_the_powers() -> None:
    seasons = {24 * m + beside for m in range(1, 9) for beside in (-1, 0, 1)}
    assert set(seasonal(24).distances(192)) == {*logsparse().distances(192), *seasons} - {192, 193}
    assert (seasonal(24).layers_to_reach(192), logsparse().layers_to_reach(192)) == (4, 7)


@given(length=lengths)
def test_restart_of_one_cell_hides_nothing(length: int) -> None:
    assert restart(1).distances(length) == full().distances(length)


@pytest.mark.parametrize(("length", "matched"), [(768, 293), (576, 254)])
def test_the_paper_s_restart_reads_112_cells_and_costs_as_much_as_full_attention_of_293_and_254(
    length: int, matched: int
) -> None:
    pattern = restart(length // 8)
    sub = length // 8
    assert pattern == restart(sub, width=7)
    assert set(pattern.distances(length)) == {s + m * sub for s in PAPER_KEPT for m in range(8)}
    assert pattern.row_cells(length) == 112
    assert round(math.sqrt(length * pattern.row_cells(length))) == matched


@pytest.mark.parametrize("length", [768, 576])
def test_the_paper_s_dense_first_rows_cost_no_extra_space(length: int) -> None:
    pattern = restart(length // 8, dense_rows=112)
    assert pattern.row_cells(length) == restart(length // 8).row_cells(length)
    assert pattern.mask(length)[:112, :112].sum() == 112 * 113 // 2
    assert (pattern.mask(length)[112:] == restart(length // 8).mask(length)[112:]).all()


@given(pattern=patterns, length=lengths)
def test_every_mask_is_causal_and_every_cell_sees_itself(pattern: Pattern, length: int) -> None:
    mask = pattern.mask(length)
    assert mask.shape == (length, length)
    assert mask.dtype == np.bool_
    assert not np.triu(mask, 1).any()
    assert mask.diagonal().all()


@given(pattern=patterns, length=lengths)
def test_the_mask_s_rows_are_the_distances_after_the_dense_ones(pattern: Pattern, length: int) -> None:
    distances = pattern.distances(length)
    assert list(distances) == sorted(set(distances))
    assert distances[0] == 0
    assert distances[-1] < length
    for row, cells in enumerate(pattern.mask(length)):
        seen = range(row + 1) if row < pattern.dense_rows else [s for s in distances if s <= row]
        assert set(row - np.flatnonzero(cells)) == set(seen)


@given(pattern=patterns, length=lengths)
def test_cells_and_row_cells_count_the_mask(pattern: Pattern, length: int) -> None:
    mask = pattern.mask(length)
    assert pattern.cells(length) == mask.sum()
    assert pattern.row_cells(length) == mask.sum(axis=1).max()


@given(pattern=patterns, length=lengths)
def test_a_longer_input_adds_distances_and_changes_none(pattern: Pattern, length: int) -> None:
    longer = pattern.distances(length + 30)
    assert pattern.distances(length) == tuple(s for s in longer if s < length)


@given(pattern=patterns)
def test_a_pattern_comes_back_from_json_and_from_its_repr(pattern: Pattern) -> None:
    again = Pattern.from_dict(json.loads(json.dumps(pattern.to_dict())))
    assert again == pattern
    assert hash(again) == hash(pattern)
    assert eval(repr(pattern)) == pattern  # noqa: S307


def test_the_repr_shows_rule_and_settings() -> None:
    assert repr(restart(96, dense_rows=112)) == "restart(sub_length=96, width=7, base=2, dense_rows=112)"
    assert repr(local(7)) == "local(width=7, base=2)"
    assert repr(full()) == "full()"
    assert repr(from_distances([5, 1])) == "from_distances(distances=(0, 1, 5))"


def test_different_settings_are_different_patterns() -> None:
    kinds = [
        full(),
        full(dense_rows=1),
        logsparse(),
        logsparse(3),
        local(2),
        restart(96),
        seasonal(24),
        from_distances([1]),
    ]
    assert len(set(kinds)) == len(kinds)


def test_numpy_numbers_become_plain_ones() -> None:
    pattern = restart(np.int64(96), np.int64(7), np.int64(2), dense_rows=np.int64(3))  # type: ignore[arg-type]
    assert json.dumps(pattern.to_dict()) == json.dumps(restart(96, 7, dense_rows=3).to_dict())
    assert local(np.int64(7)).to_dict() == local(7).to_dict()  # type: ignore[arg-type]
    assert json.dumps(local(np.int64(7)).to_dict())  # type: ignore[arg-type]


def test_the_examples_of_the_docstrings_run() -> None:
    failed, tried = doctest.testmod(module)
    assert failed == 0
    assert tried >= 2 * len(PATTERNS)


def test_an_entry_of_the_registry_has_the_name_of_its_function() -> None:
    assert {name: rule.make.__name__ for name, rule in PATTERNS.items()} == {name: name for name in PATTERNS}


def test_a_new_entry_of_the_registry_is_a_pattern_that_saves_and_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def every(n: int, *, dense_rows: int = 0) -> Pattern:
        return Pattern("every", (("n", n),), dense_rows=dense_rows)

    monkeypatch.setitem(PATTERNS, "every", module.Rule(every, lambda length, n: range(0, length, n), {"n": "step"}))
    assert every(24).distances(60) == (0, 24, 48)
    assert Pattern.from_dict(every(24).to_dict()) == every(24)


def test_patterns_need_neither_torch_nor_numpy_before_a_mask_is_asked_for() -> None:
    program = "import sys, logsparse.attention.pattern; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: logsparse(1), r"base must be at least 2\. Got 1\. Hint: see `help"),
        (lambda: local(0), r"width must be at least 1\. Got 0\."),
        (lambda: local(2.5), r"width must be a whole number\. Got 2\.5\."),  # type: ignore[arg-type]
        (lambda: local(True), r"width must be a whole number\. Got True\."),
        (lambda: restart(0), r"sub_length must be at least 1\. Got 0\."),
        (lambda: restart(8, 0), r"width must be at least 1\. Got 0\."),
        (lambda: restart(8, base=0), r"base must be at least 2\. Got 0\."),
        (lambda: full(dense_rows=-1), r"dense_rows must be at least 0\. Got -1\."),
        (lambda: from_distances([3, -2]), r"a distance must be at least 0\. Got -2\."),
        (lambda: full().distances(0), r"length must be at least 1\. Got 0\."),
        (lambda: full().mask(0), r"length must be at least 1\. Got 0\."),
        (lambda: full().reach(4, -1), r"layers must be at least 0\. Got -1\."),
        (lambda: full().paths(-1, 0, 1), r"query must be at least 0\. Got -1\."),
        (lambda: full().paths(1, -3, 1), r"key must be at least 0\. Got -3\."),
        (lambda: full().paths(1, 0, -1), r"edges must be at least 0\. Got -1\."),
        (lambda: Pattern.from_dict({}), r"one of full, .*, from_distances, .* Got \{\}\. Hint: write"),
        (lambda: Pattern.from_dict({"rule": "star"}), r"needs a rule, .* Got \{'rule': 'star'\}\."),
        (lambda: Pattern.from_dict({"rule": "local"}), r"that rule's settings\. Got \{'rule': 'local'\}\."),
        (lambda: Pattern.from_dict({"rule": "full", "width": 2}), r"settings\. Got .*'width': 2\}\."),
    ],
)
def test_a_wrong_argument_is_refused_with_the_rule_and_the_value(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        call()


def test_lengths_of_numpy_count_like_any_other() -> None:
    assert full().cells(np.int32(70_000)) == 2_450_035_000  # type: ignore[arg-type]
    assert logsparse().cells(np.uint8(200)) == logsparse().cells(200)  # type: ignore[arg-type]
    assert logsparse().mask(np.uint8(200)).shape == (200, 200)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: Pattern("foo"), "A pattern's rule must be one of full, logsparse"),
        (lambda: Pattern.from_dict("full"), "A pattern is read from a dict. Got 'full'"),  # type: ignore[arg-type]
        (lambda: from_distances(5), "distances must be a list of them. Got 5"),  # type: ignore[arg-type]
        (lambda: full().cells("3"), "length must be a whole number. Got '3'"),  # type: ignore[arg-type]
    ],
)
def test_anything_but_a_pattern_is_refused(act: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        act()


@pytest.mark.parametrize(
    "pattern",
    [full(), logsparse(), local(5), restart(8), seasonal(6), logsparse(dense_rows=7), from_distances([3, 40])],
    ids=str,
)
@pytest.mark.parametrize("length", [1, 2, 37, 130])
def test_the_function_for_flex_attention_is_the_mask(pattern: Pattern, length: int) -> None:
    mask_mod = pattern.mask_mod(length)
    where = torch.arange(length)
    got = mask_mod(torch.tensor(0), torch.tensor(0), where[:, None], where)
    assert torch.equal(got, torch.from_numpy(pattern.mask(length)))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_over_the_function_is_attend() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    pattern, q = restart(16), torch.randn(2, 2, 128, 16)
    blocks = flex.create_block_mask(pattern.mask_mod(128), None, None, 128, 128, device="cpu")
    torch.testing.assert_close(flex.flex_attention(q, q, q, block_mask=blocks), attend(q, q, q, pattern))
