"""The cases of tables 1 to 4: the paper's numbers, the set, the test windows, and the settings of its own models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from logsparse import presets
from logsparse.attention.pattern import Pattern, from_distances, full, local, logsparse, restart, seasonal
from logsparse.config import Config
from logsparse.forecaster import LogSparse
from logsparse.paper.experiment import attention_of_all_positions, attention_of_layers

Scores = tuple[float, float | None]

# Table 1. Everywhere, `paper` is the paper's own model and `deepar-paper` its DeepAR.
MAIN: dict[str, dict[str, Scores]] = {
    "electricity-c, 1 day x 7": {
        "arima": (0.154, 0.102),
        "ets": (0.101, 0.077),
        "trmf": (0.084, None),
        "deepar-paper": (0.075, 0.040),
        "deepstate": (0.083, 0.056),
        "paper": (0.059, 0.034),
    },
    "electricity-c, 7 days": {
        "arima": (0.283, 0.109),
        "ets": (0.121, 0.101),
        "trmf": (0.087, None),
        "deepar-paper": (0.082, 0.053),
        "deepstate": (0.085, 0.052),
        "paper": (0.070, 0.044),
    },
    "traffic-c, 1 day x 7": {
        "arima": (0.223, 0.137),
        "ets": (0.236, 0.148),
        "trmf": (0.186, None),
        "deepar-paper": (0.161, 0.099),
        "deepstate": (0.167, 0.113),
        "paper": (0.122, 0.081),
    },
    "traffic-c, 7 days": {
        "arima": (0.492, 0.280),
        "ets": (0.509, 0.529),
        "trmf": (0.202, None),
        "deepar-paper": (0.179, 0.105),
        "deepstate": (0.168, 0.114),
        "paper": (0.139, 0.094),
    },
}

# Table 2: the size of the convolution's kernel.
KERNELS: dict[str, dict[str, Scores]] = {
    "electricity-c, 1 day x 7": {
        "k=1": (0.060, 0.030),
        "k=2": (0.058, 0.030),
        "k=3": (0.057, 0.031),
        "k=6": (0.057, 0.031),
        "k=9": (0.059, 0.034),
    },
    "traffic-c, 1 day x 7": {
        "k=1": (0.134, 0.089),
        "k=2": (0.124, 0.085),
        "k=3": (0.123, 0.083),
        "k=6": (0.123, 0.083),
        "k=9": (0.122, 0.081),
    },
}

# Table 3: sparse against full attention, of the same memory and of the same length.
SPARSE: dict[str, dict[str, Scores]] = {
    "electricity-f, 1 day x 7": {
        "full-memory": (0.083, 0.051),
        "full-length": (0.082, 0.047),
        "sparse": (0.084, 0.047),
        "full+conv-memory": (0.078, 0.048),
        "full+conv-length": (0.074, 0.042),
        "sparse+conv": (0.079, 0.049),
    },
    "traffic-f, 1 day x 7": {
        "full-memory": (0.161, 0.109),
        "full-length": (0.147, 0.096),
        "sparse": (0.150, 0.098),
        "full+conv-memory": (0.149, 0.102),
        "full+conv-length": (0.139, 0.090),
        "sparse+conv": (0.138, 0.092),
    },
}

# Table 4: various granularities.
GRANULARITIES: dict[str, dict[str, Scores]] = {
    "electricity-f, 1 day x 7": {"trmf": (0.094, None), "deepar-paper": (0.082, 0.063), "paper": (0.074, 0.042)},
    "traffic-f, 1 day x 7": {"trmf": (0.213, None), "deepar-paper": (0.230, 0.150), "paper": (0.139, 0.090)},
    "solar, 1 day x 7": {"trmf": (0.241, None), "deepar-paper": (0.222, 0.093), "paper": (0.210, 0.082)},
    "m4-hourly, 2 days": {"deepar-paper": (0.090, 0.030), "paper": (0.067, 0.025)},
    "wind, 30 days x 7": {"trmf": (0.311, None), "deepar-paper": (0.286, 0.116), "paper": (0.284, 0.108)},
}


NAIVE, OURS = "seasonal-naive", "default"
DEEPAR = "deepar-paper"
"""DeepAR with the settings of the paper; `deepar` has the recipe of our default."""
SEEDS = 5
"""Of each of the paper's own models on its own sets, as in the paper; of all others one, unless the case says more."""
KERNEL_SIZES = (1, 3, 9, 2, 6)
"""In the order they run: the ends and the middle first, so that whoever stops early has the whole range."""
JUNE_END = "2016-06-28 23:00"
"""Last hour of four ordinary weeks of traffic: no holiday from Memorial Day, 30 May 2016, to 4 July."""

