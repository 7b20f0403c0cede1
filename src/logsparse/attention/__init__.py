"""Sparse causal attention: patterns of distances, and the ways to compute attention over them."""
