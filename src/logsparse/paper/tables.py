"""Tables 1 to 4 of the paper: its numbers, its cases and settings -> runs, rows, ours and theirs side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from logsparse import presets
from logsparse.attention.pattern import full, restart
from logsparse.baselines.deepar import DeepAR
from logsparse.config import Config
from logsparse.data.panel import Panel
from logsparse.evaluation.backtest import backtest
from logsparse.evaluation.metrics import score
from logsparse.forecast import Forecaster
from logsparse.forecaster import LogSparse
from logsparse.paper.catalogue import named as data_set
from logsparse.paper.experiment import (
    NO_TRACES,
    SAMPLES,
    UNIDENTIFIED,
    Experiment,
    Table,
    Traces,
    facts_of,
    known_by,
    look_of_all_positions,
    look_of_layers,
    losses,
)
from logsparse.paper.ledger import Identity, Row, Run, best
from logsparse.paper.prepare import checked, locate
from logsparse.registry import named

Scores = tuple[float, float | None]

# Table 1. `paper` is the paper's own model, `deepar-paper` its DeepAR, everywhere.
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
"""Of each of the paper's own models on its own sets, as in the paper; of all others one."""
KERNEL_SIZES = (1, 2, 3, 6, 9)


@dataclass(frozen=True)
class Case:
    """Rolling windows at the end of a set, and settings of the paper's own models on it, by the model's name."""

    data: str
    horizon: int
    windows: int
    configs: Mapping[str, Callable[[], Config]]
    stands_in_for: str | None = None
    leaves: Mapping[str, Callable[[LogSparse], dict[str, Any]]] = field(default_factory=dict)
    """What a fitted model leaves for a figure beside its curve, by the model's name."""
    has_past: bool = True
    """Whether there is something to learn from before the windows; without, there is seasonal naive alone."""


def _fine_models(make: Callable[..., Config], short: int) -> dict[str, Callable[[], Config]]:
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


def solar_fine(*, sparse: bool = True, conv: bool = True, context: int = 1008) -> Config:
    """Ten minutes: L = 1152 with 128 cells a row, or full attention of the same memory at L = 384.

    Instead of the six layers of electricity-f, the fewest that let the sparse pattern reach its whole window, the same
    for full attention; and a week held back instead of a tenth, which would be all that is known of August.
    """
    base, pattern = presets.electricity_f(sparse=False, conv=conv), restart(144, width=8)
    layers = pattern.layers_to_reach(1152)
    assert layers is not None, "every past is reached in the end"
    model = replace(base.model, layers=layers, patterns=(pattern if sparse else full(),))
    train = replace(base.train, validation_steps=1008)
    config = replace(base, context=context, horizon=144, model=model, train=train)
    return _one_pass(config, windows=3_000, batch=4)


def traffic_stand_in(days: int, kernel: int) -> Config:
    """The paper's network for traffic-c.

    Shares of a road's use, some hundredths, are divided by their mean, not by 1 more than it; and the rate rises and
    falls: the paper's own settings would take many times as many windows (docs/LOG.md).
    """
    config = _one_pass(presets.traffic_c(days, kernel), windows=32_000, batch=16, looks=40)
    train = replace(config.train, schedule="one-cycle", lr=3e-3, average=0.99)
    return replace(config, model=replace(config.model, scale="mean"), train=train)


def ten_layers() -> Config:
    """The paper's model of traffic-f with full, canonical attention, at hours instead of 20 minutes."""
    fine, hourly = presets.traffic_f(sparse=False, conv=False), traffic_stand_in(1, kernel=1)
    model = replace(fine.model, scale=hourly.model.scale)
    return _one_pass(replace(hourly, model=model, train=fine.train), windows=16_000, batch=16)


