"""Nothing -> the paper's synthetic set, a model trained on it in about two minutes, its scores, pictures and report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logsparse.commands.printing import number, print_table, say, write_table

if TYPE_CHECKING:
    from logsparse.config import Config
    from logsparse.data.panel import Panel
    from logsparse.forecaster import LogSparse

T0 = 96
# What the noise of the set alone costs: R0.5 and R0.9 of a forecaster who knows each wave.
NOISE = (0.0111, 0.0049)


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="folder to write into")] = Path("demo"),
    minutes: Annotated[float, typer.Option(help="longest training")] = 3,
    seed: Annotated[int, typer.Option(help="of the series and of the training")] = 0,
) -> None:
    """Train on the paper's synthetic set and forecast series it has not seen; about two minutes."""
    import numpy as np

    from logsparse.backtesting import backtest
    from logsparse.baselines.naive import SeasonalNaive
    from logsparse.data.files import check_writable
    from logsparse.data.synthetic import HORIZON, study
    from logsparse.folder import check_replaceable
    from logsparse.forecaster import LogSparse
    from logsparse.reporting.report import report

    check_writable(out, folder=True)
    check_replaceable(out / "model")
    sets = study(T0, np.random.default_rng(seed))
    learned, asked = len(sets.training), len(sets.test)
    say(
        f"The paper's synthetic set, t0 = {T0}: {learned:,} series to learn from, {asked:,} others to forecast.\n"
        f"Their last {HORIZON} steps have the larger amplitude of the first two waves, some 90 steps back.\n"
        "Seasonal naive repeats the last season, which says nothing of it, and must fail."
    )
    model = LogSparse(HORIZON, config=settings(), minutes=minutes, seed=seed)
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


def settings() -> Config:
    """Three layers of canonical attention, as in the paper; the rest is chosen to learn fast (docs/LOG.md)."""
    from logsparse.config import Config, ModelConfig, TrainConfig

    model = ModelConfig(heads=4, kernel=1, width=32, head_width="split", norm="pre", embed_series=False, dropout=0.0)
    train = TrainConfig(
        windows=4500,
        epochs=17,
        weighted=False,
        loss_on="horizon",
        optimiser="adamw",
        schedule="one-cycle",
        lr=4e-3,
        average=0.98,
        patience=None,
        validation_windows=500,
    )
    return Config(context=T0, horizon=24, method="mean-path", features=("age",), model=model, train=train)


def _draw(model: LogSparse, test: Panel, out: Path) -> None:
    """The forecast of the first test series beside what came, and what its first step looks at."""
    from logsparse.pictures import TRUTH, save_figure

    history = test.cut(test.lengths - model.horizon)
    figure = model.forecast(history).plot(history=T0)
    axes = figure.axes[0]
    axes.plot(range(T0, T0 + model.horizon), test[0][T0:], color=TRUTH, linewidth=1, linestyle="--", label="what came")
    axes.legend(frameon=False, ncols=5, fontsize=8, loc="upper left")
    save_figure(figure, out / "forecast.svg")
    save_figure(model.attention(history).plot(), out / "attention.svg")


def _print_scores(results: dict[str, Any]) -> None:
    from logsparse.metrics import score

    names = ["R0.5", "R0.9"]
    rows = [[name, *map(number, score(frame).select(names).row(0))] for name, frame in results.items()]
    print_table(["model", *names], [*rows, ["the noise alone", *map(number, NOISE)]])
