"""Probabilistic forecasting of many related series with a long past: frame in, frame with quantiles out."""
