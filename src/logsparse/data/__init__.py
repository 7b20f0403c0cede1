"""The outside world -> tensors: frames become a panel, a panel becomes windows, windows become batches."""
