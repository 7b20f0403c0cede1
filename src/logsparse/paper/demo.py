"""The command `demo`: the paper's synthetic set -> a model trained in about two minutes, scores, pictures, a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logsparse.commands.options import number, print_table, say, write_table

if TYPE_CHECKING:
    from logsparse.config import Config
    from logsparse.data.panel import Panel
    from logsparse.forecaster import LogSparse

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
    _draw(model, sets.test, out)
    report(results, out / "report.html", model=model, title="Synthetic waves, t0 = 96")
    for name in ("model", "forecast.svg", "attention.svg", "report.html"):
        say(f"wrote {out / name}")
    naive = backtest(SeasonalNaive(HORIZON, season=HORIZON), sets.test)
    _print_scores({"logsparse": results, "seasonal-naive": naive})


def _half(study: Config) -> Config:
    """Halve the passes of the study, which costs little accuracy and saves half the time."""
    from dataclasses import replace

    return replace(study, train=replace(study.train, epochs=study.train.epochs // 2))


def _draw(model: LogSparse, test: Panel, out: Path) -> None:
    """Draw the forecast of the first test series beside its true values, and the attention of its first step."""
    from logsparse.pictures import TRUTH, save_figure

    history = test.cut(test.lengths - model.horizon)
    figure = model.forecast(history).plot(history=T0)
    axes = figure.axes[0]
    axes.plot(range(T0, T0 + model.horizon), test[0][T0:], color=TRUTH, linewidth=1, linestyle="--", label="actual")
    axes.legend(frameon=False, ncols=5, fontsize=8, loc="upper left")
    save_figure(figure, out / "forecast.svg")
    save_figure(model.attention(history).plot(), out / "attention.svg")


def _print_scores(results: dict[str, Any]) -> None:
    from logsparse.evaluation.metrics import score
    from logsparse.paper.synthetic import NOISE

    names = ["R0.5", "R0.9"]
    rows = [[name, *map(number, score(frame).select(names).row(0))] for name, frame in results.items()]
    print_table(["model", *names], [*rows, ["the noise alone", *map(number, NOISE)]])
