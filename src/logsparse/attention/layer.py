"""(B, L, width) -> (B, L, width): multi-head self-attention whose queries and keys see their local context.

Queries and keys come from one causal convolution of `kernel` steps, values from each step alone; kernel 1 is
the canonical layer. Which cells attend to which is the pattern's business, how fast is `attend`'s. From the
convolution to the output all memory is channel-first: both it and the attention kernel are fastest so.
"""

# B batch, N paths, L length, W width, H heads, D head width, K kernel, P past steps (K - 1),
# C channels in, E channels out

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from logsparse.attention.attend import attend
from logsparse.attention.inputs import check_starts
from logsparse.attention.pattern import Pattern
from logsparse.checks import whole
from logsparse.errors import ConfigError, DataError

# Copying the windows side by side pays where so many channels come out for one that goes in (docs/LOG.md).
UNFOLD_FROM = 12


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
        dropout = 0.0 if generator is None else self.dropout
        qkv = self.project(x_BLW, starts=starts)
        return self.merge(attend(*qkv, self.pattern, dropout=dropout, generator=generator, starts=starts))

    def project(
        self, x_BLW: Tensor, past_BPW: Tensor | None = None, *, starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values, each (B, H, L, D). `past`: the kernel - 1 steps before x; zeros if None."""
        self._check(x_BLW, past_BPW)
        check_starts(starts, x_BLW)
        x_BLW = without_padding(x_BLW, starts)
        if past_BPW is None:
            past_BPW = x_BLW.new_zeros(len(x_BLW), self.kernel - 1, self.width)
        seen_BTW = torch.cat([past_BPW, x_BLW], dim=1) if self.kernel > 1 else x_BLW
        q_and_k = convolve(seen_BTW, self.query_key.weight, cast("Tensor", self.query_key.bias))
        q_BHLD, k_BHLD = self._split(q_and_k, 2).mT.unbind(1)
        v_BHLD = self._split(_pointwise(x_BLW.mT, self.value.weight, self.value.bias)).mT
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

    def merge(self, attended_BHLD: Tensor) -> Tensor:
        """What the heads gathered, as (B, L, W)."""
        return _pointwise(attended_BHLD.mT.flatten(1, 2), self.out.weight, self.out.bias).mT

    def extra_repr(self) -> str:
        return f"{self.heads} heads of {self.head_width}, {self.pattern}, dropout={self.dropout}"

    def _split(self, channels_BCL: Tensor, *parts: int) -> Tensor:
        batch, _, length = channels_BCL.shape
        return channels_BCL.reshape(batch, *parts, self.heads, self.head_width, length)

    def _check(self, x_BLW: Tensor, past_BPW: Tensor | None) -> None:
        if x_BLW.ndim != 3 or x_BLW.shape[2] != self.width:
            raise DataError(
                f"The layer takes (batch, length, {self.width}).",
                got=str(tuple(x_BLW.shape)),
                hint="the last dimension is the width the layer was made with.",
            )
        wanted = (x_BLW.shape[0], self.kernel - 1, self.width)
        if past_BPW is not None and past_BPW.shape != wanted:
            raise DataError(
                f"The past of a convolution of {self.kernel} steps must be {wanted}.",
                got=str(tuple(past_BPW.shape)),
                hint="keep the last kernel - 1 inputs of the layer.",
            )


def without_padding(x_BLW: Tensor, starts_B: Tensor | None) -> Tensor:
    """Zeros before each batch row's start."""
    if starts_B is None:
        return x_BLW
    where_L = torch.arange(x_BLW.shape[1], device=x_BLW.device)
    return x_BLW.masked_fill((where_L < starts_B[:, None]).unsqueeze(-1), 0)


def convolve(seen_BTW: Tensor, weight_EWK: Tensor, bias_E: Tensor) -> Tensor:
    """Causal convolution of the past and the input, T = P + L steps, to (B, E, L)."""
    channels, width, kernel = weight_EWK.shape
    if kernel > 1 and channels < UNFOLD_FROM * width:
        return F.conv1d(seen_BTW.mT, weight_EWK, bias_E)
    windows_BLC = seen_BTW.unfold(1, kernel, 1).flatten(2)
    return _pointwise(windows_BLC.mT, weight_EWK.flatten(1), bias_E)


def _pointwise(x_BCL: Tensor, weight_EC: Tensor, bias_E: Tensor) -> Tensor:
    """A linear map of channel-first memory, (B, C, L) -> (B, E, L), without turning either side."""
    return torch.baddbmm(bias_E[:, None], weight_EC.expand(len(x_BCL), -1, -1), x_BCL)


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
