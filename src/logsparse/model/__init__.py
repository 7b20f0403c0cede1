"""Tensors -> distribution -> samples: the network, what it says about the next value, and the decoder."""
