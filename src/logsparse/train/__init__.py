"""Network and windows -> trained weights. Only this package knows training steps and ranks."""
