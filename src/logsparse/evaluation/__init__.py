"""Forecasts and true values -> scores."""
