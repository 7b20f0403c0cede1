"""A name gives its panel, from the folder of the variable or from the user's cache, cut to the paper's span."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logsparse.errors import DataError
from logsparse.paper.catalogue import named
from logsparse.paper.prepare import folder, how_to_get, load, locate, outside


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    return tmp_path


def year_of_sun(path: Path) -> None:
    times = pl.datetime_range(
        datetime.fromisoformat("2006-01-01"), datetime.fromisoformat("2006-12-31"), "1h", eager=True
    )
    pl.DataFrame({"ds": times, "a": np.arange(len(times), dtype=np.float32)}).write_parquet(path)


def test_a_file_that_goes_on_is_cut_at_the_paper_s_end(kept: Path) -> None:
    year_of_sun(kept / "solar_hourly.parquet")
    panel = load("Solar")
    assert (panel.ids, panel.lengths.tolist(), str(panel.freq)) == (("a",), [5832], "h")
    assert panel.freq.show(int(panel.ends()[0])) == "2006-08-31 23:00"
    assert outside(named("solar"), kept / "solar_hourly.parquet") == 364 * 24 + 1 - 5832
    assert outside(named("m4-hourly"), kept / "solar_hourly.parquet") == 0


def test_the_variable_names_the_folder_and_the_cache_serves_without_it(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder() == kept
    monkeypatch.delenv("LOGSPARSE_DATA")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept / "cache"))
    assert folder() == kept / "cache" / "logsparse" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(kept))
    assert folder() == kept / ".cache" / "logsparse" / "data"
    monkeypatch.setattr("sys.platform", "darwin")
    assert folder() == kept / "Library" / "Caches" / "logsparse" / "data"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(kept / "Local"))
    assert folder() == kept / "Local" / "logsparse" / "data"


def test_a_variable_that_names_no_folder_is_refused(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(kept / "nowhere"))
    text = (
        r"LOGSPARSE_DATA must name a folder of data sets. Got .*nowhere. Hint: make the folder, or unset the variable"
    )
    with pytest.raises(DataError, match=text):
        load("solar")


def test_a_set_that_is_not_here_says_how_to_get_it(kept: Path) -> None:
    text = rf"The data set solar must be on this machine. Got no solar_hourly.parquet in {kept}. Hint: run `logsparse"
    with pytest.raises(DataError, match=text):
        load("solar")
    assert locate(named("solar")) is None
    assert how_to_get(named("wind")) == (
        "download it from https://www.kaggle.com/sohier/30-years-of-european-wind-generation (it asks for a login), "
        "then `logsparse data get wind --from FILE`."
    )
    assert how_to_get(named("etth1")) == (
        "there is no source to load it from; put etth1.parquet into the folder that LOGSPARSE_DATA names."
    )


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (pl.DataFrame({"ds": [datetime(2020, 1, 1, hour) for hour in range(9)], "a": 1.0}), "an empty frame"),  # noqa: DTZ001
        (pl.DataFrame({"ds": ["yesterday", "today"], "a": 1.0}), ""),
        (pl.DataFrame({"time": [1, 2], "a": 1.0}), ""),
        (b"", ""),
        (None, ""),
    ],
)
def test_a_file_that_cannot_be_the_set_is_named_with_the_way_to_a_better_one(
    content: pl.DataFrame | bytes | None, got: str, kept: Path
) -> None:
    path = kept / "solar_hourly.parquet"
    if isinstance(content, pl.DataFrame):
        content.write_parquet(path)
    elif content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    text = rf"{path} must hold the data set solar\. Got {got}.*\. Hint: move it away: run `logsparse data get solar`"
    with pytest.raises(DataError, match=text) as caught:
        load("solar")
    assert "\n" not in str(caught.value)
    assert str(caught.value).count("Hint") == 1


def test_the_real_sets_are_what_they_are_said_to_be(shared_data: Path) -> None:
    assert shared_data
    shapes = {name: (len(panel := load(name)), sorted(set(panel.lengths.tolist()))) for name in ("solar", "m4-hourly")}
    assert shapes == {"solar": (137, [5832]), "m4-hourly": (414, [748, 1008])}
