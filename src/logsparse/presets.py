"""Name of a run -> Config: one function per run of the paper, with the settings it states, and the default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from logsparse.attention.pattern import Pattern, full, logsparse, restart
from logsparse.config import Config, ModelConfig, TrainConfig
from logsparse.errors import ConfigError, suggest

NETWORK = ("layers", "width", "heads", "head_width", "kernel", "patterns", "norm")
"""Settings of `ModelConfig` that define the network itself; the others define inputs and likelihood."""
HOURLY = ("month", "weekday", "hour", "age")
FINE = (*HOURLY, "minute")


def synthetic(t0: int = 96) -> Config:
    """Return the settings of section 5.1: canonical attention, loss on the horizon only, no series embedding."""
    return Config(
        context=t0,
        horizon=24,
        features=("age",),
        model=ModelConfig(kernel=1, embed_series=False),
        train=TrainConfig(windows=4500, epochs=200, weighted=False, loss_on="horizon", patience=20),
    )


def electricity_c(days: int = 1, kernel: int = 9) -> Config:
    """Return the settings of tables 1 and 2: hourly, a week of history, one or seven days ahead."""
    return Config(
        context=168,
        horizon=24 * days,
        features=HOURLY,
        model=ModelConfig(kernel=kernel),
        train=TrainConfig(windows=500_000),
    )


def traffic_c(days: int = 1, kernel: int = 9) -> Config:
    """Return the settings of tables 1 and 2 for traffic, the same as for electricity."""
    return electricity_c(days, kernel)


def electricity_f(*, sparse: bool = True, conv: bool = True, context: int = 672) -> Config:
    """Return the settings of table 3: quarter hours; context 672, or 197 for full attention in the same memory."""
    return _fine(context, 96, layers=6, windows=125_000, pattern=_sparse(context + 96) if sparse else full(), conv=conv)


def traffic_f(*, sparse: bool = True, conv: bool = True, context: int = 504) -> Config:
    """Return the settings of table 3: 20 minutes; context 504, or 182 for full attention in the same memory."""
    return _fine(
        context, 72, layers=10, windows=200_000, pattern=_sparse(context + 72) if sparse else full(), conv=conv
    )


def solar() -> Config:
    """Return the settings of table 4 for solar: hourly."""
    return Config(
        context=168,
        horizon=24,
        features=HOURLY,
        model=ModelConfig(kernel=6),
        train=TrainConfig(windows=50_000),
    )


def m4_hourly() -> Config:
    """Return the settings of table 4 for M4-Hourly: 48 steps ahead, as the competition gave them."""
    return replace(solar(), horizon=48, features=("weekday", "hour", "age"))


def wind() -> Config:
    """Return the settings of table 4 for wind: daily, 30 days ahead."""
    base = solar()
    return replace(
        base,
        context=162,
        horizon=30,
        features=("year", "month", "day", "age"),
        train=replace(base.train, windows=10_000),
    )


def paper() -> Config:
    """Return the paper's settings for other data: those of solar, with features that follow from the frequency."""
    return replace(solar(), features=None)


def deepar(run: Config) -> Config:
    """Return the settings of DeepAR that the paper compares with: 3 LSTM layers of 40 cells, lag 1.

    Windows, features and passes are those of `run`; Adam at a constant rate, as in DeepAR's own paper.
    """
    model = ModelConfig(layers=3, width=40, kernel=1, embed_series=run.model.embed_series)
    return replace(run, model=model, train=replace(run.train, optimiser="adam", schedule="constant", lr=1e-3))


def default(context: int, horizon: int) -> Config:
    """Return the settings of a forecaster that is given none, before those that follow from the data."""
    model = ModelConfig(
        heads=4,
        kernel=6,
        width=48,
        head_width="split",
        norm="pre",
        # Series of one set share their time: with embeddings the network overfits to single series (docs/RECIPE.md).
        embed_series=False,
        unknown_series=0.1,
        see_missing=True,
        anchor=True,
        scale="mean",
        dropout=0.0,
        patterns=(logsparse(),),
    )
    # No patience: the loss falls most at the end of the cycle.
    train = TrainConfig(
        epochs=16,
        steps_per_epoch=100,
        weighted=False,
        # The loss on the history, one step ahead at every position, stabilises that on the horizon (docs/RECIPE.md).
        loss_on="both",
        optimiser="adamw",
        schedule="one-cycle",
        lr=3e-3,
        average=0.99,
        patience=None,
    )
    return Config(context=context, horizon=horizon, method="two-way", model=model, train=train)


NAMES: dict[str, Callable[[], Config]] = {
    run.__name__.replace("_", "-"): run
    for run in (synthetic, electricity_c, traffic_c, electricity_f, traffic_f, solar, m4_hourly, wind, paper)
}
"""Runs of the paper by their names on the command line; `paper` is for any other data."""
MODELS: dict[str, Callable[[Config], Config]] = {"logsparse": lambda run: run, "deepar": deepar}
"""Forecasters that have settings of the paper -> settings of a run for them."""


def __dir__() -> list[str]:
    return [*(run.__name__ for run in NAMES.values()), "MODELS", "NAMES", "deepar", "default", "named"]


def named(name: str, model: str = "logsparse") -> Config:
    """Return the settings of a run by its name.

    Parameters
    ----------
    name
        A name of `NAMES`, such as "electricity-f" or "paper".
    model
        A forecaster of `MODELS`, by its name on the command line.

    Returns
    -------
    Config
        The settings.

    Raises
    ------
    ConfigError
        If one of the names is unknown.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.presets.named("electricity-f").length
    768
    """
    if model not in MODELS:
        raise ConfigError(
            f"A preset must be for one of: {', '.join(MODELS)}.",
            got=repr(model),
            hint="leave it out for settings that follow from the data.",
        )
    if name not in NAMES:
        raise ConfigError(
            f"A preset must be one of: {', '.join(NAMES)}.",
            got=repr(name),
            hint=suggest(name, NAMES, "leave it out for settings that follow from the data."),
        )
    return MODELS[model](NAMES[name]())


def _sparse(length: int) -> Pattern:
    """Return the pattern of table 3: restarts every eighth of the window, a local part, dense first rows."""
    sub = length // 8
    width = (sub - 1).bit_length()
    return restart(sub, width, dense_rows=length // sub * 2 * width)


def _fine(context: int, horizon: int, *, layers: int, windows: int, pattern: Pattern, conv: bool) -> Config:
    return Config(
        context=context,
        horizon=horizon,
        features=FINE,
        model=ModelConfig(layers=layers, kernel=6 if conv else 1, patterns=(pattern,)),
        train=TrainConfig(windows=windows, optimiser="bertadam", schedule="warmup-decay"),
    )
