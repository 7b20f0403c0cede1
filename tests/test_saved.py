"""A forecaster of a user's own: saved, loaded by its class, and by `load` once it is registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
import small
from logsparse import registry
from logsparse.errors import ConfigError, DataError


class Shifted(ls.SeasonalNaive):
    """A seasonal naive forecast, moved by a number."""

    def __init__(self, horizon: int, season: int | None = None, by: float = 0.0) -> None:
        super().__init__(horizon, season)
        self.by = by

    def _forecast(self, panel: Any, levels: Any) -> ls.Forecast:
        found = super()._forecast(panel, levels)
        return ls.Forecast(panel, found.mean + np.float32(self.by), levels, found.quantiles + np.float32(self.by))


class Mine(ls.LogSparse):
    """The library's model under another name."""


@pytest.fixture(autouse=True)
def only_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


@pytest.fixture
def frame() -> pl.DataFrame:
    return pl.DataFrame({"unique_id": "a", "ds": range(120), "y": [float(t % 7) for t in range(120)]})


def test_a_class_loads_what_it_saved(frame: pl.DataFrame, tmp_path: Path) -> None:
    fitted = Shifted(3, season=7, by=10).fit(frame)
    fitted.save(tmp_path)
    loaded = Shifted.load(tmp_path)
    assert type(loaded) is Shifted
    assert loaded.get_params() == {"horizon": 3, "season": 7, "by": 10}
    assert loaded.predict().equals(fitted.predict())


def test_load_knows_a_class_once_it_is_registered(frame: pl.DataFrame, tmp_path: Path) -> None:
    Shifted(3, season=7, by=10).fit(frame).save(tmp_path)
    with pytest.raises(DataError, match=r"call Shifted\.load\(path\), or logsparse\.register\(Shifted\) first"):
        ls.load(tmp_path)
    assert ls.register(Shifted) is Shifted
    assert isinstance(ls.load(tmp_path), Shifted)


def test_a_trained_subclass_is_saved_and_loaded_with_its_weights(frame: pl.DataFrame, tmp_path: Path) -> None:
    fitted = Mine(6, config=small.config(epochs=1), samples=4, verbose=False).fit(frame)
    fitted.save(tmp_path)
    for loaded in (Mine.load(tmp_path, samples=4), ls.register(Mine) and ls.load(tmp_path, samples=4)):
        assert type(loaded) is Mine
        assert loaded.predict().equals(fitted.predict())


def test_a_class_does_not_load_what_another_saved(frame: pl.DataFrame, tmp_path: Path) -> None:
    Shifted(3, season=7).fit(frame).save(tmp_path)
    with pytest.raises(DataError, match=r"SeasonalNaive\.load reads a saved SeasonalNaive\. Got a Shifted in"):
        ls.SeasonalNaive.load(tmp_path)


def test_a_parameter_that_cannot_be_changed_is_refused_by_the_class_too(frame: pl.DataFrame, tmp_path: Path) -> None:
    Shifted(3, season=7).fit(frame).save(tmp_path)
    with pytest.raises(ConfigError, match="Nothing of a saved Shifted can be changed on loading"):
        Shifted.load(tmp_path, by=3)


def test_a_name_of_the_library_or_of_another_module_is_not_registered() -> None:
    with pytest.raises(ConfigError, match=r"a name of its own\. Got .*LogSparse, a name of logsparse"):
        ls.register(type("LogSparse", (ls.LogSparse,), {}))
    ls.register(Mine)
    ls.register(type("Mine", (ls.LogSparse,), {"__module__": __name__}))  # a cell that is run again
    with pytest.raises(ConfigError, match=r"Got elsewhere\.Mine, a name of"):
        ls.register(type("Mine", (ls.LogSparse,), {"__module__": "elsewhere"}))


@pytest.mark.parametrize("thing", ["Shifted", dict, Shifted(3)], ids=str)
def test_only_subclasses_of_forecaster_are_registered(thing: Any) -> None:
    with pytest.raises(ConfigError, match="A subclass of Forecaster is registered"):
        ls.register(thing)