Models = dict[str, Callable[[], Config]]


@dataclass(frozen=True)
class Case:
    """Rolling windows at the end of a set, and the settings of the paper's own models on it, by model name."""

    data: str
    horizon: int
    windows: int
    configs: Mapping[str, Callable[[], Config]]
    stands_in_for: str | None = None
    """The case of the paper that other data stand in for."""
    part_of: str | None = None
    """The case of the paper that these data are a part of."""
    leaves: Mapping[str, Callable[[LogSparse], dict[str, Any]]] = field(default_factory=dict)
    """What a fitted model leaves for a figure in addition to its curve, by model name."""
    until: str | None = None
    """Last step of the set that is used; None: all of it."""
    only: tuple[str, ...] | None = None
    """The models that run on it; None: all of the table."""
    seeds: int | None = None
    """Runs of each trained model by default; None: `SEEDS` on the paper's sets, else one."""
    note: str = ""

    @property
    def state(self) -> str:
        """Whose data these are: the paper's, a part of them, or a stand-in."""
        return "stand-in" if self.stands_in_for else "part" if self.part_of else "paper's"

    def published(self, title: str) -> str:
        """The paper's name of the case with this title."""
        return self.stands_in_for or self.part_of or title


def one_pass(
    config: Config, *, windows: int, batch: int, validations: int = 40, validation_windows: int = 512
) -> Config:
    """One pass over as many windows as one core can learn from in an hour or two, the same for all compared models.

    In small batches: the number of steps matters more than the windows of each.
    """
    train = replace(config.train, windows=windows, batch=batch, epochs=1, patience=None)
    every = windows // batch // validations
    return replace(config, train=replace(train, validate_every=every, validation_windows=validation_windows))


def one_cycle(config: Config, *, windows: int, batch: int) -> Config:
    """One pass whose learning rate rises and falls: a constant rate needs many times as many windows (docs/LOG.md)."""
    config = one_pass(config, windows=windows, batch=batch)
    return replace(config, train=replace(config.train, schedule="one-cycle", lr=3e-3, average=0.99))


def _divided_by_mean(config: Config) -> Config:
    """For road occupancies of some hundredths, which 1 + their mean would make all but constant."""
    return replace(config, model=replace(config.model, scale="mean"))


def solar_kernel(kernel: int) -> Config:
    """The paper's network for solar with this kernel, 200,000 windows in 6,250 steps."""
    base = presets.solar()
    return one_cycle(replace(base, model=replace(base.model, kernel=kernel)), windows=200_000, batch=32)


def traffic_kernel(kernel: int) -> Config:
    """The paper's network for traffic-c with this kernel, 200,000 windows in 6,250 steps."""
    return _divided_by_mean(one_cycle(presets.traffic_c(1, kernel), windows=200_000, batch=32))


def traffic_weekly(*, sparse: bool = True, conv: bool = True, context: int = 168) -> Config:
    """Table 3 at the hourly scale: L = 192 with 80 cells per row, or full attention of the same memory at L = 124.

    Restart with sub-length 24; three layers reach the whole window. 80,000 windows in 5,000 steps: 200,000 would take
    more than an hour per run. The short window does not contain the same hour a week ago, the long one does.
    """
    base = presets.traffic_c(1, kernel=6 if conv else 1)
    pattern = restart(24, dense_rows=80) if sparse else full()
    config = replace(base, context=context, model=replace(base.model, patterns=(pattern,)))
    return _divided_by_mean(one_cycle(config, windows=80_000, batch=16))


CELLS = 31
"""Cells per row of every pattern that `patterns` compares, but for LogSparse itself with 9."""
# Powers of 1.15, rounded: as many distances up to 191.
_POWERS = from_distances(round(1.15**e) for e in range(38))
# "per-layer": near steps first, seasons last.
PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "log-9": (logsparse(),),
    "log": (_POWERS,),
    "local+log": (local(23),),
    "restart": (restart(84, 4),),
    "log+season": (seasonal(24),),
    "per-layer": (from_distances(range(CELLS)), _POWERS, _POWERS, seasonal(24)),
}


