"""Candidates against a list of all windows; training apart from validation; epochs and ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logsparse.data import sampler as module
from logsparse.data.calendar import Freq
from logsparse.data.panel import Panel
from logsparse.data.sampler import Candidates, Pairs, epoch, split
from logsparse.errors import ConfigError, DataError

sizes = st.lists(st.integers(1, 40), min_size=1, max_size=5)
small = st.integers(1, 12)


def panel_of(*lengths: int) -> Panel:
    return Panel(
        values=np.zeros(sum(lengths), np.float32),
        indptr=np.concatenate(([0], np.cumsum(lengths))),
        lengths=np.array(lengths),
        ids=tuple(range(len(lengths))),
        starts=np.zeros(len(lengths), np.int64),
        freq=Freq("index", 1),
    )


def listed(source: Candidates | Pairs) -> list[tuple[int, int]]:
    pairs = source.at(np.arange(len(source)))
    return list(zip(pairs.series_B.tolist(), pairs.start_B.tolist(), strict=True))


def by_definition(lengths: list[int], context: int, horizon: int) -> list[tuple[int, int]]:
    return [
        (i, s)
        for i, n in enumerate(lengths)
        for s in range(1, n + 1)
        if s + horizon <= n and (s >= context or n < context + horizon)
    ]


@given(lengths=sizes, context=small, horizon=small)
def test_candidates_are_whole_windows_or_those_of_short_series(lengths: list[int], context: int, horizon: int) -> None:
    expected = by_definition(lengths, context, horizon)
    if expected:
        assert listed(Candidates.of(panel_of(*lengths), context, horizon)) == expected
    else:
        with pytest.raises(DataError, match="At least one series must have one step of history and a full horizon"):
            Candidates.of(panel_of(*lengths), context, horizon)


def test_a_series_as_long_as_a_window_gives_one_and_one_step_less_gives_padded_ones() -> None:
    assert listed(Candidates.of(panel_of(10, 9, 4, 3), 7, 3)) == [(0, 7), *((1, s) for s in range(1, 7)), (2, 1)]


@given(lengths=sizes, context=small, horizon=small)
def test_no_step_of_a_training_window_is_in_the_validation_span(lengths: list[int], context: int, horizon: int) -> None:
    validation_steps = [n - max(n // 10, horizon) for n in lengths]
    whole = by_definition(lengths, context, horizon)
    expected = by_definition([max(b, 0) for b in validation_steps], context, horizon)
    if not expected:
        with pytest.raises(DataError, match="At least one series must have"):
            split(panel_of(*lengths), context, horizon)
        return
    training, validation = split(panel_of(*lengths), context, horizon)
    assert listed(training) == expected
    assert all(s + horizon <= validation_steps[i] for i, s in listed(training))
    assert listed(validation) == [(i, s) for i, s in whole if s >= validation_steps[i]]
    assert len(validation) >= 1


def test_validation_takes_a_tenth_and_at_least_one_horizon() -> None:
    training, validation = split(panel_of(100, 1000), 20, 15)
    assert listed(validation)[0] == (0, 85)
    assert max(s for i, s in listed(training) if i == 0) == 70
    assert [s for i, s in listed(validation) if i == 1] == list(range(900, 986))
    assert max(s for i, s in listed(training) if i == 1) == 885


def test_validation_takes_at_most_the_given_steps_but_one_horizon() -> None:
    _, validation = split(panel_of(100, 1000), 20, 15, 40)
    assert [s for i, s in listed(validation) if i == 0] == [85]
    assert [s for i, s in listed(validation) if i == 1] == list(range(960, 986))
    assert listed(split(panel_of(1000), 20, 15, 3)[1]) == [(0, 985)]


def test_too_short_series_and_bad_settings_are_refused() -> None:
    text = r"Got 2 series, the longest of 5 steps, while 6 are needed\. Hint: shorten the horizon, use longer"
    with pytest.raises(DataError, match=rf"At least one series must have one step .* {text}"):
        Candidates.of(panel_of(5, 2), 3, 5)
    text = r"a training window before its validation part\. Got 1 series, the longest of 10 steps, while 11"
    with pytest.raises(DataError, match=text):
        split(panel_of(10), 3, 5)
    with pytest.raises(ConfigError, match=r"context must be at least 1 step\. Got 0\. Hint: choose a larger context"):
        Candidates.of(panel_of(5), 0, 1)
    with pytest.raises(ConfigError, match=r"horizon must be at least 1 step\. Got -1\. Hint: choose a larger horizon"):
        Candidates.of(panel_of(5), 1, -1)


@given(total=st.integers(1, 60), size=st.integers(1, 20), part=st.integers(1, 30), seed=st.integers(0, 99))
def test_an_epoch_holds_each_window_once(total: int, size: int, part: int, seed: int) -> None:
    source = Candidates.of(panel_of(total + 2), 2, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PART", part)
        ordered = list(epoch(source, size))
        shuffled = list(epoch(source, size, np.random.default_rng(seed)))
        again = list(epoch(source, size, np.random.default_rng(seed)))
    assert [pair for batch in ordered for pair in listed(batch)] == listed(source)
    assert sorted(pair for batch in shuffled for pair in listed(batch)) == listed(source)
    assert [len(batch) for batch in shuffled] == [len(batch) for batch in ordered]
    assert {len(batch) for batch in shuffled[:-1]} <= {size}
    assert [listed(batch) for batch in again] == [listed(batch) for batch in shuffled]


@pytest.mark.parametrize("part", [2, 100])
def test_every_order_of_an_epoch_is_equally_likely(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART", part)
    source, generator = Candidates.of(panel_of(5), 2, 1), np.random.default_rng(0)
    orders = [tuple(next(epoch(source, 3, generator)).start_B.tolist()) for _ in range(3000)]
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    # 6 orders: the 99.9 % point of chi-square with 5 degrees of freedom is 20.5.
    assert len(counts) == 6
    assert ((counts - 500) ** 2 / 500).sum() < 20.5


@given(size=st.integers(0, 30), ranks=st.integers(1, 8))
def test_the_shares_of_all_ranks_are_one_batch(size: int, ranks: int) -> None:
    batch = Pairs(np.arange(size), np.arange(size) + 100)
    shares = [batch.at(batch.share(rank, ranks)) for rank in range(ranks)]
    assert [pair for share in shares for pair in listed(share)] == listed(batch)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
