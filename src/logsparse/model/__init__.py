"""Batch -> raw parameters -> distribution -> sample paths: networks, likelihoods and decoding.

Quantiles of a forecast and the way to the C++ kernel: see the docstring of model/decode.py.
"""
