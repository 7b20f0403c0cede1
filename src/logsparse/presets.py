"""Named runs: one function for each run of the paper, with the settings it tells, and the default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from logsparse.attention.pattern import Pattern, full, logsparse, restart
from logsparse.checks import suggest
from logsparse.config import Config, ModelConfig, TrainConfig
from logsparse.errors import ConfigError

NETWORK = ("layers", "width", "heads", "head_width", "kernel", "patterns", "norm")
"""Settings of `ModelConfig` that make the network itself; the others are inputs and likelihood."""
HOURLY = ("month", "weekday", "hour", "age")
FINE = (*HOURLY, "minute")


def synthetic(t0: int = 96) -> Config:
    """Section 5.1: canonical attention; loss on the horizon only; series are all new, so none is embedded."""
    return Config(
        context=t0,
        horizon=24,
        features=("age",),
        model=ModelConfig(kernel=1, embed_series=False),
        train=TrainConfig(windows=4500, epochs=200, weighted=False, loss_on="horizon", patience=20),
    )


def electricity_c(days: int = 1, kernel: int = 9) -> Config:
    """Tables 1 and 2: hourly, a week of history, one day or seven ahead."""
    return Config(
        context=168,
        horizon=24 * days,
        features=HOURLY,
        model=ModelConfig(kernel=kernel),
        train=TrainConfig(windows=500_000),
    )


def traffic_c(days: int = 1, kernel: int = 9) -> Config:
    """Tables 1 and 2, the other set: the same settings."""
    return electricity_c(days, kernel)


def electricity_f(*, sparse: bool = True, conv: bool = True, context: int = 672) -> Config:
    """Table 3: quarter hours; context 672 (L = 768), or 197 (L = 293) for full attention of the same memory."""
    return _fine(context, 96, layers=6, windows=125_000, pattern=_sparse(context + 96) if sparse else full(), conv=conv)


def traffic_f(*, sparse: bool = True, conv: bool = True, context: int = 504) -> Config:
    """Table 3: 20 minutes; context 504 (L = 576), or 182 (L = 254) for full attention of the same memory."""
    return _fine(
        context, 72, layers=10, windows=200_000, pattern=_sparse(context + 72) if sparse else full(), conv=conv
    )


def solar() -> Config:
    """Table 4: hourly."""
    return Config(
        context=168,
        horizon=24,
        features=HOURLY,
        model=ModelConfig(kernel=6),
        train=TrainConfig(windows=50_000),
    )


def m4_hourly() -> Config:
    """Table 4: hourly, the given 48 steps ahead."""
    return replace(solar(), horizon=48, features=("weekday", "hour", "age"))


def wind() -> Config:
    """Table 4: daily, 30 days ahead."""
    base = solar()
    return replace(
        base,
        context=162,
        horizon=30,
        features=("year", "month", "day", "age"),
        train=replace(base.train, windows=10_000),
    )


def paper() -> Config:
    """The paper's settings for a set that it does not have: those of solar, with the features of the set's own step."""
    return replace(solar(), features=None)


def deepar(run: Config) -> Config:
    """The same run by DeepAR as the paper has it beside its own model: 3 LSTM layers of 40 cells, the previous value.

    Windows, features and passes are those of the run; Adam at a constant rate, as in DeepAR's own paper.
    """
    model = ModelConfig(layers=3, width=40, kernel=1, embed_series=run.model.embed_series)
    return replace(run, model=model, train=replace(run.train, optimiser="adam", schedule="constant", lr=1e-3))


def default(context: int, horizon: int) -> Config:
    """What a user gets who names nothing but the horizon."""
    model = ModelConfig(
        heads=4,
        kernel=6,
        width=48,
        head_width="split",
        norm="pre",
        # Series of one set share their time: told apart by name, they are learned by heart (docs/LOG.md).
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
        # The history, one step ahead at every position, steadies what is learned of the horizon (docs/LOG.md).
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
"""The runs of the paper, as the command line calls them; `paper` is for any other set."""
MODELS: dict[str, Callable[[Config], Config]] = {"logsparse": lambda run: run, "deepar": deepar}
"""Forecasters that the paper's settings are known for, and what they make of those of a run."""


def named(name: str, model: str = "logsparse") -> Config:
    """The run of this name, by this forecaster."""
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
    """Restart every eighth, local part of its logarithm; the first rows dense, which costs no extra space."""
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
