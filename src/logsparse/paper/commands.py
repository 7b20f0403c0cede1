"""The commands `data`, `demo` and `reproduce`, which the command line finds as entry points."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from logsparse.commands.options import listed, number, print_table, say, write_table

if TYPE_CHECKING:
    from logsparse.config import Config
    from logsparse.data.panel import Panel
    from logsparse.forecaster import LogSparse
    from logsparse.paper.catalogue import DataSet
    from logsparse.paper.experiment import Experiment, Table
    from logsparse.paper.prepare import Report


app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, fetch and check the paper's data sets.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="a data set, such as solar; `data list` shows all")]


@app.command("list")
def list_() -> None:
    """Show every data set: length, number and step of its series, whether it is here, its source."""
    from logsparse.paper.catalogue import DATASETS, step_in_words
    from logsparse.paper.prepare import folder, locate

    rows = []
    for dataset in DATASETS:
        lengths = "/".join(map(str, dataset.lengths))
        place = "here" if locate(dataset) else "-"
        rows.append([dataset.name, lengths, str(dataset.series), step_in_words(dataset.step), place, _origin(dataset)])
    _print_table(["name", "T", "M", "S", "here", "source"], rows)
    typer.echo(f"folder: {folder()}", err=True)


@app.command()
def get(
    name: Name,
    given: Annotated[
        Path | None,
        typer.Option("--from", metavar="PATH", help="the originals on disk: a file, a folder or a zip archive"),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="download and read again what exists already")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Make a data set from its public originals: downloaded, or given with --from."""
    from logsparse.paper.prepare import get as run

    path, remarks = run(name, given, again=again, verbose=not quiet)
    for remark in remarks:
        typer.echo(remark, err=True)
    typer.echo(f"{path}")


@app.command()
def check(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="a data set [all that are here]")] = None,
) -> None:
    """Compare a data set with the paper's table of T, M and S; exit code 1 where it differs."""
    from logsparse.errors import DataError
    from logsparse.paper.catalogue import DATASETS
    from logsparse.paper.prepare import check as run
    from logsparse.paper.prepare import locate

    here = [dataset.name for dataset in DATASETS if locate(dataset)] if name is None else [name]
    agree = []
    for each in here:
        try:
            report = run(each)
        except DataError as error:
            # Raised for a set that was named; among all sets, the others are still checked.
            if name is not None:
                raise
            typer.echo(f"{each}: CANNOT BE READ\n  {error}")
            agree.append(False)
        else:
            _print_report(report)
            agree.append(report.agrees)
    if name is None:
        for dataset in DATASETS:
            if dataset.name not in here:
                typer.echo(f"{dataset.name}: not here")
    if not all(agree):
        raise typer.Exit(1)


def _print_report(report: Report) -> None:
    dataset = report.dataset
    verdict = "agrees with the paper's table" if dataset.paper else "as it was made (no set of the paper)"
    typer.echo(f"{dataset.name}: {verdict if report.agrees else 'DIFFERS'}")
    rows = [
        [finding.what, finding.wanted, finding.here, "" if finding.agrees else "differs"] for finding in report.findings
    ]
    _print_table(["", "paper" if dataset.paper else "as made", "here", ""], rows, indent="  ")
    for remark in report.remarks:
        typer.echo(f"  {remark}")


def _origin(dataset: DataSet) -> str:
    if not dataset.paper:
        return f"not of the paper: {dataset.note}"
    assert dataset.source is not None
    return dataset.source.title + (" (login: --from only)" if dataset.source.login else "")


