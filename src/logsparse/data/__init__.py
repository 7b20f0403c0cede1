"""Frames and files -> Panel (frame), Panel -> windows (sampler), windows -> batches of tensors (windows)."""
