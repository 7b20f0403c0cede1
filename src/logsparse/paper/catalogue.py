"""The name of a data set -> its expected T, M, S and span, and where its originals come from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from logsparse.errors import ConfigError, suggest


@dataclass(frozen=True)
class Source:
    """A public original. `files` are name patterns; without `urls` it must be downloaded by hand."""

    title: str
    page: str
    files: tuple[str, ...]
    reader: str
    """`module:function` that makes a table from the files and a data set."""
    urls: tuple[str, ...] = ()
    most: int = 0
    """Maximal bytes of one download: well above what is expected, far below what fills a disk."""
    login: bool = False


@dataclass(frozen=True)
class DataSet:
    """`lengths`, `series` and `step` are T, M and S of the paper's table; for other sets, those of the file."""

    name: str
    lengths: tuple[int, ...]
    series: int
    step: str
    span: tuple[str, str] | None = None
    """First and last step, inclusive; None where every series has its own."""
    source: Source | None = None
    """None where the set exists only as a ready file."""
    gaps: int = 0
    """Steps between its first and last that the source leaves out, the same for every series."""
    missing: int = 0
    """Values that are missing in addition, over all series."""
    stem: str = ""
    paper: bool = True
    note: str = ""

    @property
    def first(self) -> datetime:
        assert self.span is not None
        return datetime.fromisoformat(self.span[0])

    @property
    def last(self) -> datetime:
        assert self.span is not None
        return datetime.fromisoformat(self.span[1])

    @property
    def file(self) -> str:
        return f"{self.stem or self.name.replace('-', '_')}.parquet"


_UCI = "https://archive.ics.uci.edu"
_M4 = "https://raw.githubusercontent.com/Mcompetitions/M4-methods/master/Dataset"
_GIGABYTE = 1_000_000_000

ELECTRICITY = Source(
    title="UCI ElectricityLoadDiagrams20112014",
    page=f"{_UCI}/dataset/321/electricityloaddiagrams20112014",
    files=("LD2011_2014.txt",),
    reader="logsparse.paper.sources:read_electricity",
    urls=(f"{_UCI}/static/public/321/electricityloaddiagrams20112014.zip",),
    most=_GIGABYTE,
)
TRAFFIC = Source(
    title="UCI PEMS-SF",
    page=f"{_UCI}/dataset/204/pems+sf",
    files=("PEMS_train", "PEMS_test", "PEMS_trainlabels", "PEMS_testlabels", "randperm", "stations_list"),
    reader="logsparse.paper.sources:read_traffic",
    urls=(f"{_UCI}/static/public/204/pems+sf.zip",),
    most=_GIGABYTE,
)
SOLAR = Source(
    title="NREL solar power data, Alabama 2006",
    page="https://www.nrel.gov/grid/solar-power-data.html",
    files=("Actual_*_2006_*_5_Min.csv",),
    reader="logsparse.paper.sources:read_solar",
    urls=("https://www.nrel.gov/grid/assets/downloads/al-pv-2006.zip",),
    most=_GIGABYTE,
)
WIND = Source(
    title="30 years of European wind generation, by country",
    page="https://www.kaggle.com/sohier/30-years-of-european-wind-generation",
    files=("EMHIRESPV_TSh_CF_Country_19862015.csv",),
    reader="logsparse.paper.sources:read_wind",
    login=True,
)
M4 = Source(
    title="M4 competition",
    page="https://github.com/Mcompetitions/M4-methods/tree/master/Dataset",
    files=("Hourly-train.csv", "Hourly-test.csv", "M4-info.csv"),
    reader="logsparse.paper.sources:read_m4",
    urls=(f"{_M4}/Train/Hourly-train.csv", f"{_M4}/Test/Hourly-test.csv", f"{_M4}/M4-info.csv"),
    most=_GIGABYTE // 10,
)

DATASETS = (
    DataSet("electricity-c", (32304,), 370, "h", ("2011-01-01 00:00", "2014-09-07 23:00"), ELECTRICITY),
    DataSet("electricity-f", (129120,), 370, "15min", ("2011-01-01 00:15", "2014-09-07 00:00"), ELECTRICITY),
    DataSet("traffic-c", (4049,), 963, "h", ("2008-01-02 00:00", "2008-06-22 16:00"), TRAFFIC, gaps=96),
    DataSet("traffic-f", (12435,), 963, "20min", ("2008-01-02 00:00", "2008-06-22 16:40"), TRAFFIC, gaps=288),
    DataSet("wind", (10957,), 28, "d", ("1986-01-01 00:00", "2015-12-31 00:00"), WIND),
    DataSet("solar", (5832,), 137, "h", ("2006-01-01 00:00", "2006-08-31 23:00"), SOLAR, stem="solar_hourly"),
    DataSet("m4-hourly", (748, 1008), 414, "h", source=M4),
    DataSet(
        "electricity-c-fortnight",
        (336,),
        370,
        "h",
        ("2014-08-25 00:00", "2014-09-07 23:00"),
        paper=False,
        note="the last 14 days of electricity-c, test week included; no history to train on",
    ),
    DataSet(
        "solar-10min",
        (34992,),
        137,
        "10min",
        ("2006-01-01 00:00", "2006-08-31 23:50"),
        SOLAR,
        paper=False,
        note="solar at 10 minutes, stands in for the fine sets",
    ),
    DataSet(
        "traffic-c20-hourly",
        (17544,),
        20,
        "h",
        ("2015-01-01 00:00", "2016-12-31 23:00"),
        paper=False,
        note="20 road sensors of other years, stands in for traffic-c",
    ),
    DataSet(
        "electricity-c-2014-12-5weeks",
        (840,),
        369,
        "h",
        ("2014-11-27 00:00", "2014-12-31 23:00"),
        paper=False,
        note="the last 35 days of electricity-c, one customer short; dates assigned",
    ),
    DataSet(
        "traffic-c-2008-01-fortnight",
        (336,),
        963,
        "h",
        ("2008-01-07 16:00", "2008-01-22 15:00"),
        gaps=24,
        paper=False,
        note="14 days of traffic-c, all lanes",
    ),
    DataSet(
        "cambridge-buildings",
        (34944,),
        45,
        "h",
        # From the first day on which every building has values.
        ("2011-01-06 00:00", "2014-12-31 23:00"),
        missing=478,
        stem="cambridge_buildings_2011_hourly",
        paper=False,
        note="electricity of 45 university buildings, stands in for electricity-c",
    ),
    DataSet(
        "parking-germany-15min",
        (35040,),
        77,
        "15min",
        ("2023-01-01 00:00", "2023-12-31 23:45"),
        missing=4265,
        paper=False,
        note="free places of 77 car parks (UTC), stands in for the fine sets",
    ),
    DataSet(
        "etth1",
        (17420,),
        7,
        "h",
        ("2016-07-01 00:00", "2018-06-26 19:00"),
        paper=False,
        note="electricity transformer temperature",
    ),
)
_NAMES = {entry.name: entry for entry in DATASETS}


def named(name: str) -> DataSet:
    """Return the data set of this name; case is ignored, and _ may stand for -."""
    plain = name.strip().lower().replace("_", "-")
    if plain not in _NAMES:
        raise ConfigError(
            f"A data set must be one of: {', '.join(_NAMES)}.",
            got=repr(name),
            hint=suggest(plain, _NAMES, "`logsparse data list` shows all of them."),
        )
    return _NAMES[plain]


def step_in_words(step: str) -> str:
    """Return a step as the paper's table writes it."""
    return {"h": "1 hour", "d": "1 day"}.get(step, step.replace("min", " mins"))