def traffic_pattern(name: str) -> Config:
    """Table 3 at the hourly scale with another pattern, the same windows and training.

    Four layers, through which every pattern of 31 cells reaches the whole window; LogSparse would need seven.
    """
    base = traffic_weekly()
    return replace(base, model=replace(base.model, layers=4, patterns=PATTERNS[name]))


def parking_fine(*, sparse: bool = True, conv: bool = True, context: int = 672) -> Config:
    """The paper's settings of electricity-f; 20,000 windows in 5,000 steps."""
    base = presets.electricity_f(sparse=sparse, conv=conv, context=context)
    return one_pass(base, windows=20_000, batch=4, validations=20, validation_windows=256)


def buildings(days: int = 1) -> Config:
    """The paper's settings of electricity-c; one pass over 200,000 windows in 6,250 steps."""
    return one_pass(presets.electricity_c(days), windows=200_000, batch=32)


def ten_layers() -> Config:
    """The paper's model of traffic-f with full, canonical attention, at hours instead of 20 minutes."""
    fine, hourly = presets.traffic_f(sparse=False, conv=False), presets.traffic_c(1, kernel=1)
    config = replace(hourly, model=replace(fine.model, scale="mean"), train=fine.train)
    return one_pass(config, windows=16_000, batch=16, validations=10, validation_windows=256)


def _fine_models(make: Callable[..., Config], short: int) -> Models:
    """Six models of table 3: with and without convolution, sparse or full, `short` the context of equal memory."""
    return {
        f"{kind}{'+conv' if conv else ''}{constraint}": partial(make, sparse=kind == "sparse", conv=conv, **context)
        for conv in (False, True)
        for kind, constraint, context in (
            ("full", "-memory", {"context": short}),
            ("full", "-length", {}),
            ("sparse", "", {}),
        )
    }


def _compared(make: Callable[[], Config]) -> Models:
    """The paper's own model and its DeepAR, on the same windows."""
    return {"paper": make, DEEPAR: lambda: presets.deepar(make())}


def _kernels(make: Callable[[int], Config]) -> Models:
    return {f"k={kernel}": partial(make, kernel) for kernel in KERNEL_SIZES}


# Figures 2 and 6 are drawn from runs of the tables where the paper's own sets are available.
_MATRIX, _LAYERS = {"k=1": attention_of_all_positions}, {"full-length": attention_of_layers}
_DAY, _WEEK = "electricity-c, 1 day x 7", "electricity-c, 7 days"
_SEPTEMBER_END = "2014-09-07 23:00"

