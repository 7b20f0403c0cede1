"""Weighted draws, against an oracle that lists every window and its scale."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from logsparse.data import sampler as module
from logsparse.data.calendar import Freq
from logsparse.data.candidates import Candidates, Pairs, split
from logsparse.data.panel import Panel
from logsparse.data.sampler import Sampler
from logsparse.data.scale import Doubles
from logsparse.errors import ConfigError


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


def oracle(candidates: Candidates) -> Doubles:
    """The scale of every window, one after the other."""
    panel, weights = candidates.panel, []
    pairs = candidates.at(np.arange(len(candidates)))
    for series, start in zip(pairs.series_B, pairs.start_B, strict=True):
        history = np.abs(panel[series][max(0, start - candidates.context) : start].astype(np.float64))
        weights.append(1 + np.nanmean(history) if (~np.isnan(history)).any() else 1.0)
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
)
def test_weights_are_the_scales_of_the_windows_however_they_are_cut(
    lengths: list[int], context: int, horizon: int, block: int, steps: int
) -> None:
    panel = random_panel([*lengths, horizon + 1], 0, beyond=3e38, stored=3)
    candidates = Candidates.of(panel, context, horizon)
    expected = oracle(candidates)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        patch.setattr(module, "_STEPS", steps)
        sampler = Sampler(candidates)
        pieces = list(sampler._stream())
    np.testing.assert_allclose(np.concatenate([weights for _, weights in pieces]), expected, rtol=1e-12)
    begins = np.arange(0, len(expected), block)
    np.testing.assert_allclose(np.diff(sampler._block_K, prepend=0), np.add.reduceat(expected, begins), rtol=1e-9)
    scattered = np.random.default_rng(1).permutation(len(expected))
    np.testing.assert_allclose(sampler.weights(scattered), expected[scattered], rtol=1e-12)


@pytest.mark.usefixtures("small_blocks")
def test_fresh_draws_come_as_often_as_their_scale_says() -> None:
    candidates = Candidates.of(random_panel([30, 9, 4, 25], 5), 8, 3)
    weights = oracle(candidates)
    # Windows so rare that the test could not see them would only blur it.
    assert weights.min() / weights.sum() * 200_000 > 5
    pairs = Sampler(candidates).draw(200_000, np.random.default_rng(1))
    counts = np.bincount(numbers(candidates, pairs), minlength=len(candidates))
    assert stats.chisquare(counts, weights / weights.sum() * 200_000).pvalue > 0.01
    assert stats.chisquare(counts).pvalue < 1e-9


def test_unweighted_draws_are_uniform() -> None:
    candidates = Candidates.of(random_panel([30, 9, 4, 25], 5), 8, 3)
    pairs = Sampler(candidates, weighted=False).draw(50_000, np.random.default_rng(1))
    assert stats.chisquare(np.bincount(numbers(candidates, pairs), minlength=len(candidates))).pvalue > 0.01


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("weighted", [True, False])
def test_a_fixed_set_is_drawn_one_by_one_without_replacement(weighted: bool) -> None:
    candidates = Candidates.of(panel_of(np.array([0.0, 2, 9, 1, 5, 4])), 2, 1)
    sampler = Sampler(candidates, weighted=weighted)
    weights = oracle(candidates) if weighted else np.ones(4)
    share = weights / weights.sum()
    expected = {
        (i, j): share[i] * share[j] / (1 - share[i]) for i in range(4) for j in range(4) if i != j
    }  # successive draws: the second among those that are left
    generator = np.random.default_rng(2)
    drawn = [tuple(numbers(candidates, sampler.fixed(2, generator))) for _ in range(6000)]
    counts = [drawn.count(pair) for pair in expected]
    assert sum(counts) == 6000
    assert stats.chisquare(counts, np.array(list(expected.values())) * 6000).pvalue > 0.01


@pytest.mark.usefixtures("small_blocks")
@given(size=st.integers(1, 60), seed=st.integers(0, 20))
def test_a_fixed_set_has_no_window_twice_and_can_be_everything(size: int, seed: int) -> None:
    candidates = Candidates.of(random_panel([50, 12, 13], seed), 8, 3)
    size = min(size, len(candidates))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_STEPS", 40)
        drawn = numbers(candidates, Sampler(candidates).fixed(size, np.random.default_rng(seed)))
    assert len(set(drawn)) == len(drawn) == size
    everything = Sampler(candidates).fixed(len(candidates), np.random.default_rng(seed))
    assert sorted(numbers(candidates, everything)) == list(range(len(candidates)))
    # The first of a large set are the small set: only the seed decides, not how the work was cut.
    assert numbers(candidates, everything)[:size] == drawn


@pytest.mark.parametrize("weighted", [True, False])
def test_same_seed_same_draws(weighted: bool) -> None:
    sampler = Sampler(Candidates.of(random_panel([300, 90], 5), 8, 3), weighted=weighted)
    for draw in (sampler.draw, sampler.fixed):
        one, same, other = (draw(50, np.random.default_rng(seed)) for seed in (1, 1, 2))
        np.testing.assert_array_equal(one.start_B, same.start_B)
        np.testing.assert_array_equal(one.series_B, same.series_B)
        assert not np.array_equal(one.start_B, other.start_B)


@pytest.mark.parametrize("weighted", [True, False])
def test_the_first_of_a_large_batch_are_the_small_batch(weighted: bool) -> None:
    # Were a batch sorted in any way, the first rank would always see the first series.
    sampler = Sampler(Candidates.of(random_panel([300, 90], 5), 8, 3), weighted=weighted)
    large, small = (sampler.draw(size, np.random.default_rng(1)) for size in (500, 20))
    np.testing.assert_array_equal(large.start_B[:20], small.start_B)
    np.testing.assert_array_equal(large.series_B[:20], small.series_B)


def test_ranks_draw_disjoint_parts_of_the_batch_of_one_process() -> None:
    sampler = Sampler(Candidates.of(random_panel([300, 90], 5), 8, 3))
    alone = sampler.draw(10, np.random.default_rng(4))
    parts = [sampler.draw(10, np.random.default_rng(4)).share(rank, 3) for rank in range(3)]
    np.testing.assert_array_equal(np.concatenate([part.start_B for part in parts]), alone.start_B)
    np.testing.assert_array_equal(np.concatenate([part.series_B for part in parts]), alone.series_B)


@pytest.mark.parametrize("beyond", [np.nan, 0.0, 3e38])
def test_draws_do_not_depend_on_anything_after_the_cutoff(beyond: float) -> None:
    lengths = [60, 7, 33]
    calm, poisoned = (random_panel(lengths, 3, beyond=b, stored=9) for b in (1.0, beyond))
    one, other = (Sampler(split(panel, 8, 3)[0]).draw(500, np.random.default_rng(0)) for panel in (calm, poisoned))
    np.testing.assert_array_equal(one.start_B, other.start_B)


def test_a_set_larger_than_the_number_of_windows_is_refused() -> None:
    sampler = Sampler(Candidates.of(panel_of(np.arange(9.0)), 2, 1))
    text = r"must not be larger than the number of windows\. Got 8 of 7\. Hint: ask for fewer windows, or draw with"
    with pytest.raises(ConfigError, match=text):
        sampler.fixed(8, np.random.default_rng(0))


def test_memory_stays_bounded_where_a_list_of_the_windows_would_not() -> None:
    # 10^7 windows: one number for each would take 80 MB. The series share memory, so the panel itself takes none.
    panel = panel_of(np.arange(25_191.0) % 97)
    panel = replace(panel, indptr=np.zeros(401, np.int64), lengths=np.full(400, 25_191), starts=np.zeros(400, np.int64))
    candidates = Candidates.of(replace(panel, ids=tuple(range(400))), 168, 24)
    assert len(candidates) == 10_000_000
    tracemalloc.start()
    sampler = Sampler(candidates)
    sampler.draw(20_000, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30_000_000
