"""Model and windows -> trained weights: the only place that knows steps and ranks."""
