"""Tables 1 to 5: cases -> runs -> rows beside the paper's; how far a cell was trained, and how two cells differ."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from logsparse.baselines.recurrent import DeepAR
from logsparse.data.calendar import Freq
from logsparse.data.panel import Panel
from logsparse.data.times import clock_time
from logsparse.errors import DataError
from logsparse.evaluation.backtest import backtest
from logsparse.evaluation.compare import Interval
from logsparse.evaluation.compare import difference as bootstrapped
from logsparse.evaluation.metrics import score
from logsparse.forecast import Forecaster
from logsparse.forecaster import LogSparse
from logsparse.paper.cases import DEEPAR, NAIVE, OURS, TABLES, Case, applies, models_of, seeds_of
from logsparse.paper.catalogue import DATASETS, DataSet, step_in_words
from logsparse.paper.catalogue import named as data_set
from logsparse.paper.experiment import (
    NO_TRACES,
    SAMPLES,
    UNIDENTIFIED,
    Experiment,
    Prepared,
    Table,
    Traces,
    are_numbers,
    facts_of,
    known_by,
    losses,
    never,
    nothing_known,
    nothing_to_run,
)
from logsparse.paper.ledger import Identity, Row, Run, best
from logsparse.paper.prepare import checked, compare, how_to_get, load, locate
from logsparse.registry import named

# K seeds, U units (forecast starts, or series where there is one start)

# A curve counts as flat if its last tenth lowers the best loss by at most this share of its range.
_FLAT = 0.01
# A training to its planned end whose last quantile loss is this share above its best has lost what it had learned.
_LOST = 0.05
# Largest relative difference between the R0.5 of a row and that of its losses, which are rounded.
_ROUNDING = 1e-4
_LIKELIHOOD, _QUANTILES = "validation_nll", "validation_wql"


@dataclass(frozen=True)
class Cell:
    """All recorded seeds of one model in one case, and what they left."""

    rows: Sequence[Row]
    traces: Mapping[str, Any]
    """By seed."""

    @property
    def error(self) -> float:
        """R0.5, mean over seeds."""
        return fmean(float(row["R0.5"]) for row in self.rows)

    @property
    def seeds(self) -> int:
        """Number of runs."""
        return len(self.rows)

    @property
    def windows(self) -> int | None:
        """Training windows seen by each seed; None for a model without steps."""
        found = [_windows(row) for row in self.rows if row["steps"]]
        return min((count for count in found if count), default=None)

    @property
    def flat(self) -> bool | None:
        """True if the validation loss of every seed had stopped falling; None where no seed has a curve.

        The loss is that of the quantiles where a curve has it, since a density has no bound on values that repeat.
        """
        return self._all_flat(lambda curve: curve.get(_QUANTILES, curve[_LIKELIHOOD]))

    @property
    def likelihood_flat(self) -> bool | None:
        """The same of the negative log-likelihood."""
        return self._all_flat(lambda curve: curve[_LIKELIHOOD])

    @property
    def lost(self) -> bool:
        """True if the training of a seed came apart before its planned end: it kept the weights of an earlier step."""
        return any(_is_lost(curve) for row, curve in self._curves() if not _stopped(row))

    @property
    def unexplained(self) -> list[str]:
        """Seeds whose losses are missing, or are those of another score than the row's."""
        return [row["seed"] for row in self.rows if not _agrees(row, _losses(self.traces.get(row["seed"], {})))]

    def _all_flat(self, loss_of: Callable[[Mapping[str, Any]], Sequence[float]]) -> bool | None:
        found = [_stopped(row) or _is_flat(loss_of(curve)) for row, curve in self._curves()]
        return all(found) if found else None

    def _curves(self) -> list[tuple[Row, Mapping[str, Any]]]:
        traces = [(row, self.traces.get(row["seed"], {})) for row in self.rows]
        return [(row, trace["curve"]) for row, trace in traces if "curve" in trace]

    def beats(self, naive: float | None) -> bool | None:
        """True if its error is below seasonal naive's; None where that is not recorded."""
        return None if naive is None else self.error < naive


def cell(rows: Sequence[Row], traces: Traces, case: str, model: str) -> Cell | None:
    """Return the seeds of a model in a case, or None where there are none."""
    found = [row for row in rows if (row["case"], row["model"]) == (case, model)]
    return Cell(found, traces.get((case, model), {})) if found else None


def difference(one: Cell, other: Cell) -> Interval | None:
    """Return the relative difference of R0.5 by a paired bootstrap over units and seeds.

    Units are forecast starts (days) or series, resampled for both models together; seeds are resampled for each.
    None unless every seed left its losses, all on the same units.
    """
    left = [[_losses(each.traces.get(row["seed"], {})) for row in each.rows] for each in (one, other)]
    found = [[losses for losses in seeds if losses] for seeds in left]
    if found != left or len({tuple(losses["of"]) for seeds in found for losses in seeds}) != 1:
        return None
    mine_KU, theirs_KU = (np.array([losses["R0.5"] for losses in seeds]) for seeds in found)
    return bootstrapped(mine_KU, theirs_KU)