def _one_pass(config: Config, *, windows: int, batch: int, looks: int = 10) -> Config:
    """As many windows as two cores can learn from in minutes, the same for all models of a stand-in.

    In small batches: their many steps count for more than the windows of each.
    """
    train = replace(config.train, windows=windows, batch=batch, epochs=1, patience=None)
    return replace(
        config, train=replace(train, validate_every=windows // batch // looks, validation_windows=16 * batch)
    )


def _compared(make: Callable[[], Config]) -> dict[str, Callable[[], Config]]:
    """The paper's own model and its DeepAR, on the same windows."""
    return {"paper": make, DEEPAR: lambda: presets.deepar(make())}


def _kernels(make: Callable[..., Config]) -> dict[str, Callable[[], Config]]:
    return {f"k={kernel}": partial(make, 1, kernel) for kernel in KERNEL_SIZES}


# Figures 2 and 6 are drawn from runs of the tables, where the paper's own sets are here.
_MATRIX, _LAYERS = {"k=1": look_of_all_positions}, {"full-length": look_of_layers}

TABLES: dict[str, tuple[str, dict[str, Case], dict[str, dict[str, Scores]]]] = {
    "main": (
        "Table 1, all methods",
        {
            "electricity-c, 1 day x 7": Case("electricity-c", 24, 7, _compared(presets.electricity_c)),
            "electricity-c-fortnight, 1 day x 7": Case(
                "electricity-c-fortnight", 24, 7, {}, "electricity-c, 1 day x 7", has_past=False
            ),
            "electricity-c, 7 days": Case("electricity-c", 168, 1, _compared(partial(presets.electricity_c, 7))),
            "traffic-c, 1 day x 7": Case("traffic-c", 24, 7, _compared(presets.traffic_c)),
            "traffic-c, 7 days": Case("traffic-c", 168, 1, _compared(partial(presets.traffic_c, 7))),
        },
        MAIN,
    ),
    "kernels": (
        "Table 2, size of the kernel",
        {
            "electricity-c, 1 day x 7": Case("electricity-c", 24, 7, _kernels(presets.electricity_c)),
            "traffic-c, 1 day x 7": Case("traffic-c", 24, 7, _kernels(presets.traffic_c), leaves=_MATRIX),
            "traffic-c20-hourly, 1 day x 7": Case(
                "traffic-c20-hourly", 24, 7, _kernels(traffic_stand_in), "traffic-c, 1 day x 7", _MATRIX
            ),
        },
        KERNELS,
    ),
    "sparse": (
        "Table 3, sparse against full attention",
        {
            "electricity-f, 1 day x 7": Case("electricity-f", 96, 7, _fine_models(presets.electricity_f, 197)),
            "traffic-f, 1 day x 7": Case("traffic-f", 72, 7, _fine_models(presets.traffic_f, 182), leaves=_LAYERS),
            "solar-10min, 1 day x 7": Case(
                "solar-10min", 144, 7, _fine_models(solar_fine, 240), "electricity-f and traffic-f"
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
    "learned-attention": (
        "Figure 2, scores of its model",
        {
            "traffic-c20-hourly, 1 day x 7": Case(
                "traffic-c20-hourly", 24, 7, {"full-length": ten_layers}, "traffic-f, 1 day x 7", _LAYERS
            ),
        },
        SPARSE,
    ),
}
# The paper's baselines, beside its own model and our default; tables 2 and 3 compare its own models alone.
RIVALS = {
    "main": (OURS, "arima", "ets", "trmf", "deepar", "deepstate"),
    "granularities": (OURS, "arima", "ets", "trmf", "deepar", "deepstate"),
}


_OWN = {model for _, cases, _ in TABLES.values() for case in cases.values() for model in case.configs}


def models_of(name: str) -> tuple[str, ...]:
    """Seasonal naive first, always: what is not better than it is not worth its minutes."""
    own = [model for case in TABLES[name][1].values() for model in case.configs]
    return (NAIVE, *dict.fromkeys(own), *RIVALS.get(name, ()))


def seeds_of(model: str, case: Case) -> int:
    """How many runs the model has by default on the set."""
    return SEEDS if model in case.configs and case.stands_in_for is None else 1


def applies(model: str, case: Case) -> bool:
    """Whether the model is run on the set."""
    if not case.has_past:
        return model == NAIVE
    # TRMF needs series of one span, which those of M4 are not; the paper leaves that cell empty too.
    if model == "trmf" and case.data == "m4-hourly":
        return False
    return model in case.configs or model not in _OWN


def _runs(name: str, seeds: int | None, models: Sequence[str], budget: float | None = None) -> list[Run]:
    """Of sets that are on this machine; a model that draws nothing runs once, and without a budget."""
    found = []
    for title, case in TABLES[name][1].items():
        if locate(data_set(case.data)) is None:
            continue
        for model in models:
            if not applies(model, case):
                continue
            trained = model in case.configs or model in (OURS, "deepar", "deepstate")
            if trained:
                count = seeds_of(model, case) if seeds is None else seeds
                found += [Run(name, title, model, seed, budget) for seed in range(count)]
            else:
                found.append(Run(name, title, model))
    return found


def _identify(runs: Sequence[Run]) -> dict[Run, Identity]:
    """By the settings of each model, those included that follow from the data, and the whole set; each read once."""
    found: dict[Run, Identity] = {}
    for place in dict.fromkeys((run.task, run.case) for run in runs):
        case = _case(*place)
        panel = checked(case.data)
        same = [run for run in runs if (run.task, run.case) == place]
        models = {run.model: _forecaster(run, case) for run in same}
        known = {name: known_by(model, _past(panel, case), panel) for name, model in models.items()}
        found |= {run: known[run.model] for run in same}
    return {run: found[run] for run in runs}


def _case(task: str, title: str) -> Case:
    return TABLES[task][1][title]


def _past(panel: Panel, case: Case) -> Panel:
    """What there is to learn from before the windows."""
    return panel.cut(panel.lengths - case.horizon * case.windows)


def _carry_out(run: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
    case = _case(run.task, run.case)
    panel = checked(case.data)
    forecaster = _forecaster(run, case)
    if hasattr(forecaster, "verbose"):
        forecaster.verbose = verbose
    if isinstance(forecaster, LogSparse):
        forecaster.minutes = run.budget
        forecaster.fit(_past(panel, case), folder=folder)
        facts = facts_of(forecaster)
        if leave := case.leaves.get(run.model):
            facts["trace"] |= leave(forecaster)
        results = backtest(forecaster, panel, windows=case.windows)
        facts["trace"]["losses"] = {forecaster.method: losses(results)}
        if forecaster.method == "mean-path":
            # The row has the authors' way; joint paths of the same network are scored beside it.
            forecaster.method = "ancestral"
            facts["trace"]["losses"]["ancestral"] = losses(backtest(forecaster, panel, windows=case.windows))
            forecaster.method = "mean-path"
        return {**_scores(results), **facts}
    began = time.monotonic()
    results = backtest(forecaster, panel, windows=case.windows)
    minutes = (time.monotonic() - began) / 60
    return {**_scores(results), "minutes": minutes, "trace": {"losses": {run.model: losses(results)}}}


def _forecaster(run: Run, case: Case) -> Forecaster:
    if run.model == DEEPAR:
        return DeepAR(case.horizon, config=case.configs[DEEPAR](), seed=run.seed, samples=SAMPLES)
    if run.model in case.configs:
        # The authors fed the mean back.
        config = replace(case.configs[run.model](), method="mean-path")
        return LogSparse(case.horizon, config=config, seed=run.seed, samples=SAMPLES)
    forecaster = named("logsparse" if run.model == OURS else run.model, case.horizon)
    if isinstance(forecaster, LogSparse):
        forecaster.seed, forecaster.samples = run.seed, SAMPLES
    return forecaster


def _scores(results: Any) -> dict[str, float | None]:
    found = score(results).row(0, named=True)
    return {name: found.get(name) for name in ("R0.5", "R0.9")}


def _tables(name: str, rows: Sequence[Row], _traces: Traces = NO_TRACES) -> list[Table]:
    """Ours beside the paper's; of several seeds the one with the lowest validation loss, as the paper chose."""
    title, cases, published = TABLES[name]
    lines = []
    for case_title, case in cases.items():
        here = locate(data_set(case.data)) is not None
        for model in models_of(name):
            found = best([row for row in rows if (row["case"], row["model"]) == (case_title, model)])
            theirs = published.get(case.stands_in_for or case_title, {}).get(model)
            if found is None and (not applies(model, case) or (theirs is None and not here)):
                continue
            note = "; ".join(_notes(case, found, here=here))
            ours = _pair(found["R0.5"], found["R0.9"], digits=4) if found else "-"
            minutes = f"{float(found['minutes']):.1f}" if found else "-"
            lines.append([case_title, model, ours, _pair(*theirs) if theirs else "-", minutes, note])
    return [Table(title, ["case", "model", "here R0.5/R0.9", "paper R0.5/R0.9", "minutes", "note"], lines)]


def _notes(case: Case, found: Row | None, *, here: bool) -> Iterator[str]:
    """What a reader must know of the numbers in a line."""
    if not case.has_past:
        yield "the paper's test week itself, without the years before it"
    elif case.stands_in_for:
        yield f"stands in for {case.stands_in_for}"
    if found is None:
        yield "not run yet" if here else "the data are not here"
    elif not found["data"]:
        yield UNIDENTIFIED


def _pair(*scores: float | str | None, digits: int = 3) -> str:
    return "/".join("-" if value is None or value == "" else f"{float(value):.{digits}f}" for value in scores)


def _experiment(name: str) -> Experiment:
    sets = tuple(dict.fromkeys(case.data for case in TABLES[name][1].values()))
    tables = partial(_tables, name)
    return Experiment(name, models_of(name), partial(_runs, name), _identify, _carry_out, tables, sets=sets)


MAIN_TABLE, KERNELS_TABLE, SPARSE_TABLE, GRANULARITIES_TABLE, TEN_LAYERS_TABLE = map(_experiment, TABLES)
TABLES_OF_THE_PAPER = [MAIN_TABLE, KERNELS_TABLE, SPARSE_TABLE, GRANULARITIES_TABLE]