TABLES: dict[str, tuple[str, dict[str, Case], dict[str, dict[str, Scores]]]] = {
    "main": (
        "Table 1, all methods",
        {
            _DAY: Case("electricity-c", 24, 7, _compared(presets.electricity_c)),
            "electricity-c-fortnight, 1 day x 7": Case(
                "electricity-c-fortnight",
                24,
                7,
                {},
                part_of=_DAY,
                only=(NAIVE,),
                note="the paper's test week itself, without the years before it",
            ),
            "electricity-c-2014-12-5weeks, 1 day x 7": Case(
                "electricity-c-2014-12-5weeks",
                24,
                7,
                {},
                part_of=_DAY,
                until="2014-12-21 23:00",
                only=(NAIVE, OURS),
                note="25 days of electricity-c, ending before Christmas; not the paper's week",
            ),
            "cambridge-buildings, 1 day x 7": Case(
                "cambridge-buildings", 24, 7, _compared(buildings), stands_in_for=_DAY, until=_SEPTEMBER_END
            ),
            _WEEK: Case("electricity-c", 168, 1, _compared(partial(presets.electricity_c, 7))),
            "cambridge-buildings, 7 days": Case(
                "cambridge-buildings",
                168,
                1,
                _compared(partial(buildings, 7)),
                stands_in_for=_WEEK,
                until=_SEPTEMBER_END,
            ),
            "traffic-c, 1 day x 7": Case("traffic-c", 24, 7, _compared(presets.traffic_c)),
            "traffic-c-2008-01-fortnight, 1 day x 5": Case(
                "traffic-c-2008-01-fortnight",
                24,
                5,
                {},
                part_of="traffic-c, 1 day x 7",
                until="2008-01-20 15:00",
                only=(NAIVE, OURS),
                note="13 days of traffic-c, ending before the day that is missing; not the paper's week",
            ),
            "traffic-c, 7 days": Case("traffic-c", 168, 1, _compared(partial(presets.traffic_c, 7))),
        },
        MAIN,
    ),
    "kernels": (
        "Table 2, size of the kernel",
        {
            _DAY: Case("electricity-c", 24, 7, _kernels(partial(presets.electricity_c, 1))),
            "traffic-c, 1 day x 7": Case("traffic-c", 24, 7, _kernels(partial(presets.traffic_c, 1)), leaves=_MATRIX),
            "solar, 1 day x 28": Case(
                "solar", 24, 28, _kernels(solar_kernel), seeds=3, note="a set that table 2 does not have"
            ),
            "traffic-c20-hourly, 1 day x 28": Case(
                "traffic-c20-hourly",
                24,
                28,
                _kernels(traffic_kernel),
                stands_in_for="traffic-c, 1 day x 7",
                leaves=_MATRIX,
                until=JUNE_END,
                seeds=3,
            ),
        },
        KERNELS,
    ),
    "sparse": (
        "Table 3, sparse against full attention",
        {
            "electricity-f, 1 day x 7": Case("electricity-f", 96, 7, _fine_models(presets.electricity_f, 197)),
            "traffic-f, 1 day x 7": Case("traffic-f", 72, 7, _fine_models(presets.traffic_f, 182), leaves=_LAYERS),
            "traffic-c20-hourly, 1 day x 28": Case(
                "traffic-c20-hourly",
                24,
                28,
                _fine_models(traffic_weekly, 100),
                stands_in_for="traffic-f, 1 day x 7",
                until=JUNE_END,
                seeds=3,
            ),
            "parking-germany-15min, 1 day x 7": Case(
                "parking-germany-15min",
                96,
                7,
                _fine_models(parking_fine, 197),
                stands_in_for="electricity-f, 1 day x 7",
                until="2023-12-17 23:45",
                seeds=3,
            ),
        },
        SPARSE,
    ),
    "granularities": (
        "Table 4, various granularities",
        {
            "electricity-f, 1 day x 7": Case(
                "electricity-f", 96, 7, _compared(partial(presets.electricity_f, sparse=False))
            ),
            "traffic-f, 1 day x 7": Case("traffic-f", 72, 7, _compared(partial(presets.traffic_f, sparse=False))),
            "solar, 1 day x 7": Case("solar", 24, 7, _compared(presets.solar)),
            "m4-hourly, 2 days": Case("m4-hourly", 48, 1, _compared(presets.m4_hourly)),
            "wind, 30 days x 7": Case("wind", 30, 7, _compared(presets.wind)),
        },
        GRANULARITIES,
    ),
    "patterns": (
        "Patterns of equal cells, which the paper does not compare",
        {
            "traffic-c20-hourly, 1 day x 28": Case(
                "traffic-c20-hourly",
                24,
                28,
                {name: partial(traffic_pattern, name) for name in PATTERNS},
                stands_in_for="traffic-f, 1 day x 7",
                until=JUNE_END,
                seeds=3,
            ),
        },
        {},
    ),
    "learned-attention": (
        "Figure 2, scores of its model",
        {
            "traffic-c20-hourly, 1 day x 7": Case(
                "traffic-c20-hourly",
                24,
                7,
                {"full-length": ten_layers},
                stands_in_for="traffic-f, 1 day x 7",
                leaves=_LAYERS,
            ),
        },
        SPARSE,
    ),
}
# The paper's baselines, beside its own model and our default; tables 2 and 3 compare its own models only.
RIVALS = {
    "main": (OURS, "arima", "ets", "trmf", "deepar", "deepstate"),
    "granularities": (OURS, "arima", "ets", "trmf", "deepar", "deepstate"),
}
_OWN = {model for _, cases, _ in TABLES.values() for case in cases.values() for model in case.configs}


def models_of(name: str) -> tuple[str, ...]:
    """Return the models of a table, seasonal naive first: a model that does not beat it proves nothing."""
    own = [model for case in TABLES[name][1].values() for model in case.configs]
    return (NAIVE, *dict.fromkeys(own), *RIVALS.get(name, ()))


def seeds_of(model: str, case: Case) -> int:
    """Return how many runs a trained model has by default on the set."""
    if case.seeds is not None:
        return case.seeds
    return SEEDS if model in case.configs and case.state == "paper's" else 1


def applies(model: str, case: Case) -> bool:
    """Return True if the model runs on the set."""
    if case.only is not None:
        return model in case.only
    # TRMF needs series of one span, which those of M4 are not; the paper leaves that cell empty too.
    if model == "trmf" and case.data == "m4-hourly":
        return False
    return model in case.configs or model not in _OWN
