"""Attention weights, cell by cell: those of an L x L softmax under the mask, and 0 elsewhere."""

from __future__ import annotations

import math

import pytest
import torch

from logsparse.attention.maps import weights_matrix, weights_row
from logsparse.attention.pattern import Pattern, from_distances, full, local, logsparse, restart

PATTERNS = [
    full(),
    logsparse(),
    logsparse(dense_rows=5),
    local(3),
    restart(8),
    restart(8, dense_rows=40),
    from_distances([5]),
]


def example(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    return tuple(torch.randn(2, 3, length, 4, generator=generator, dtype=torch.float64) for _ in "qk")  # type: ignore[return-value]


@pytest.mark.parametrize("length", [1, 2, 23])
@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_rows_and_matrix_are_the_softmax_under_the_mask(pattern: Pattern, length: int) -> None:
    q, k = example(length)
    mask = torch.from_numpy(pattern.mask(length))
    expected = (q @ k.mT / math.sqrt(4)).masked_fill(~mask, -math.inf).softmax(-1)
    matrix = weights_matrix(q, k, pattern)
    torch.testing.assert_close(matrix, expected)
    assert (matrix[..., ~mask] == 0).all()
    for row in range(length):
        torch.testing.assert_close(weights_row(q, k, pattern, row), expected[:, :, row])


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_a_row_s_cells_are_those_of_the_mask(pattern: Pattern) -> None:
    mask = pattern.mask(23)
    for row in range(23):
        assert list(pattern.row(row)) == mask[row].nonzero()[0].tolist()


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_padding_has_exactly_no_weight(pattern: Pattern) -> None:
    q, k = example(23)
    starts = torch.tensor([9, 22])
    matrix = weights_matrix(q, k, pattern, starts)
    for b, start in enumerate(starts.tolist()):
        assert (matrix[b, :, :, :start] == 0).all()
        assert (matrix[b, :, :start] == 0).all()
        torch.testing.assert_close(matrix[b, :, start:].sum(-1), torch.ones_like(matrix[b, :, start:, 0]))
        for row in range(start, 23):
            torch.testing.assert_close(weights_row(q, k, pattern, row, starts.clamp(max=row))[b], matrix[b, :, row])
