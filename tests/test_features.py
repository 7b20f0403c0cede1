"""Calendar features against Python's own datetime; standardisation against numpy on everything at once."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logsparse.data import features as module
from logsparse.data.calendar import Freq
from logsparse.data.features import CALENDAR, Features, features_for
from logsparse.data.panel import Floats, Origin, Panel
from logsparse.errors import ConfigError, DataError

NAN = np.float32(np.nan)
# 2011-03-26 22:00 UTC: five hours later the clocks of Berlin jump from 2 to 3
MARCH = int(datetime(2011, 3, 26, 22, tzinfo=UTC).timestamp()) * 1_000_000


def panel_of(*lengths: int, freq: str | int = "h", start: int = MARCH, stored: int = 0) -> Panel:
    """Series of these visible lengths with `stored` more steps behind each; series i starts i days later."""
    length_S = np.array(lengths)
    indptr = np.concatenate(([0], np.cumsum(length_S + stored)))
    step = Freq.parse(freq)
    return Panel(
        values=np.arange(indptr[-1]).astype(np.float32),
        indptr=indptr,
        lengths=length_S,
        ids=tuple(f"s{i}" for i in range(len(lengths))),
        starts=start + np.arange(len(lengths)) * (1 if step.kind == "index" else 86_400_000_000),
        freq=step,
    )


def raw(names: tuple[str, ...], covariates: tuple[str, ...] = ()) -> Features:
    """Features that are not standardised."""
    count = len(names) + len(covariates)
    return Features(names=names, covariates=covariates, mean=(0.0,) * count, std=(1.0,) * count)


def of_datetime(t: datetime, age: int) -> list[int]:
    return [t.year, t.month, t.day, t.weekday(), t.hour, t.minute, t.second, t.timetuple().tm_yday, age]


@pytest.mark.parametrize(
    ("freq", "names"),
    [
        ("h", ("month", "weekday", "hour", "age")),
        ("6h", ("month", "weekday", "hour", "age")),
        ("15min", ("month", "weekday", "hour", "minute", "age")),
        ("20min", ("month", "weekday", "hour", "minute", "age")),
        ("90min", ("month", "weekday", "hour", "minute", "age")),
        ("10s", ("month", "weekday", "hour", "minute", "second", "age")),
        ("D", ("year", "month", "day", "weekday", "age")),
        ("B", ("year", "month", "day", "weekday", "age")),
        ("W", ("year", "day_of_year", "age")),
        ("MS", ("year", "month", "age")),
        ("QE", ("year", "month", "age")),
        ("YE", ("year", "age")),
        (1, ("age",)),
    ],
)
def test_features_follow_from_the_frequency(freq: str | int, names: tuple[str, ...]) -> None:
    assert features_for(Freq.parse(freq)) == names


@given(
    freq=st.sampled_from(["7s", "15min", "h", "D", "B", "W", "MS", "ME", "QE", "YS"]),
    start=st.datetimes(datetime(1950, 1, 3), datetime(2100, 1, 1)),  # noqa: DTZ001
    step=st.integers(-500, 500),
)
def test_calendar_is_that_of_datetime_before_and_after_1970(freq: str, start: datetime, step: int) -> None:
    micros = int((start.replace(microsecond=0, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    panel = panel_of(3, freq=freq, start=micros * 1_000_000)
    features = raw(CALENDAR)(panel, np.array([0]), np.array([[step]]))
    time = int(panel.freq.add(panel.starts, np.array([step]))[0])
    moment = np.datetime64(time, "us").astype(datetime)
    assert features[0, 0].tolist() == of_datetime(moment, step)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_hours_are_local_time_across_a_daylight_saving_change(zone: str) -> None:
    panel = replace(panel_of(8), origin=Origin(zone=zone))
    features = raw(CALENDAR)(panel, np.array([0]), np.arange(-3000, 9000)[None])
    times = [datetime.fromtimestamp(MARCH / 1e6 + 3600 * k, tz=ZoneInfo(zone)) for k in range(-3000, 9000)]
    assert features[0].tolist() == [of_datetime(t, k) for t, k in zip(times, range(-3000, 9000), strict=True)]


def test_steps_of_whole_days_are_already_in_local_time() -> None:
    panel = panel_of(8, freq="D", start=MARCH // 86_400_000_000 * 86_400_000_000)
    zoned = replace(panel, origin=Origin(zone="America/New_York"))
    series, step = np.array([0]), np.arange(8)[None]
    np.testing.assert_array_equal(raw(CALENDAR)(panel, series, step), raw(CALENDAR)(zoned, series, step))


def everything(panel: Panel, features: Features) -> Floats:
    rows = [features(panel, np.array([i]), np.arange(n)[None])[0] for i, n in enumerate(panel.lengths)]
    return np.concatenate(rows)


@pytest.mark.parametrize("chunk", [5, 1 << 18])
def test_the_visible_steps_have_mean_0_and_deviation_1(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", chunk)
    panel = panel_of(100, 700, 700, 31)
    price = (1e6 + np.sqrt(panel.values)).astype(np.float32)
    panel = replace(panel, starts=panel.starts[[0, 1, 1, 0]], covariates={"price": price})
    features = Features.fit(panel, covariates=["price"])
    plain = everything(panel, raw(features.names, features.covariates)).astype(np.float64)
    np.testing.assert_allclose(features.mean, plain.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(features.std, plain.std(axis=0), rtol=1e-5)
    standard = everything(panel, features)
    assert standard.dtype == np.float32
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(standard.std(axis=0), 1, atol=1e-4)


def test_nothing_after_the_cutoff_enters_the_standardisation() -> None:
    panel = panel_of(50, 50, stored=20)
    hidden = np.concatenate([np.arange(70) >= 50] * 2)
    price = np.where(hidden, np.float32(1e30), panel.values)
    calm = Features.fit(replace(panel, covariates={"price": panel.values}), covariates=["price"])
    assert Features.fit(replace(panel, covariates={"price": price}), covariates=["price"]) == calm
    longer = Features.fit(panel_of(70, 70), names=calm.names)
    assert longer.mean != calm.mean[:-1]


def test_a_constant_feature_has_deviation_1_and_becomes_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 7)
    panel = panel_of(50)
    panel = replace(panel, covariates={"one": np.full(50, 0.1, np.float32)})
    features = Features.fit(panel, names=["year"], covariates=["one"])
    assert features.std == (1.0, 1.0)
    np.testing.assert_allclose(everything(panel, features), np.zeros((50, 2)), atol=1e-12)


def test_calendar_and_covariates_reach_into_the_future() -> None:
    panel = panel_of(10, 10, stored=4)
    panel = replace(panel, covariates={"price": panel.values * 2})
    future = raw(("hour", "age"), ("price",))(panel, np.array([1, 0]), np.arange(10, 14)[None].repeat(2, axis=0))
    assert future[0].tolist() == [[8, 10, 48], [9, 11, 50], [10, 12, 52], [11, 13, 54]]
    assert future[1, :, 2].tolist() == [20, 22, 24, 26]


def test_a_missing_covariate_becomes_its_mean() -> None:
    price = np.array([1, np.nan, 3, 5], np.float32)
    panel = replace(panel_of(4, freq=1, start=0), covariates={"price": price})
    features = Features.fit(panel, names=[], covariates=["price"])
    assert features.mean == (3.0,)
    out = features(panel, np.array([0]), np.arange(-1, 4)[None])[0, :, 0]
    np.testing.assert_allclose(out, [0, -np.sqrt(1.5), 0, 0, np.sqrt(1.5)], rtol=1e-6)


def test_fitted_features_survive_json() -> None:
    features = Features.fit(panel_of(30, 40))
    assert Features.from_dict(json.loads(json.dumps(features.to_dict()))) == features
    assert len(features) == 4


def test_a_covariate_that_ends_too_early_is_named_with_its_series() -> None:
    panel = panel_of(10, 10, stored=4)
    panel = replace(panel, covariates={"price": panel.values})
    features = Features.fit(panel, covariates=["price"])
    text = (
        r"Covariates must be known for every step of the horizon\. Got series 's1', where price end at "
        r"2011-03-28 11:00 and are needed up to 2011-03-28 12:00\. Hint: pass their future values"
    )
    with pytest.raises(DataError, match=text):
        features(panel, np.array([0, 1]), np.array([[12, 13], [13, 14]]))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"must be defined for the type of the times\. Got 'moon' for dates\. Hint: choose from year, month",
    ):
        Features.fit(panel_of(5), names=["moon"])
    with pytest.raises(ConfigError, match=r"Got 'hour' for integer times\. Hint: choose from age;"):
        Features.fit(panel_of(5, freq=1), names=["hour"])
    text = r"Every covariate must be in the data\. Got 'price', while the data have none\. Hint: pass the same"
    with pytest.raises(DataError, match=text):
        Features.fit(panel_of(5), covariates=["price"])
    with pytest.raises(DataError, match=text):
        raw((), ("price",))(panel_of(5), np.array([0]), np.array([[0]]))
