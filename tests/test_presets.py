"""The named runs are the paper's: window lengths, layers, kernels, windows, optimisers, patterns."""

from __future__ import annotations

import pytest

from logsparse import presets
from logsparse.attention.pattern import full
from logsparse.config import Config
from logsparse.errors import ConfigError


@pytest.mark.parametrize(
    ("config", "context", "horizon", "layers", "kernel", "windows", "optimiser"),
    [
        (presets.electricity_c(), 168, 24, 3, 9, 500_000, "adam"),
        (presets.electricity_c(days=7), 168, 168, 3, 9, 500_000, "adam"),
        (presets.traffic_c(kernel=1), 168, 24, 3, 1, 500_000, "adam"),
        (presets.electricity_f(), 672, 96, 6, 6, 125_000, "bertadam"),
        (presets.traffic_f(conv=False), 504, 72, 10, 1, 200_000, "bertadam"),
        (presets.solar(), 168, 24, 3, 6, 50_000, "adam"),
        (presets.m4_hourly(), 168, 48, 3, 6, 50_000, "adam"),
        (presets.paper(), 168, 24, 3, 6, 50_000, "adam"),
        (presets.wind(), 162, 30, 3, 6, 10_000, "adam"),
        (presets.synthetic(192), 192, 24, 3, 1, 4_500, "adam"),
    ],
)
def test_a_preset_has_the_settings_of_the_paper(
    config: Config, context: int, horizon: int, layers: int, kernel: int, windows: int, optimiser: str
) -> None:
    model, train = config.model, config.train
    assert (config.context, config.horizon, model.layers, model.kernel) == (context, horizon, layers, kernel)
    assert (train.windows, train.optimiser, train.batch, train.lr, train.clip) == (windows, optimiser, 64, 1e-3, 1.0)
    assert (model.heads, model.embedding, model.dropout, model.head_width, model.norm) == (8, 20, 0.1, "full", "post")


def test_sparse_runs_restart_every_eighth_with_a_local_part_of_seven_and_dense_first_rows() -> None:
    for config, sub in ((presets.electricity_f(), 96), (presets.traffic_f(), 72)):
        (pattern,) = config.model.patterns
        assert dict(pattern.settings) == {"sub_length": sub, "width": 7, "base": 2}
        assert pattern.dense_rows == len(pattern.distances(config.length)) == 112


def test_full_runs_can_match_the_memory_or_the_length_of_the_sparse_ones() -> None:
    for matched, length in (
        (presets.electricity_f(sparse=False, context=197), 293),
        (presets.electricity_f(sparse=False), 768),
        (presets.traffic_f(sparse=False, context=182), 254),
        (presets.traffic_f(sparse=False), 576),
    ):
        assert (matched.length, matched.model.patterns) == (length, (full(),))


def test_covariates_are_those_of_the_paper() -> None:
    assert presets.solar().features == ("month", "weekday", "hour", "age")
    assert set(presets.traffic_f().features or ()) == {"month", "weekday", "hour", "minute", "age"}
    assert presets.wind().features == ("year", "month", "day", "age")
    assert presets.m4_hourly().features == ("weekday", "hour", "age")
    assert presets.synthetic().features == ("age",)
    # On any other set, those that follow from its step.
    assert presets.paper().features is None


def test_every_preset_is_found_by_its_name_and_for_known_networks_only() -> None:
    assert {name: presets.named(name) for name in presets.NAMES} == {
        name: make() for name, make in presets.NAMES.items()
    }
    assert {"paper", "solar", "m4-hourly"} <= set(presets.NAMES)
    with pytest.raises(ConfigError, match=r"A preset must be for one of: logsparse, deepar\. Got 'arima'\."):
        presets.named("solar", "arima")
