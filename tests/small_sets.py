"""A small catalogue of the paper's sets, and files that match it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from logsparse.paper import catalogue
from logsparse.paper.catalogue import DataSet, named
from original_files import electricity, european, m4, nrel, pems, pems_days

RNG = np.random.default_rng(5)
START = datetime.fromisoformat("2015-07-01 12:00")
QUARTERS = electricity(datetime.fromisoformat("2011-01-01 00:15"), RNG.uniform(0, 9, (192, 3)))
LANES = pems(pems_days(), RNG.uniform(0, 1, (len(pems_days()), 2, 144)))
SUN = nrel(datetime.fromisoformat("2006-01-01 00:00"), RNG.uniform(0, 9, 576))
HOURLY = m4({"H1": (START, [1.0] * 100), "H2": (START + timedelta(days=1), [2.0] * 120)})
LOAD = {"LD2011_2014.txt": QUARTERS}
PLANT = {"Actual_1_-2_2006_UPV_3MW_5_Min.csv": SUN}
COUNTRIES = {"EMHIRESPV_TSh_CF_Country_19862015.csv": european({"AT": np.ones(48), "CY": np.zeros(48)})}


def small(name: str, lengths: tuple[int, ...], series: int, first: str = "", last: str = "") -> DataSet:
    return replace(named(name), lengths=lengths, series=series, span=(first, last) if first else None)


SETS = [
    small("electricity-c", (47,), 3, "2011-01-01 00:00", "2011-01-02 22:00"),
    small("electricity-f", (190,), 3, "2011-01-01 00:15", "2011-01-02 23:30"),
    replace(named("traffic-c"), series=2),
    replace(named("traffic-f"), series=2),
    small("solar", (48,), 1, "2006-01-01 00:00", "2006-01-02 23:00"),
    small("wind", (2,), 1, "1986-01-01 00:00", "1986-01-02 00:00"),
    small("m4-hourly", (100, 120), 2),
]
FILES = dict(zip([entry.name for entry in SETS], [LOAD, LOAD, LANES, LANES, PLANT, COUNTRIES, HOURLY], strict=True))


def patched(monkeypatch: pytest.MonkeyPatch, dataset: DataSet) -> None:
    monkeypatch.setitem(catalogue._NAMES, dataset.name, dataset)


def emptied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of data sets, and the small catalogue for the length of a test."""
    folder.mkdir()
    monkeypatch.setenv("LOGSPARSE_DATA", str(folder))
    for dataset in SETS:
        patched(monkeypatch, dataset)
    return folder
