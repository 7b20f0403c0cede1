"""Weighted draws against an oracle that lists every window and its scale."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from logsparse.data import sampler as module
from logsparse.data.calendar import Freq
from logsparse.data.panel import Panel
from logsparse.data.sampler import Candidates, Pairs, Sampler, split
from logsparse.data.scale import Doubles, Scaling


def panel_of(*series: Doubles, beyond: float = np.nan, stored: int = 0) -> Panel:
    """These visible values, each series followed by `stored` steps after the cutoff."""
    lengths = np.array([len(values) for values in series])
    tail = np.full(stored, beyond, np.float32)
    return Panel(
        values=np.concatenate([part for values in series for part in (values.astype(np.float32), tail)]),
        indptr=np.concatenate(([0], np.cumsum(lengths + stored))),
        lengths=lengths,
        ids=tuple(range(len(series))),
        starts=np.zeros(len(series), np.int64),
        freq=Freq("index", 1),
    )


def random_panel(lengths: list[int], seed: int, *, beyond: float = np.nan, stored: int = 0) -> Panel:
    """Series of very different sizes with gaps."""
    generator = np.random.default_rng(seed)
    series = [generator.normal(size=n) * 10 ** generator.uniform(-3, 3) for n in lengths]
    holed = [np.where(generator.random(len(z)) < 0.2, np.nan, z) for z in series]
    return panel_of(*holed, beyond=beyond, stored=stored)


def weighted(candidates: Candidates, kind: str = "one-plus-mean") -> Sampler:
    return Sampler(candidates, Scaling(candidates.panel, candidates.context, kind))


def oracle(candidates: Candidates, kind: str = "one-plus-mean") -> Doubles:
    """The scale of every window, cut one by one."""
    panel, weights = candidates.panel, []
    scaling = Scaling(panel, candidates.context, kind)
    pairs = candidates.at(np.arange(len(candidates)))
    for series, start in zip(pairs.series_B, pairs.start_B, strict=True):
        history = panel[series][None, max(0, start - candidates.context) : start]
        _, scale = scaling(history, ~np.isnan(history), np.array([series]), np.array([start]))
        weights.append(scale[0])
    return np.array(weights)


def numbers(candidates: Candidates, pairs: Pairs) -> list[int]:
    first = candidates.end_S - candidates.count_S
    return [int(n) for n in first[pairs.series_B] + pairs.start_B - candidates.first_S[pairs.series_B]]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 4)
    monkeypatch.setattr(module, "_STEPS", 1 << 14)


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    context=st.integers(1, 30),
    horizon=st.integers(1, 9),
    block=st.integers(1, 9),
    steps=st.integers(1, 200),
    kind=st.sampled_from(["one-plus-mean", "mean", "deviation"]),
    empty=st.booleans(),
)
def test_weights_are_the_scales_of_the_windows_however_they_are_cut(
    lengths: list[int], context: int, horizon: int, block: int, steps: int, kind: str, empty: bool
) -> None:
    panel = random_panel([*lengths, horizon + 1], 0, beyond=3e38, stored=3)
    if empty:  # some histories are empty, some are all zeros
        panel.values[len(panel.values) // 3 : len(panel.values) // 2] = np.nan
        panel.values[len(panel.values) // 2 : len(panel.values) * 2 // 3] = 0
        panel = replace(panel, units=np.geomspace(1, 1e6, len(panel)))
    candidates = Candidates.of(panel, context, horizon)
    expected = oracle(candidates, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        patch.setattr(module, "_STEPS", steps)
        sampler = weighted(candidates, kind)
        scaling = sampler.scaling
        assert scaling is not None
        pieces = [weight_N for _, weight_N in sampler._stream(scaling)]
        block_K = sampler._weighed.block_K
    np.testing.assert_allclose(np.concatenate(pieces), expected, rtol=1e-12)
    begins = np.arange(0, len(expected), block)
    sums = np.cumsum(np.add.reduceat(expected, begins))
    np.testing.assert_allclose(block_K, sums, rtol=1e-9)
    scattered = np.random.default_rng(1).permutation(len(expected))
    np.testing.assert_allclose(sampler._weights(scattered, scaling), expected[scattered], rtol=1e-12)


@pytest.mark.usefixtures("small_blocks")
def test_draws_are_proportional_to_the_scale() -> None:
    candidates = Candidates.of(random_panel([30, 9, 4, 25], 5), 8, 3)
    weights = oracle(candidates)
    # The chi-squared test needs at least five expected draws of each window.
    assert weights.min() / weights.sum() * 200_000 > 5
    pairs = weighted(candidates).draw(200_000, np.random.default_rng(1))
    counts = np.bincount(numbers(candidates, pairs), minlength=len(candidates))
    assert stats.chisquare(counts, weights / weights.sum() * 200_000).pvalue > 0.01
    assert stats.chisquare(counts).pvalue < 1e-9


def test_unweighted_draws_are_uniform() -> None:
    candidates = Candidates.of(random_panel([30, 9, 4, 25], 5), 8, 3)
    pairs = Sampler(candidates).draw(50_000, np.random.default_rng(1))
    assert stats.chisquare(np.bincount(numbers(candidates, pairs), minlength=len(candidates))).pvalue > 0.01


@pytest.mark.parametrize("make", [weighted, Sampler])
def test_same_seed_same_draws(make: Callable[[Candidates], Sampler]) -> None:
    sampler = make(Candidates.of(random_panel([300, 90], 5), 8, 3))
    one, same, other = (sampler.draw(50, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.start_B, same.start_B)
    np.testing.assert_array_equal(one.series_B, same.series_B)
    assert not np.array_equal(one.start_B, other.start_B)


@pytest.mark.parametrize("make", [weighted, Sampler])
def test_the_first_of_a_large_batch_are_the_small_batch(make: Callable[[Candidates], Sampler]) -> None:
    # If batches were sorted, the first rank would always get the first series.
    sampler = make(Candidates.of(random_panel([300, 90], 5), 8, 3))
    large, small = (sampler.draw(size, np.random.default_rng(1)) for size in (500, 20))
    np.testing.assert_array_equal(large.start_B[:20], small.start_B)
    np.testing.assert_array_equal(large.series_B[:20], small.series_B)


def test_ranks_draw_disjoint_parts_of_the_batch_of_one_process() -> None:
    sampler = weighted(Candidates.of(random_panel([300, 90], 5), 8, 3))
    alone = sampler.draw(10, np.random.default_rng(4))
    parts = [alone.at(alone.share(rank, 3)) for rank in range(3)]
    np.testing.assert_array_equal(np.concatenate([part.start_B for part in parts]), alone.start_B)
    np.testing.assert_array_equal(np.concatenate([part.series_B for part in parts]), alone.series_B)


@pytest.mark.parametrize("beyond", [np.nan, 0.0, 3e38])
def test_draws_do_not_depend_on_anything_after_the_cutoff(beyond: float) -> None:
    lengths = [60, 7, 33]
    calm, poisoned = (random_panel(lengths, 3, beyond=b, stored=9) for b in (1.0, beyond))
    one, other = (weighted(split(panel, 8, 3)[0]).draw(500, np.random.default_rng(0)) for panel in (calm, poisoned))
    np.testing.assert_array_equal(one.start_B, other.start_B)


def test_memory_stays_bounded_where_a_list_of_the_windows_would_not() -> None:
    # 10^7 windows: one number for each would take 80 MB. The series share memory, so the panel itself takes none.
    panel = panel_of(np.arange(25_191.0) % 97)
    panel = replace(panel, indptr=np.zeros(401, np.int64), lengths=np.full(400, 25_191), starts=np.zeros(400, np.int64))
    candidates = Candidates.of(replace(panel, ids=tuple(range(400))), 168, 24)
    assert len(candidates) == 10_000_000
    tracemalloc.start()
    sampler = weighted(candidates)
    sampler.draw(20_000, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30_000_000
