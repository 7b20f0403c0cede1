"""Fitted models -> forecasts over HTTP, and a page to look at them (extra `serve`)."""
