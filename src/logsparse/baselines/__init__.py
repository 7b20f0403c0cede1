"""Forecasters to compare with: every baseline of the paper, all with the same face as ours."""