def sound(trace: Mapping[str, Any]) -> bool:
    """Return True if the losses and the curve of a trace, where it has them, can be read."""
    curve, losses = trace.get("curve"), trace.get("losses")
    if curve is not None:
        if not (isinstance(curve, dict) and are_numbers(curve.get(_LIKELIHOOD))):
            return False
        if _QUANTILES in curve and not are_numbers(curve[_QUANTILES], len(curve[_LIKELIHOOD])):
            return False
    if losses is None:
        return True
    return isinstance(losses, dict) and bool(losses) and all(map(_are_losses, losses.values()))


def _are_losses(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("of"), list)
        and all(are_numbers(found.get(name), len(found["of"])) for name in ("R0.5", "size"))
    )


def _losses(trace: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The losses behind a row: those of the first method, where there are several."""
    return next(iter(trace["losses"].values())) if trace.get("losses") else None


def _agrees(row: Row, losses: Mapping[str, Any] | None) -> bool:
    """True if these losses are those of the row's R0.5."""
    return losses is not None and math.isclose(
        sum(losses["R0.5"]), float(row["R0.5"]) * sum(losses["size"]), rel_tol=_ROUNDING
    )


def _train(row: Row) -> Mapping[str, Any]:
    found = json.loads(row["config"] or "{}").get("train", {})
    return found if isinstance(found, dict) else {}


def _windows(row: Row) -> int | None:
    batch = _train(row).get("batch")
    return int(row["steps"]) * batch if batch else None


def _stopped(row: Row) -> bool:
    """True if patience ended the training: fewer steps than planned."""
    train = _train(row)
    if not train or train.get("patience") is None:
        return False
    per_epoch = train["windows"] // train["batch"] if train.get("windows") else train["steps_per_epoch"]
    return int(row["steps"]) < int(per_epoch * train["epochs"])


def _is_flat(losses: Sequence[float]) -> bool:
    """True if the last tenth of the validations lowers the best loss by at most a hundredth of its range."""
    before, last = losses[: -_tenth(losses)], losses[-_tenth(losses) :]
    return bool(before) and min(before) - min(last) <= _FLAT * (max(losses) - min(losses))


def _is_lost(curve: Mapping[str, Any]) -> bool:
    """True if the weights kept, those of the best likelihood, are not of the last tenth, and quantile losses rose."""
    likelihoods, losses = curve[_LIKELIHOOD], curve.get(_QUANTILES)
    kept = likelihoods.index(min(likelihoods))
    return losses is not None and kept < len(losses) - _tenth(losses) and losses[-1] > (1 + _LOST) * min(losses)


def _tenth(losses: Sequence[float]) -> int:
    return max(1, round(len(losses) / 10))


_HEAD = ["case", "model", "data", "here R0.5/R0.9", "paper R0.5/R0.9",
         "windows", "seeds", "flat", "beats naive", "minutes", "note"]  # fmt: skip


def _runs(name: str, seeds: int | None, models: Sequence[str], budget: float | None = None) -> list[Run]:
    """Return the runs on sets that are on this machine: seed 0 of every cell first, then seed 1, and so on.

    A model that draws nothing runs once, and without a budget.
    """
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
    return sorted(found, key=lambda run: run.seed)


def _identify(runs: Sequence[Run]) -> dict[Run, Identity]:
    """Identify runs by all settings, those included that follow from the data, and the panel; each set is read once."""
    found: dict[Run, Identity] = {}
    for place in dict.fromkeys((run.task, run.case) for run in runs):
        case = _case(*place)
        panel = _panel(case)
        same = [run for run in runs if (run.task, run.case) == place]
        models = {run.model: _forecaster(run, case) for run in same}
        known = {name: known_by(model, _past(panel, case), panel) for name, model in models.items()}
        found |= {run: known[run.model] for run in same}
    return {run: found[run] for run in runs}


def _case(task: str, title: str) -> Case:
    return TABLES[task][1][title]


def _panel(case: Case) -> Panel:
    """The set up to the last step that the case uses."""
    panel = checked(case.data)
    return panel if case.until is None else panel.until(clock_time(panel, case.until))


def _past(panel: Panel, case: Case) -> Panel:
    """The part before the test windows."""
    return panel.cut(panel.lengths - case.horizon * case.windows)


def _prepare(run: Run) -> Prepared:
    case = _case(run.task, run.case)
    return Prepared(_forecaster(run, case), _past(_panel(case), case))


def _run(run: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
    case = _case(run.task, run.case)
    panel = _panel(case)
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


def _tables(name: str, rows: Sequence[Row], traces: Traces = NO_TRACES) -> list[Table]:
    """Show our numbers beside the paper's: of several seeds the one with the lowest validation loss, as the paper."""
    title, cases, published = TABLES[name]
    lines = []
    for case_title, case in cases.items():
        here = locate(data_set(case.data)) is not None
        naive = cell(rows, traces, case_title, NAIVE)
        for model in models_of(name):
            found = cell(rows, traces, case_title, model)
            theirs = published.get(case.published(case_title), {}).get(model)
            if found is None and (not applies(model, case) or (theirs is None and not here)):
                continue
            paper = _pair(*theirs) if theirs else "-"
            cells = _cells(found, naive.error if naive and model != NAIVE else None)
            note = "; ".join(_notes(case, found, cells["beats naive"], here=here))
            lines.append([case_title, model, case.state, cells["here"], paper, *list(cells.values())[1:], note])
    return [Table(title, _HEAD, lines)]


def _cells(found: Cell | None, naive: float | None) -> dict[str, str]:
    """Return scores, extent of training and time of a cell."""
    row = best(found.rows) if found else None
    if found is None or row is None:
        return dict.fromkeys(("here", "windows", "seeds", "flat", "beats naive", "minutes"), "-")
    return {
        "here": _pair(row["R0.5"], row["R0.9"], digits=4),
        "windows": f"{found.windows:,}" if found.windows else "-",
        "seeds": str(found.seeds) if row["steps"] else "-",
        "flat": _word(found.flat),
        "beats naive": _word(found.beats(naive)),
        "minutes": f"{float(row['minutes']):.1f}",
    }


def _word(answer: bool | None) -> str:
    return "-" if answer is None else "yes" if answer else "no"


def _notes(case: Case, found: Cell | None, beats_naive: str, *, here: bool) -> Iterator[str]:
    """Yield what a reader must know about the numbers of a line."""
    if case.note:
        yield case.note
    if case.stands_in_for:
        yield f"stands in for {case.stands_in_for}"
    if found is None:
        yield "not run yet" if here else "no data"
        return
    if not all(row["data"] for row in found.rows):
        yield UNIDENTIFIED
    if found.lost:
        yield "its training came apart before its end: weights of an earlier step"
    if found.flat and not found.likelihood_flat:
        yield "its quantile loss is flat, its likelihood was still rising"
    if beats_naive == "no" and found.windows:
        still = ", its validation loss was still falling" if found.flat is False else ""
        yield f"worse than seasonal naive: no evidence{still}"


def _pair(*scores: float | str | None, digits: int = 3) -> str:
    return "/".join("-" if value is None or value == "" else f"{float(value):.{digits}f}" for value in scores)


def _experiment(name: str) -> Experiment:
    sets = tuple(dict.fromkeys(case.data for case in TABLES[name][1].values()))
    return Experiment(
        name,
        models_of(name),
        partial(_runs, name),
        _identify,
        _run,
        partial(_tables, name),
        sets=sets,
        fits=sound,
        every_seed=True,
        prepare=_prepare,
    )


MAIN_TABLE, KERNELS_TABLE, SPARSE_TABLE, GRANULARITIES_TABLE, PATTERNS_TABLE, TEN_LAYERS_TABLE = map(
    _experiment, TABLES
)
TABLES_OF_THE_PAPER = [MAIN_TABLE, KERNELS_TABLE, SPARSE_TABLE, GRANULARITIES_TABLE]


_WHAT = ("T", "M", "S")
_SETS_HEAD = ["set", *(f"{what} {where}" for what in _WHAT for where in ("paper", "here")), "note"]


def statistics_tables(_rows: Sequence[Row], _traces: Traces) -> list[Table]:
    """Return all sets of the paper, and the other sets that are available."""
    lines = [_line(one) for one in DATASETS if one.paper or locate(one) is not None]
    return [Table("Table 5, data sets: T steps, M series, S sample rate", _SETS_HEAD, lines)]


def _line(dataset: DataSet) -> list[str]:
    here, note = dict.fromkeys(_WHAT, "-"), f"no data: {how_to_get(dataset)}"
    if locate(dataset) is not None:
        try:
            findings = {finding.what: finding for finding in compare(dataset, load(dataset.name))}
        except DataError as error:
            # One file that cannot be read costs its own line, not the table.
            return _set_line(dataset, here, str(error))
        here = {what: findings[what].here for what in _WHAT}
        differ = [what for what, finding in findings.items() if not finding.agrees]
        note = f"differs from what is expected in: {', '.join(differ)}" if differ else dataset.note
    return _set_line(dataset, here, note)


def _set_line(dataset: DataSet, here: Mapping[str, str], note: str) -> list[str]:
    return [dataset.name, *(cell for what in _WHAT for cell in (_theirs(dataset, what), here[what])), note]


def _theirs(dataset: DataSet, what: str) -> str:
    if not dataset.paper:
        return "-"
    known = {"T": "/".join(map(str, dataset.lengths)), "M": str(dataset.series)}
    return known.get(what) or step_in_words(str(Freq.parse(dataset.step)))


STATISTICS = Experiment("statistics", (), nothing_to_run, nothing_known, never, statistics_tables)
