"""Tables 1 to 4 of the paper: models and settings on each set -> runs, rows, ours and theirs side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from logsparse.backtesting import backtest
from logsparse.baselines import named
from logsparse.baselines.deepar import DeepAR
from logsparse.data.panel import Panel
from logsparse.datasets.catalogue import named as data_set
from logsparse.datasets.compare import checked
from logsparse.datasets.ready import locate
from logsparse.forecast import Forecaster
from logsparse.forecaster import LogSparse
from logsparse.metrics import score
from logsparse.tasks.cases import DEEPAR, OURS, TABLES, Case, applies, models_of, seeds_of
from logsparse.tasks.experiment import UNIDENTIFIED, Experiment, Table
from logsparse.tasks.ledger import Identity, Row, Run, best
from logsparse.tasks.traces import NO_TRACES, Traces
from logsparse.tasks.trained import SAMPLES, facts_of, known_by


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
        return {**_scores(backtest(forecaster, panel, windows=case.windows)), **facts}
    began = time.monotonic()
    found = _scores(backtest(forecaster, panel, windows=case.windows))
    return {**found, "minutes": (time.monotonic() - began) / 60}


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
