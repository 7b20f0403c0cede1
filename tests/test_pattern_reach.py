"""What stacked layers reach: Theorem 1, and the quick ways against plain matrix products."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logsparse.attention.pattern import Pattern, from_distances, full, local, logsparse, restart, seasonal
from logsparse.attention.reach import Bools

short = st.integers(1, 40)
patterns = st.one_of(
    st.builds(full, dense_rows=short),
    st.builds(local, st.integers(1, 8), st.integers(2, 4), dense_rows=st.integers(0, 20)),
    st.builds(restart, st.integers(1, 20), st.none() | st.integers(1, 8), dense_rows=st.integers(0, 20)),
    st.builds(seasonal, st.integers(2, 20), dense_rows=st.integers(0, 20)),
    st.builds(from_distances, st.sets(st.integers(1, 30), max_size=5), dense_rows=st.integers(0, 20)),
)


def by_matrix_products(pattern: Pattern, length: int, layers: int) -> Bools:
    received = np.eye(length, dtype=np.int64)
    for _ in range(layers):
        received = np.minimum(pattern.mask(length).astype(np.int64) @ received, 1)
    return received.astype(bool)


@pytest.mark.parametrize("l", [1, 2, 3, 4, 5, 7, 8, 9, 100, 127, 128, 129, 768, 4096])
def test_theorem_1_every_cell_is_reached_within_floor_log2_l_plus_1_layers(l: int) -> None:  # noqa: E741
    layers = logsparse().layers_to_reach(l)
    assert layers is not None
    assert layers <= math.floor(math.log2(l)) + 1
    assert layers == math.floor(math.log2(l))


@given(query=st.integers(0, 300), key=st.integers(0, 300))
def test_theorem_1_shortest_paths_number_the_factorial_of_the_ones_in_the_distance(query: int, key: int) -> None:
    key, query = sorted((key, query))
    ones = (query - key).bit_count()
    assert logsparse().paths(query, key, ones) == math.factorial(ones)
    assert all(logsparse().paths(query, key, fewer) == 0 for fewer in range(ones))


@pytest.mark.parametrize("m", range(1, 13))
def test_theorem_1_paths_across_two_to_the_m_less_one_number_m_factorial(m: int) -> None:
    assert logsparse().paths(2**m + 4, 5, m) == math.factorial(m)


@pytest.mark.parametrize("length", [16, 96, 768])
def test_local_and_restart_never_need_more_layers_than_logsparse(length: int) -> None:
    plain = logsparse().layers_to_reach(length)
    assert plain is not None
    for pattern in (local(7), restart(length // 8), restart(length // 8, 1), full()):
        layers = pattern.layers_to_reach(length)
        assert layers is not None
        assert layers <= plain


def test_the_paper_s_fine_pattern_reaches_all_768_cells_in_4_layers_and_576_in_4() -> None:
    assert restart(96).layers_to_reach(768) == 4
    assert restart(72).layers_to_reach(576) == 4


def test_full_attention_needs_one_layer_and_a_single_cell_none() -> None:
    assert full().layers_to_reach(500) == 1
    assert full().layers_to_reach(1) == 0


def test_a_pattern_of_even_distances_never_reaches_the_odd_ones() -> None:
    assert from_distances([2, 4]).layers_to_reach(9) is None
    assert from_distances([2]).layers_to_reach(2) is None


def test_dense_first_rows_can_save_layers() -> None:
    # Without them cell 0 is 15 = 8 + 7 * 1 away from the last row; with them cell 8 is the hardest: 7 * 1.
    assert from_distances([1, 8]).layers_to_reach(16) == 8
    assert from_distances([1, 8], dense_rows=8).layers_to_reach(16) == 7


@given(pattern=patterns, length=short, layers=st.integers(0, 6))
def test_reach_is_what_matrix_products_say(pattern: Pattern, length: int, layers: int) -> None:
    assert (pattern.reach(length, layers) == by_matrix_products(pattern, length, layers)).all()


@given(pattern=patterns, length=short)
def test_layers_to_reach_is_the_first_number_with_nothing_missing(pattern: Pattern, length: int) -> None:
    past = np.tri(length, dtype=bool)
    found = (k for k in range(length + 1) if (by_matrix_products(pattern, length, k) == past).all())
    assert pattern.layers_to_reach(length) == next(found, None)


@given(pattern=patterns, length=short)
def test_arrivals_are_the_layers_in_which_the_last_row_first_receives_each_cell(pattern: Pattern, length: int) -> None:
    layer_of = pattern.arrivals(length)
    for layers in range(8):
        heard = by_matrix_products(pattern, length, layers)[-1]
        assert ((layer_of >= 0) & (layer_of <= layers) == heard).all()


def test_what_enters_the_dense_rows_in_the_last_layer_comes_out_one_layer_later() -> None:
    assert list(from_distances([5], dense_rows=2).arrivals(7)) == [2, 1, -1, -1, -1, -1, 0]


@given(pattern=patterns, query=st.integers(0, 25), key=st.integers(0, 25), edges=st.integers(0, 6))
def test_paths_are_what_matrix_powers_without_self_edges_say(
    pattern: Pattern, query: int, key: int, edges: int
) -> None:
    length = max(query, key) + 1
    steps = pattern.mask(length).astype(object) - np.eye(length, dtype=object).astype(int)
    counted = np.linalg.matrix_power(steps, edges) if edges else np.eye(length)
    assert pattern.paths(query, key, edges) == int(counted[query, key])


def test_path_counts_outgrow_64_bits_without_harm() -> None:
    assert full().paths(200, 0, 100) == math.comb(199, 99)


def test_long_inputs_need_no_square_matrix() -> None:
    assert logsparse().layers_to_reach(2**20) == 20
    assert restart(2**15, dense_rows=500).layers_to_reach(2**18) is not None
