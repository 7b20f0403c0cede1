"""Forecasts and what came true -> scores."""
