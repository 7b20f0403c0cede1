"""(B, L, width) -> (B, L, width): multi-head self-attention whose queries and keys see their local context.

Queries and keys come from one causal convolution of `kernel` steps, values from each step alone; kernel 1 is
the canonical layer. Which cells attend to which is the pattern's business, how fast is `attend`'s. From the
convolution to the output all memory is channel-first: both it and the attention kernel are fastest so.
"""

# B batch, N paths, L length, W width, H heads, D head width, K kernel, C channels in, E channels out

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from logsparse.attention.attend import attend
from logsparse.attention.convolve import Norm, project
from logsparse.attention.inputs import check_starts
from logsparse.attention.pattern import Pattern
from logsparse.checks import whole
from logsparse.errors import ConfigError, DataError


class ConvAttention(nn.Module):
    """Head width None is width / heads; the paper gives each head the full width."""

    def __init__(
        self,
        width: int,
        heads: int,
        pattern: Pattern,
        *,
        kernel: int = 1,
        head_width: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        _check_sizes(width=width, heads=heads, kernel=kernel, head_width=head_width)
        if not isinstance(pattern, Pattern) or not 0 <= dropout < 1:
            raise ConfigError(
                "A layer needs a Pattern, and a dropout of at least 0 and below 1.",
                got=f"{pattern!r}, dropout={dropout}",
                hint="ConvAttention(64, 4, logsparse(), dropout=0.1).",
            )
        self.width, self.heads, self.kernel = width, heads, kernel
        self.head_width = width // heads if head_width is None else head_width
        self.pattern, self.dropout = pattern, dropout
        inner = heads * self.head_width
        self.query_key = nn.Conv1d(width, 2 * inner, kernel)
        self.value = nn.Linear(width, inner)
        self.out = nn.Linear(inner, width)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Normal, with the paper's deviations; biases 0."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                deviation = 0.01 if name.startswith("query_key") else 0.02
                nn.init.normal_(parameter, std=deviation, generator=generator)

    def forward(
        self, x_BLW: Tensor, *, generator: torch.Generator | None = None, starts: Tensor | None = None
    ) -> Tensor:
        """Attention dropout acts when there is a generator to draw its seed from, and only then.

        `starts`, int64 (B,): the first real position per batch row. What stands before it is not seen, neither by
        attention nor by the convolution.
        """
        merged_BLW: Tensor = self.out(self.gather(x_BLW, generator=generator, starts=starts))
        return merged_BLW

    def gather(
        self,
        x_BLW: Tensor,
        *,
        generator: torch.Generator | None = None,
        starts: Tensor | None = None,
        norm: nn.LayerNorm | None = None,
    ) -> Tensor:
        """(B, L, H * D): what the heads gathered, before the output layer merges it; x goes through the norm first."""
        dropout = 0.0 if generator is None else self.dropout
        qkv = self.project(x_BLW, starts=starts, norm=norm)
        return side_by_side(attend(*qkv, self.pattern, dropout=dropout, generator=generator, starts=starts))

    def project(
        self, x_BLW: Tensor, *, starts: Tensor | None = None, norm: nn.LayerNorm | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values, each (B, H, L, D)."""
        self._check(x_BLW)
        check_starts(starts, x_BLW)
        bias = cast("Tensor", self.query_key.bias)
        of_norm: Norm = (None, None) if norm is None else (norm.weight, norm.bias)
        parts = project(x_BLW, self.query_key.weight, bias, self.value.weight, self.value.bias, starts, of_norm)
        q_BHLD, k_BHLD, v_BHLD = (part.view(len(x_BLW), self.heads, self.head_width, -1).mT for part in parts)
        return q_BHLD, k_BHLD, v_BHLD

    def project_step(self, seen_BNKW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One position of each of N paths from its last `kernel` inputs: queries, keys, values, each (B, N, H, D)."""
        weight_EC = self.query_key.weight.mT.flatten(1)
        # One row a path: as many matrices of few rows they would take twice the time.
        q_and_k = F.linear(seen_BNKW.flatten(2).flatten(0, 1), weight_EC, self.query_key.bias)
        shape = (*seen_BNKW.shape[:2], -1, self.heads, self.head_width)
        q_BNHD, k_BNHD = q_and_k.view(shape).unbind(2)
        v_BNHD = self.value(seen_BNKW[:, :, -1].flatten(0, 1)).view(shape)[:, :, 0]
        return q_BNHD, k_BNHD, v_BNHD

    def extra_repr(self) -> str:
        return f"{self.heads} heads of {self.head_width}, {self.pattern}, dropout={self.dropout}"

    def _check(self, x_BLW: Tensor) -> None:
        if x_BLW.ndim != 3 or x_BLW.shape[2] != self.width:
            raise DataError(
                f"The layer takes (batch, length, {self.width}).",
                got=str(tuple(x_BLW.shape)),
                hint="the last dimension is the width the layer was made with.",
            )


def side_by_side(attended_BHLD: Tensor) -> Tensor:
    """(B, L, H * D) of what each head gathered; channel-first in memory where that is."""
    return attended_BHLD.mT.flatten(1, 2).mT


def _check_sizes(*, width: int, heads: int, kernel: int, head_width: int | None) -> None:
    sizes = {
        "width": width,
        "heads": heads,
        "kernel": kernel,
        "head_width": width if head_width is None else head_width,
    }
    for name, size in sizes.items():
        whole(name, size, hint="the paper has width 25, 8 heads of 25, kernel 9.")
    if head_width is None and width % heads:
        raise ConfigError(
            "Without a head_width, the width must be a multiple of heads.",
            got=f"width={width}, heads={heads}",
            hint=f"give head_width, for example the paper's full width, {width}.",
        )
