"""The name of an experiment of the paper -> its runs, one by one, recorded; and the tables of what is recorded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from logsparse.commands.options import listed
from logsparse.commands.printing import print_table, say

_NAMES = ("synthetic",)


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help=f"experiment: {', '.join(_NAMES)}")] = None,
    model: Annotated[str | None, typer.Option(help="only these models, such as transformer,deepar-40")] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="of training for each run [all epochs]")
    ] = None,
    seeds: Annotated[int, typer.Option(help="runs of each cell, from different seeds")] = 1,
    out: Annotated[Path, typer.Option("-o", "--out", help="folder of the results")] = Path("results"),
    show: Annotated[bool, typer.Option("--show", help="only print what is recorded")] = False,
) -> None:
    """Repeat an experiment of the paper; stopped at any moment, the same command goes on."""
    from logsparse.checks import suggest, whole
    from logsparse.data.files import check_writable
    from logsparse.errors import ConfigError
    from logsparse.pictures import save_figure
    from logsparse.tasks import synthetic
    from logsparse.tasks.ledger import missing, record, rows

    if name not in _NAMES and not (name is None and show):
        raise ConfigError(
            f"An experiment must be one of: {', '.join(_NAMES)}.",
            got="none" if name is None else repr(name),
            hint=suggest(name, _NAMES, "or --show for what is recorded."),
        )
    whole("seeds", seeds, hint="count the runs of each cell.")
    models = listed(model) or list(synthetic.MODELS)
    for one in models:
        if one not in synthetic.MODELS:
            raise ConfigError(
                f"A model of this experiment must be one of: {', '.join(synthetic.MODELS)}.",
                got=repr(one),
                hint=suggest(one, synthetic.MODELS, "leave --model out for all of them."),
            )
    if not show:
        check_writable(out, folder=True)
        todo = missing(out, synthetic.runs(seeds, models))
        for number, run in enumerate(todo, start=1):
            say(f"run {number} of {len(todo)}: {run}")
            folder = out / ".unfinished" / run.folder
            record(out, run, synthetic.carry_out(run, budget=budget, folder=folder))
            shutil.rmtree(folder)
    found = rows(out, synthetic.TASK)
    if not found:
        say(f"nothing is recorded in {out} yet.")
        return
    for score in ("R0.5", "R0.9"):
        typer.echo(f"{synthetic.TASK}, {score}")
        print_table(*synthetic.table(found, score))
    picture = out / f"{synthetic.TASK}.svg"
    if not show:
        save_figure(synthetic.figure(found), picture)
        say(f"wrote {picture}")
