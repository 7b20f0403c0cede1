"""Batches against windows cut one by one; nothing at or after the cutoff is read."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from logsparse.data.calendar import Freq
from logsparse.data.features import Features
from logsparse.data.panel import Floats, Panel
from logsparse.data.sampler import Candidates, Sampler, split
from logsparse.data.scale import Profile, centre_and_scale
from logsparse.data.windows import Batch, Windows
from logsparse.errors import ConfigError

NAN = np.float32(np.nan)
lengths_ = st.lists(st.integers(1, 40), min_size=1, max_size=5)
profiles_ = st.lists(st.builds(Profile, st.integers(1, 6), st.integers(1, 4)), max_size=2)
lags_ = st.lists(st.integers(1, 12), min_size=1, max_size=3, unique=True).map(tuple)


def panel_of(lengths: list[int], *, stored: int = 0, seed: int = 0, holes: float = 0.2) -> Panel:
    generator = np.random.default_rng(seed)
    indptr = np.concatenate(([0], np.cumsum(np.array(lengths) + stored)))
    values = generator.normal(3, 5, indptr[-1]).astype(np.float32)
    return Panel(
        values=np.where(generator.random(indptr[-1]) < holes, NAN, values),
        indptr=indptr,
        lengths=np.array(lengths),
        ids=tuple(range(len(lengths))),
        starts=np.arange(len(lengths)) * 3_600_000_000,
        freq=Freq.parse("h"),
        covariates={"price": np.arange(indptr[-1]).astype(np.float32)},
    )


def poisoned(panel: Panel, poison: float) -> Panel:
    """The same panel with other values after every cutoff; covariates are known there, so they stay."""
    series = np.searchsorted(panel.indptr, np.arange(len(panel.values)), side="right") - 1
    hidden = np.arange(len(panel.values)) - panel.indptr[series] >= panel.lengths[series]
    return replace(panel, values=np.where(hidden, np.float32(poison), panel.values))


def same(one: Batch, other: Batch) -> bool:
    """Bit for bit, NaN included."""
    tensors = [f.name for f in fields(Batch) if f.name != "context"]
    return all(getattr(one, n).numpy().tobytes() == getattr(other, n).numpy().tobytes() for n in tensors)


def seen(panel: Panel, series: int, step: int) -> tuple[float, bool]:
    if not 0 <= step < panel.lengths[series] or np.isnan(panel[series][step]):
        return 0.0, False
    return float(panel[series][step]), True


def profile_at(windows: Windows, series: int, step: int, profile: Profile) -> tuple[float, float, bool]:
    nearest = next(n for n in range(99) if n * profile.step >= windows.horizon)
    earlier = [seen(windows.panel, series, step - (nearest + n) * profile.step) for n in range(profile.count)]
    values = [value for value, there in earlier if there]
    if not values:
        return 0.0, 0.0, False
    return float(np.mean(values)), float(np.abs(np.array(values) - np.mean(values)).mean()), True


def by_definition(windows: Windows, series: int, start: int) -> dict[str, Floats]:
    panel, steps = windows.panel, range(start - windows.context, start + windows.horizon)
    target = np.array([seen(panel, series, step) for step in steps])
    history = target[: windows.context][target[: windows.context, 1] == 1, 0]
    if len(history) == 0:
        last = max((step for step in range(start) if seen(panel, series, step)[1]), default=-1)
        earlier = [seen(panel, series, step) for step in range(last + 1 - windows.context, last + 1)]
        history = np.array([value for value, there in earlier if there])
    unit = np.ones(1) if panel.units is None else panel.units[[series]]
    centre, scale = centre_and_scale(history[None], np.ones((1, len(history)), bool), windows.scaling.kind, unit)
    centre, scale = centre[0], scale[0]

    def less_centre(found: Floats) -> Floats:
        return np.where(found[..., -1] == 1, found[..., 0] - centre, 0)

    lagged = np.array([[seen(panel, series, step - lag) for lag in windows.lags] for step in steps])
    profiled = np.array([[profile_at(windows, series, step, p) for p in windows.profiles] for step in steps])
    profiled = profiled.reshape(len(steps), len(windows.profiles), 3)
    features = windows.features(panel, np.array([series]), np.array([list(steps)]))[0]
    features[np.array(steps) < 0] = 0
    return {
        "values_BL": less_centre(target),
        "observed_BL": target[:, 1],
        "lagged_BLK": less_centre(lagged),
        "lag_observed_BLK": lagged[..., 1],
        "profile_BLR": less_centre(profiled),
        "spread_BLR": profiled[..., 1],
        "profile_observed_BLR": profiled[..., 2],
        "features_BLF": features,
        "centre_B": centre,
        "scale_B": scale,
        "series_B": np.asarray(series),
        "padding_B": np.asarray((np.array(steps) < 0).sum()),
    }


@given(
    lengths=lengths_,
    context=st.integers(1, 12),
    horizon=st.integers(1, 6),
    lags=lags_,
    profiles=profiles_,
    kind=st.sampled_from(["one-plus-mean", "mean", "deviation"]),
    seed=st.integers(0, 9),
)
def test_a_batch_is_its_windows_cut_one_by_one(
    lengths: list[int],
    context: int,
    horizon: int,
    lags: tuple[int, ...],
    profiles: list[Profile],
    kind: str,
    seed: int,
) -> None:
    panel = panel_of([*lengths, horizon + 1], stored=horizon, seed=seed)
    pairs = Sampler(Candidates.of(panel, context, horizon)).draw(7, np.random.default_rng(seed))
    series_B = np.append(pairs.series_B, np.arange(len(panel)))
    start_B = np.append(pairs.start_B, panel.lengths)  # and what a prediction asks for
    features = Features.fit(panel, covariates=["price"])
    windows = Windows(panel, features, context=context, horizon=horizon, lags=lags, profiles=profiles, scale=kind)
    batch = windows(series_B, start_B)
    for row, (series, start) in enumerate(zip(series_B, start_B, strict=True)):
        for name, expected in by_definition(windows, int(series), int(start)).items():
            np.testing.assert_allclose(getattr(batch, name)[row].numpy(), expected, rtol=1e-5, atol=1e-5, err_msg=name)


@given(
    lengths=lengths_,
    context=st.integers(1, 12),
    horizon=st.integers(1, 6),
    lags=lags_,
    profiles=profiles_,
    poison=st.sampled_from([NAN, 3e38, -3e38, np.inf, 0.0]),
    seed=st.integers(0, 9),
)
def test_windows_never_touch_values_at_or_after_the_cutoff(
    lengths: list[int],
    context: int,
    horizon: int,
    lags: tuple[int, ...],
    profiles: list[Profile],
    poison: float,
    seed: int,
) -> None:
    stored = 2 * horizon
    calm = panel_of([*lengths, horizon + 1], stored=stored, seed=seed)
    batches = []
    for panel in (calm, poisoned(calm, poison)):
        features = Features.fit(panel, covariates=["price"])
        windows = Windows(panel, features, context=context, horizon=horizon, lags=lags, profiles=profiles)
        pairs = Sampler(Candidates.of(panel, context, horizon)).draw(7, np.random.default_rng(seed))
        trained = windows(pairs.series_B, pairs.start_B).clone()
        # From one step before the cutoff to as far behind it as covariates are known.
        late = [windows(np.arange(len(panel)), panel.lengths + ahead).clone() for ahead in range(-1, horizon + 1)]
        batches.append([trained, *late])
    assert all(same(one, other) for one, other in zip(*batches, strict=True))


@given(
    lengths=st.lists(st.integers(1, 80), min_size=1, max_size=5),
    context=st.integers(1, 12),
    horizon=st.integers(1, 6),
    seed=st.integers(0, 9),
)
def test_training_batches_never_touch_the_validation_span(
    lengths: list[int], context: int, horizon: int, seed: int
) -> None:
    panel = panel_of([*lengths, 2 * horizon + 1], seed=seed)
    training, validation = split(panel, context, horizon)
    border_S = panel.lengths - np.maximum(panel.lengths // 10, horizon)
    hidden = replace(panel, values=poisoned(replace(panel, lengths=np.maximum(border_S, 0)), 3e38).values)
    features, pairs = Features.fit(panel), training.at(np.arange(len(training)))
    one, other = (Windows(p, features, context=context, horizon=horizon) for p in (panel, hidden))
    assert same(one(pairs.series_B, pairs.start_B), other(pairs.series_B, pairs.start_B))
    pairs = validation.at(np.arange(len(validation)))
    assert (pairs.start_B >= border_S[pairs.series_B]).all()
    assert (pairs.start_B + horizon <= panel.lengths[pairs.series_B]).all()


def test_a_prediction_starts_at_the_end_with_features_and_without_values() -> None:
    panel = panel_of([30, 5], stored=4, holes=0)
    windows = Windows(panel, Features.fit(panel, covariates=["price"]), context=8, horizon=4, lags=(1, 4))
    batch = windows(np.array([0, 1]), panel.lengths)
    assert (batch.context, batch.horizon) == (8, 4)
    assert not batch.observed_BL[:, 8:].any()
    assert batch.observed_BL[0, :8].all()
    assert batch.lag_observed_BLK[0, 8].all(), "the last value is known at the first step of the horizon"
    assert not batch.lag_observed_BLK[0, 9:, 0].any()
    assert batch.lag_observed_BLK[0, 8:, 1].all(), "a lag as long as the horizon is known all through it"
    assert (batch.features_BLF[:, 8:, -1].diff() > 0).all()
    assert batch.padding_B.tolist() == [0, 3]


def test_the_first_lag_is_the_true_value_before_the_window() -> None:
    panel = panel_of([30], holes=0)
    batch = Windows(panel, Features.fit(panel), context=8, horizon=4)(np.array([0, 0]), np.array([9, 8]))
    assert batch.lagged_BLK[0, 0, 0] == panel[0][0]
    assert batch.lagged_BLK[1, 0, 0] == 0
    assert not batch.lag_observed_BLK[1, 0, 0]


def test_scale_reads_the_history_and_nothing_else() -> None:
    panel = panel_of([20], holes=0)
    panel = replace(panel, values=np.where(np.arange(20) < 10, np.float32(-3), np.float32(1e9)))
    batch = Windows(panel, Features.fit(panel), context=8, horizon=4)(np.array([0]), np.array([10]))
    assert batch.scale_B.tolist() == [4]


def test_the_memory_is_reused_and_a_clone_is_independent() -> None:
    panel = panel_of([60], holes=0)
    windows = Windows(panel, Features.fit(panel), context=8, horizon=4)
    first = windows(np.zeros(3, np.int64), np.array([10, 20, 30]))
    kept, address = first.clone(), first.values_BL.data_ptr()
    second = windows(np.zeros(2, np.int64), np.array([40, 41]))
    assert second.values_BL.data_ptr() == address
    assert same(first.each(lambda tensor: tensor[:2]), second), "the first batch was overwritten"
    assert not same(kept.each(lambda tensor: tensor[:2]), second)
    assert len(windows(np.zeros(5, np.int64), np.full(5, 9))) == 5


def test_a_rank_without_windows_gets_an_empty_batch() -> None:
    panel = panel_of([6])
    batch = Windows(panel, Features.fit(panel), context=8, horizon=4)(np.empty(0, np.int64), np.empty(0, np.int64))
    assert len(batch) == 0
    assert batch.values_BL.shape == (0, 12)


def test_a_batch_moves_to_a_device_as_a_whole() -> None:
    panel = panel_of([60])
    moved = Windows(panel, Features.fit(panel), context=8, horizon=4)(np.array([0]), np.array([10])).to("meta")
    assert {getattr(moved, f.name).device for f in fields(Batch) if f.name != "context"} == {torch.device("meta")}
    assert moved.context == 8


@pytest.mark.parametrize("lags", [(), (0,), (1, -3)])
def test_lags_below_1_are_refused(lags: tuple[int, ...]) -> None:
    panel = panel_of([60])
    with pytest.raises(ConfigError, match=r"lags must be one or more numbers of steps, each at least 1\. Got \("):
        Windows(panel, Features.fit(panel), context=8, horizon=4, lags=lags)
