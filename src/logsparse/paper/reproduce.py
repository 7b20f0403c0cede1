"""The command `reproduce`: the name of an experiment -> its runs, recorded one by one, and their tables and figures."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from logsparse.commands.options import listed, print_table, say

if TYPE_CHECKING:
    from logsparse.paper.experiment import Experiment, Table

NAMES = (
    *("synthetic", "main", "kernels", "sparse", "granularities", "long-waves", "statistics"),
    *("matching", "learned-attention", "attention-kinds", "curves", "attention-matrix", "claims"),
)


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help=f"experiment: {', '.join(NAMES)}")] = None,
    model: Annotated[str | None, typer.Option(help="only these models, such as paper,deepar")] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="of training for each run: trials, no results [all epochs]")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="runs of each cell [5 of the paper's models on its sets, else 1 or 3]")
    ] = None,
    out: Annotated[str, typer.Option("-o", "--out", metavar="<path>", help="folder of the results")] = "results",
    show: Annotated[bool, typer.Option("--show", help="only print what is recorded")] = False,
) -> None:
    """Repeat an experiment of the paper; if it is stopped, the same command resumes it."""
    from logsparse.checks import above_zero, suggest, whole
    from logsparse.data.files import check_writable
    from logsparse.errors import ConfigError

    if name not in NAMES and not (name is None and show):
        raise ConfigError(
            f"An experiment must be one of: {', '.join(NAMES)}.",
            got="none" if name is None else repr(name),
            hint=suggest(name, NAMES, "or --show for what is recorded."),
        )
    folder = _folder(out)
    if seeds is not None:
        whole("seeds", seeds, hint="count the runs of each cell.")
    if budget is not None:
        above_zero("--budget", budget, hint="leave it out for all epochs.")
    from logsparse.paper.figures import EXPERIMENTS

    chosen = [EXPERIMENTS[one] for one in NAMES if name in (None, one)]
    if model is not None and name is None:
        raise ConfigError(
            "--model is for one experiment.", got=f"{model!r} and no NAME", hint="name one, or leave it out."
        )
    models = _models(chosen[0], model)
    if not show:
        check_writable(folder, folder=True)
        _run(chosen[0], models, seeds, budget, folder)
    readable = _show_all(chosen, folder)
    if show:
        from logsparse.paper.figures import figures

        if (table := figures(chosen, folder)).lines:
            _print(table)
    else:
        _draw(chosen[0], folder)
    if not readable:
        raise typer.Exit(2)


def _folder(named: str) -> Path:
    from logsparse.errors import ConfigError

    if Path(named).exists() and not Path(named).is_dir():
        raise ConfigError(
            "-o must name a folder of results.",
            got=f"{named}, which is a file",
            hint="leave it out for the folder results.",
        )
    return Path(named)


def _models(experiment: Experiment, asked: str | None) -> Sequence[str]:
    from logsparse.checks import suggest
    from logsparse.errors import ConfigError

    if asked is None:
        return experiment.models
    models = list(dict.fromkeys(listed(asked) or [""]))
    if not experiment.models:
        raise ConfigError(f"{experiment.name} has no models to run.", got=repr(asked), hint="leave --model out.")
    for one in models:
        if one not in experiment.models:
            raise ConfigError(
                f"A model of {experiment.name} must be one of: {', '.join(experiment.models)}.",
                got=repr(one),
                hint=suggest(one, experiment.models, "leave --model out for all of them."),
            )
    return models


def _run(experiment: Experiment, models: Sequence[str], seeds: int | None, budget: float | None, out: Path) -> None:
    from logsparse.paper.experiment import keep
    from logsparse.paper.ledger import missing, record
    from logsparse.storage import lock

    runs = experiment.runs(seeds, models, budget)
    if experiment.models and not runs:
        _refuse_without_data(experiment)
    known = experiment.identify(runs)
    todo = missing(out, known)
    for number, run in enumerate(todo, start=1):
        folder = out / ".unfinished" / run.folder
        folder.mkdir(parents=True, exist_ok=True)
        with lock(folder, wait=False) as ours:
            # Checked again: since this process began, another may have done or begun it.
            ends = (
                ""
                if ours and missing(out, {run: known[run]})
                else f", {'done' if ours else 'being done'} by another process"
            )
            say(f"run {number} of {len(todo)}: {run}{ends}")
            if not ends:
                facts = experiment.run(run, folder=folder)
                # Before the row, so that every recorded run has its trace.
                if "trace" in facts:
                    keep(out, run, facts["trace"])
                record(out, run, known[run], facts)
            if ours:
                shutil.rmtree(folder, ignore_errors=True)


def _refuse_without_data(experiment: Experiment) -> NoReturn:
    from logsparse.errors import DataError
    from logsparse.paper.catalogue import named
    from logsparse.paper.prepare import folder, how_to_get, locate

    lacking = [dataset for dataset in map(named, experiment.sets) if locate(dataset) is None]
    ways = [f"{dataset.name}: {how_to_get(dataset).rstrip('.')}" for dataset in lacking]
    raise DataError(
        f"{experiment.name} must have a data set to run on.",
        got=f"no {', '.join(dataset.name for dataset in lacking)} in {folder()}",
        hint=f"{'; '.join(ways)}. --show prints what is recorded.",
    )


def _show_all(experiments: Sequence[Experiment], out: Path) -> bool:
    """Return True if all results could be read; one that cannot is reported once and the others are shown."""
    from logsparse.errors import DataError

    reported: list[str] = []
    for experiment in experiments:
        try:
            _show(experiment, out)
        except DataError as error:
            if len(experiments) == 1:
                raise
            if str(error) not in reported:
                reported.append(str(error))
                say(f"{experiment.name}: {error}")
    return not reported


def _show(experiment: Experiment, out: Path) -> None:
    found, (traces, refused) = experiment.recorded(out), experiment.traced(out)
    for error in refused:
        say(f"{experiment.name}: {error}")
    nothing = experiment.models and not found
    shown = [] if nothing else [table for table in experiment.tables(found, traces) if table.lines]
    if not shown:
        say(f"{experiment.name}: nothing {'of it can be shown' if found else f'is recorded in {out} yet'}.")
    for table in shown:
        _print(table)
    if (trials := experiment.trials(out)).lines:
        _print(trials)
    if earlier := sum(not row["data"] for row in found):
        say(f"{experiment.name}: {earlier} of {len(found)} rows shown do not record their data: no finished runs.")


def _draw(experiment: Experiment, out: Path) -> None:
    from logsparse.paper.figures import draw, state, without

    if experiment.figure is not None:
        drawn = draw(experiment, out)
        say(f"wrote {drawn}{without(experiment, out)}" if drawn else f"no figure: {state(experiment, out)}")


def _print(table: Table) -> None:
    typer.echo(table.title)
    print_table(table.head, table.lines)
    typer.echo("")
