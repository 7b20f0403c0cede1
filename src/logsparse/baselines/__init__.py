"""What LogSparse is compared with: seasonal naive, ARIMA and ETS, DeepAR, DeepState, TRMF."""
