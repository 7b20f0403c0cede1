"""Sales that depend on price and promotion, on a level per kind of shop, and not on the moon; a model of them."""

from __future__ import annotations

from datetime import date

import numpy as np
import polars as pl

import logsparse as ls

COVARIATES, STATIC = ["price", "promo", "moon"], ["size"]
LAST = date(2023, 12, 24)


def sales(shops: int = 8) -> pl.DataFrame:
    """A year of days per shop, with a covariate that means nothing and a weekly shape."""
    rng = np.random.default_rng(0)
    days = pl.date_range(date(2023, 1, 1), date(2023, 12, 31), "1d", eager=True)
    frames = []
    for shop in range(shops):
        price = np.repeat(rng.choice([2.0, 2.5, 3.0], size=53), 7)[: len(days)]
        promo = (rng.random(len(days)) < 0.15).astype(float)
        week = 1 + 0.2 * np.sin(np.arange(len(days)) * 2 * np.pi / 7)
        y = 10 * (1 + shop % 3) * (4 - price) * (1 + 0.8 * promo) * week + rng.normal(0, 0.5, len(days))
        columns = {"price": price, "promo": promo, "moon": rng.normal(size=len(days))}
        size = "small" if shop % 2 else "large"
        frames.append(pl.DataFrame({"unique_id": f"s{shop}", "ds": days, "y": y, **columns, "size": size}))
    return pl.concat(frames)


def until_last(frame: pl.DataFrame) -> pl.DataFrame:
    """The history before the last week."""
    return frame.filter(pl.col("ds") <= LAST)


def future_of(frame: pl.DataFrame) -> pl.DataFrame:
    """Covariates of the last week."""
    return frame.filter(pl.col("ds") > LAST).select("unique_id", "ds", *COVARIATES)


def trained(frame: pl.DataFrame, steps: int = 200) -> ls.LogSparse:
    """A small network that has learned what price and promotion do."""
    network = ls.ModelConfig(
        layers=1, heads=2, kernel=3, embedding=8, width=24, lags=(1, 7), profiles=("7x3",), scale="mean"
    )
    train = ls.TrainConfig(
        batch=32, epochs=1, steps_per_epoch=steps, validate_every=steps // 2, lr=5e-3, schedule="one-cycle"
    )
    config = ls.Config(context=21, horizon=7, model=network, train=train)
    model = ls.LogSparse(horizon=7, config=config, verbose=False)
    return model.fit(frame, covariates=COVARIATES, static=STATIC)
