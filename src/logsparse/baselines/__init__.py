"""Forecasters to compare LogSparse with: seasonal naive, ARIMA, ETS, DeepAR, DeepState, TRMF."""