def _print_table(names: list[str], rows: list[list[str]], indent: str = "") -> None:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for row in (names, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        typer.echo((indent + "  ".join(cells)).rstrip())


T0 = 96


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="folder to write into")] = Path("demo"),
    minutes: Annotated[float, typer.Option(help="longest training")] = 3,
    seed: Annotated[int, typer.Option(help="of the series and of the training")] = 0,
) -> None:
    """Train on the paper's synthetic set and forecast series it has not seen; about two minutes."""
    import numpy as np

    from logsparse.baselines.naive import SeasonalNaive
    from logsparse.data.files import check_writable
    from logsparse.evaluation.backtest import backtest
    from logsparse.folder import check_replaceable
    from logsparse.forecaster import LogSparse
    from logsparse.paper.synthetic import HORIZON, TRANSFORMER, config, study
    from logsparse.reporting.report import report

    check_writable(out, folder=True)
    check_replaceable(out / "model")
    sets = study(T0, np.random.default_rng(seed))
    learned, asked = len(sets.training), len(sets.test)
    say(f"The paper's synthetic set, t0 = {T0}: {learned:,} series to learn from, {asked:,} others to forecast.")
    say(f"Their last {HORIZON} steps have the larger amplitude of the first two waves, some 90 steps back.")
    say("Seasonal naive repeats the last season, which does not contain it, and must fail.")
    model = LogSparse(HORIZON, config=_half(config(TRANSFORMER, T0)), minutes=minutes, seed=seed)
    model.fit(sets.training, validation=sets.validation)
    model.save(out / "model")
    results = backtest(model, sets.test, season=HORIZON)
    write_table(results, out / "forecast.parquet")
    _draw_demo(model, sets.test, out)
    report(results, out / "report.html", model=model, title="Synthetic waves, t0 = 96")
    for name in ("model", "forecast.svg", "attention.svg", "report.html"):
        say(f"wrote {out / name}")
    naive = backtest(SeasonalNaive(HORIZON, season=HORIZON), sets.test)
    _print_scores({"logsparse": results, "seasonal-naive": naive})


def _half(study: Config) -> Config:
    """Halve the passes of the study, which costs little accuracy and saves half the time."""
    from dataclasses import replace

    return replace(study, train=replace(study.train, epochs=study.train.epochs // 2))


def _draw_demo(model: LogSparse, test: Panel, out: Path) -> None:
    """Draw the forecast of the first test series beside its true values, and the attention of its first step."""
    from logsparse.pictures import save_figure

    history = test.cut(test.lengths - model.horizon)
    save_figure(model.forecast(history).plot(history=T0, actuals=test), out / "forecast.svg")
    save_figure(model.attention(history).plot(), out / "attention.svg")


def _print_scores(results: dict[str, Any]) -> None:
    from logsparse.evaluation.metrics import score
    from logsparse.paper.synthetic import NOISE

    names = ["R0.5", "R0.9"]
    rows = [[name, *map(number, score(frame).select(names).row(0))] for name, frame in results.items()]
    print_table(["model", *names], [*rows, ["the noise alone", *map(number, NOISE)]])


NAMES = (
    *("synthetic", "main", "kernels", "sparse", "granularities", "long-waves", "patterns", "statistics"),
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
    from logsparse.data.files import check_writable
    from logsparse.errors import ConfigError, above_zero, suggest, whole

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
    if show and (
        given := [name for name, value in (("--seeds", seeds), ("--budget", budget), ("--model", model)) if value]
    ):
        raise ConfigError(
            "--show prints all that is recorded.", got=f"{' and '.join(given)} beside it", hint="leave one of them out."
        )
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
    from logsparse.errors import ConfigError, suggest

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
    from logsparse.paper.experiment import announce, keep
    from logsparse.paper.ledger import missing, record
    from logsparse.storage import lock

    runs = experiment.runs(seeds, models, budget)
    if experiment.models and not runs:
        _refuse_without_data(experiment)
    known = experiment.identify(runs)
    todo = missing(out, known)
    if todo:
        announce(experiment, {run: known[run] for run in todo}, out, say)
    for position, run in enumerate(todo, start=1):
        folder = out / ".unfinished" / run.folder
        folder.mkdir(parents=True, exist_ok=True)
        with lock(folder, wait=False) as ours:
            # Checked again: since this process began, another may have done or begun it.
            ends = (
                ""
                if ours and missing(out, {run: known[run]})
                else f", {'done' if ours else 'being done'} by another process"
            )
            say(f"run {position} of {len(todo)}: {run}{ends}")
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
        state = "nothing of it can be shown" if found else f"no finished run is recorded in {out} yet"
        say(f"{experiment.name}: {state}.")
    for table in shown:
        _print(table)
    if (trials := experiment.trials(out)).lines:
        _print(trials)
    if earlier := sum(not row["data"] for row in found):
        say(f"{experiment.name}: {earlier} of {len(found)} recorded runs do not say on which data: none is finished.")


def _draw(experiment: Experiment, out: Path) -> None:
    from logsparse.paper.figures import draw, state, without

    if experiment.figure is not None:
        drawn = draw(experiment, out)
        say(f"wrote {drawn}{without(experiment, out)}" if drawn else f"no figure: {state(experiment, out)}")


def _print(table: Table) -> None:
    typer.echo(table.title)
    print_table(table.head, table.lines)
    typer.echo("")
