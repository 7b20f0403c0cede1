"""How to use a price that is known in advance: covariates at fit, their future values at predict."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import polars as pl

import logsparse as ls

days = pl.datetime_range(datetime(2023, 1, 1), datetime(2023, 12, 31), "1d", eager=True)  # noqa: DTZ001
rng = np.random.default_rng(0)
price = rng.choice([2.0, 3.0], size=len(days))
sold = rng.poisson(60 / price)
frame = pl.DataFrame({"unique_id": "tea", "ds": days, "y": sold, "price": price})

past, ahead = frame.head(len(frame) - 7), frame.tail(7).drop("y")
model = ls.LogSparse(horizon=7, minutes=0.1, samples=50).fit(past, covariates=["price"])
print(model.config_.model.likelihood)  # counts have their own distributions
print(model.predict(future=ahead, quantiles=[0.1, 0.5, 0.9]))
