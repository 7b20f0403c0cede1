"""(B, L, width) -> (B, L, width): multi-head self-attention with convolutional queries and keys.

Queries and keys come from one causal convolution of `kernel` steps, values from each step alone; kernel 1 is the
canonical layer. The pattern decides which cells attend to which, `attend` computes it. The C++ kernel reads x once for
queries, keys and values, without copying windows, and normalizes x on the way if a norm precedes the layer. From the
convolution to the output all memory is channel-first, (B, C, L), the fastest layout for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from logsparse.attention.attend import attend
from logsparse.attention.native import (
    TYPES,
    check_shapes,
    check_starts_memory,
    define,
    differentiable_gradients,
    extension,
    room,
    serves,
)
from logsparse.attention.pattern import Pattern
from logsparse.attention.plain import check_starts, without_padding
from logsparse.errors import ConfigError, DataError, whole

# B batch, N paths, L length, W width, H heads, D head width, K kernel, C channels of queries, keys or values each
# (H * D), E channels out

Projected = tuple[Tensor, Tensor, Tensor]
Norm = tuple[Tensor, Tensor] | tuple[None, None]
"""Gain and shift of a norm, (W,) each."""
EPSILON = 1e-5
"""Added to the variance by every norm."""


def project(
    x_BLW: Tensor,
    weight_2CWK: Tensor,
    bias_2C: Tensor,
    weight_CW: Tensor,
    bias_C: Tensor,
    starts_B: Tensor | None,
    norm: Norm = (None, None),
) -> Projected:
    """(B, L, W) -> queries, keys, values, (B, C, L) each; positions before each start count as zeros."""
    parts = (x_BLW, weight_2CWK, bias_2C, weight_CW, bias_C)
    if serves(*parts, *(part for part in norm if part is not None)):
        projected: Projected = torch.ops.logsparse.project(*parts, starts_B, *norm)
        return projected
    return project_plainly(*parts, starts_B, norm)


def project_plainly(
    x_BLW: Tensor,
    weight_2CWK: Tensor,
    bias_2C: Tensor,
    weight_CW: Tensor,
    bias_C: Tensor,
    starts_B: Tensor | None,
    norm: Norm = (None, None),
) -> Projected:
    """Compute `project` in plain torch: the oracle, on any device and in any type."""
    gain_W, shift_W = norm
    x_BLW = without_padding(x_BLW, starts_B)
    if gain_W is not None:
        x_BLW = without_padding(F.layer_norm(x_BLW, gain_W.shape, gain_W, shift_W, EPSILON), starts_B)
    x_BWL = x_BLW.mT
    padded_BWT = F.pad(x_BWL, (weight_2CWK.shape[2] - 1, 0))
    q_BCL, k_BCL = F.conv1d(padded_BWT, weight_2CWK, bias_2C).chunk(2, dim=1)
    return q_BCL, k_BCL, F.conv1d(x_BWL, weight_CW[..., None], bias_C)


def _project(
    x_BLW: Tensor,
    weight_2CWK: Tensor,
    bias_2C: Tensor,
    weight_CW: Tensor,
    bias_C: Tensor,
    starts_B: Tensor | None,
    *norm: Tensor | None,
) -> Projected:
    _check(x_BLW, weight_2CWK, bias_2C, weight_CW, bias_C, starts_B, norm)
    norm = _dense(norm)
    out = _results(x_BLW, weight_CW)
    (w_q, w_k), (b_q, b_k) = weight_2CWK.contiguous().chunk(2), bias_2C.contiguous().chunk(2)
    weights, biases = (w_q, w_k, weight_CW.contiguous()), (b_q, b_k, bias_C.contiguous())
    taps = (weight_2CWK.shape[2], weight_2CWK.shape[2], 1)
    parts = [
        (len(bias), tap, weight.data_ptr(), bias.data_ptr(), o.data_ptr())
        for weight, bias, tap, o in zip(weights, biases, taps, out, strict=True)
    ]
    extension().convolve(*_whole(x_BLW, starts_B, norm), parts)
    return out


def _project_fake(x_BLW: Tensor, weight_2CWK: Tensor, bias_2C: Tensor, weight_CW: Tensor, *_: Any) -> Projected:
    del weight_2CWK, bias_2C
    return _results(x_BLW, weight_CW)


def _project_backward(
    grads: list[Tensor],
    x_BLW: Tensor,
    weight_2CWK: Tensor,
    weight_CW: Tensor,
    starts_B: Tensor | None,
    *norm: Tensor | None,
) -> list[Tensor]:
    _check(x_BLW, weight_2CWK, None, weight_CW, None, starts_B, norm)
    norm = _dense(norm)
    (batch, length, width), (channels, kernel) = x_BLW.shape, (len(weight_CW), weight_2CWK.shape[2])
    wanted = (batch, channels, length)
    check_shapes(x=(x_BLW, tuple(x_BLW.shape)), **{f"grad {n}": (grad, wanted) for n, grad in enumerate(grads)})
    # Transposed, from results back to inputs, with taps in reverse order.
    turned = [part.transpose(0, 1).flip(2).contiguous() for part in weight_2CWK.chunk(2)]
    turned.append(weight_CW.T.contiguous())
    taps = (kernel, kernel, 1)
    rooms = [room(tap * width) for tap in taps]
    sizes = [channels * wide + room(channels) for wide in rooms] + [room(width)] * 2
    threads = torch.get_num_threads()
    sums = x_BLW.new_zeros(threads, sum(sizes))
    grad_x = x_BLW.new_empty(batch, length, width)
    parts = [
        (channels, tap, weight.data_ptr(), grad.data_ptr(), *grad.stride())
        for grad, tap, weight in zip(grads, taps, turned, strict=True)
    ]
    where = grad_x.data_ptr(), sums.data_ptr(), sums.shape[1]
    extension().convolve_backward(*_whole(x_BLW, starts_B, norm), parts, *where)
    total = sums.sum(0) if threads > 1 else sums[0]
    weights, biases = [], []
    *of_parts, gain, shift = torch.split(total, sizes)
    for part, tap, wide in zip(of_parts, taps, rooms, strict=True):
        weight = part[: channels * wide].view(channels, wide)[:, : tap * width]
        weights.append(weight.reshape(channels, tap, width).mT)
        biases.append(part[channels * wide :][:channels])
    q_w, k_w, v_w = weights
    of_norm = [] if norm[0] is None else [gain[:width].clone(), shift[:width].clone()]
    return [grad_x, torch.cat([q_w, k_w]), torch.cat(biases[:2]), v_w.squeeze(2), biases[2].clone(), *of_norm]


def _project_backward_fake(
    grads: list[Tensor],
    x_BLW: Tensor,
    weight_2CWK: Tensor,
    weight_CW: Tensor,
    starts_B: Tensor | None,
    *norm: Tensor | None,
) -> list[Tensor]:
    del grads, starts_B
    whole = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (x_BLW, weight_2CWK, weight_CW)]
    biases = [x.new_empty(len(x)) for x in (weight_2CWK, weight_CW)]
    of_norm = [part.new_empty(part.shape) for part in norm if part is not None]
    return [whole[0], whole[1], biases[0], whole[2], biases[1], *of_norm]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Projected) -> None:
    del output
    x_BLW, weight_2CWK, _, weight_CW, _, *rest = inputs
    ctx.save_for_backward(x_BLW, weight_2CWK, weight_CW, *rest)


def _gradients(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():  # create_graph=True
        x_BLW, weight_2CWK, weight_CW, starts_B, *norm = ctx.saved_tensors
        # No gradient depends on the biases, which are not saved.
        biases = [x.new_zeros(len(x), requires_grad=True) for x in (weight_2CWK, weight_CW)]

        def plainly(
            x: Tensor, weight_qk: Tensor, bias_qk: Tensor, weight: Tensor, bias: Tensor, *norm: Any
        ) -> Projected:
            return project_plainly(x, weight_qk, bias_qk, weight, bias, starts_B, cast("Norm", norm))

        inputs = [x_BLW, weight_2CWK, biases[0], weight_CW, biases[1], *norm]
        found = differentiable_gradients(plainly, inputs, grads)
        return (*found[:5], None, *found[5:])
    gradients = torch.ops.logsparse.project_backward(list(grads), *ctx.saved_tensors)
    return (*gradients[:5], None, *(gradients[5:] or (None, None)))


_REST = "Tensor? starts, Tensor? gain, Tensor? shift"
_INPUTS = f"Tensor x, Tensor weight_qk, Tensor bias_qk, Tensor weight_v, Tensor bias_v, {_REST}"
define(f"project({_INPUTS}) -> (Tensor, Tensor, Tensor)", _project, _project_fake, (_gradients, _remember))
define(
    f"project_backward(Tensor[] grads, Tensor x, Tensor weight_qk, Tensor weight_v, {_REST}) -> Tensor[]",
    _project_backward,
    _project_backward_fake,
)


def _check(
    x_BLW: Tensor,
    weight_2CWK: Tensor,
    bias_2C: Tensor | None,
    weight_CW: Tensor,
    bias_C: Tensor | None,
    starts_B: Tensor | None,
    norm: Sequence[Tensor | None],
) -> None:
    """Validate everything: the operator is public and reads raw memory."""
    if x_BLW.ndim != 3 or weight_2CWK.ndim != 3 or weight_CW.ndim != 2:
        raise DataError(
            "x must be (batch, length, width), weights (2 * channels, width, kernel) and (channels, width).",
            got=f"{tuple(x_BLW.shape)}, {tuple(weight_2CWK.shape)} and {tuple(weight_CW.shape)}",
            hint="call ConvAttention, which passes them.",
        )
    channels, width, kernel = len(weight_CW), x_BLW.shape[2], weight_2CWK.shape[2]
    check_shapes(
        x=(x_BLW, tuple(x_BLW.shape)),
        weight_qk=(weight_2CWK, (2 * channels, width, kernel)),
        bias_qk=(bias_2C, (2 * channels,)),
        weight_v=(weight_CW, (channels, width)),
        bias_v=(bias_C, (channels,)),
        gain=(norm[0], (width,)),
        shift=(norm[1], (width,)),
    )
    if (norm[0] is None) != (norm[1] is None):
        raise DataError("A norm has a gain and a shift.", got="one of them", hint="pass both or neither.")
    check_starts(starts_B, x_BLW)
    check_starts_memory(starts_B)


def _results(x_BLW: Tensor, weight_CW: Tensor) -> Projected:
    batch, length, _ = x_BLW.shape
    return tuple(x_BLW.new_empty(batch, len(weight_CW), length) for _ in range(3))  # type: ignore[return-value]


def _whole(x_BLW: Tensor, starts_B: Tensor | None, norm: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """Return the arguments that both passes share: x, the sizes, the starts, the norm."""
    sizes = (TYPES[x_BLW.dtype], *x_BLW.shape, torch.get_num_threads())
    starts, *addresses = (0 if part is None else part.data_ptr() for part in (starts_B, *norm))
    return (x_BLW.data_ptr(), *x_BLW.stride()), sizes, starts, addresses, EPSILON


def _dense(norm: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    return tuple(part if part is None else part.contiguous() for part in norm)


class ConvAttention(nn.Module):
    """Multi-head causal self-attention over a pattern, with convolutional queries and keys.

    Parameters
    ----------
    width : int
        Channels of the input and the output.
    heads : int
        Number of attention heads.
    pattern : Pattern
        Which cells each position attends to; see `logsparse.patterns`.
    kernel : int, default 1
        Steps that queries and keys see, up to and including their own; 1 is the canonical layer.
    head_width : int, optional
        Channels per head; width / heads by default. The paper gives each head the full width.
    dropout : float, default 0.0
        Share of the attention weights that are dropped in training, in [0, 1).

    Raises
    ------
    ConfigError
        If a size is below 1, the width is not a multiple of the heads without a `head_width`, `pattern` is not a
        Pattern, or dropout is out of its range.

    Examples
    --------
    >>> import torch
    >>> import logsparse as ls
    >>> layer = ls.ConvAttention(32, heads=4, pattern=ls.patterns.logsparse(), kernel=6)
    >>> layer(torch.randn(2, 96, 32)).shape
    torch.Size([2, 96, 32])
    """

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
        """Draw the weights from normal distributions with the paper's standard deviations; set biases to 0."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                deviation = 0.01 if name.startswith("query_key") else 0.02
                nn.init.normal_(parameter, std=deviation, generator=generator)

    def forward(
        self, x_BLW: Tensor, *, generator: torch.Generator | None = None, starts: Tensor | None = None
    ) -> Tensor:
        """Return the attended input, (B, L, W).

        Parameters
        ----------
        x_BLW : Tensor
            Input, (B, L, W).
        generator : torch.Generator, optional
            Source of the dropout seed, which then acts in evaluation too. Without one, torch's global generator is used
            in training (`layer.train()`), and nothing is dropped in evaluation (`layer.eval()`).
        starts : Tensor, optional
            First real position per batch row, int64 (B,); neither attention nor convolution sees what precedes it.

        Returns
        -------
        Tensor
            (B, L, W)

        Raises
        ------
        DataError
            If the input is not (B, L, W).
        """
        qkv = self.project(x_BLW, starts=starts)
        dropout = self.dropout if self.training or generator is not None else 0.0
        attended_BHLD = attend(*qkv, self.pattern, dropout=dropout, generator=generator, starts=starts)
        merged_BLW: Tensor = self.out(side_by_side(attended_BHLD))
        return merged_BLW

    def gather(
        self,
        x_BLW: Tensor,
        *,
        generator: torch.Generator | None = None,
        starts: Tensor | None = None,
        norm: nn.LayerNorm | None = None,
    ) -> Tensor:
        """Return the results of the heads, (B, L, H * D), before the output layer; x is normalized first if asked.

        Without a generator nothing is dropped, in training neither: networks pass one in training only.
        """
        dropout = 0.0 if generator is None else self.dropout
        qkv = self.project(x_BLW, starts=starts, norm=norm)
        return side_by_side(attend(*qkv, self.pattern, dropout=dropout, generator=generator, starts=starts))

    def project(
        self, x_BLW: Tensor, *, starts: Tensor | None = None, norm: nn.LayerNorm | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each (B, H, L, D)."""
        self._check(x_BLW)
        check_starts(starts, x_BLW)
        bias = cast("Tensor", self.query_key.bias)
        of_norm: Norm = (None, None) if norm is None else (norm.weight, norm.bias)
        parts = project(x_BLW, self.query_key.weight, bias, self.value.weight, self.value.bias, starts, of_norm)
        q_BHLD, k_BHLD, v_BHLD = (part.view(x_BLW.shape[0], self.heads, self.head_width, -1).mT for part in parts)
        return q_BHLD, k_BHLD, v_BHLD

    def project_step(self, seen_BNKW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys, values of one position per path, each (B, N, H, D), from its last `kernel` inputs."""
        weight_EC = self.query_key.weight.mT.flatten(1)
        # One matrix with a row per path: many matrices of few rows would take twice the time.
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
                hint="the last dimension is the width of the layer.",
            )


def side_by_side(attended_BHLD: Tensor) -> Tensor:
    """Return the results of all heads as (B, L, H * D), without changing their order in memory."""
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
            hint=f"pass head_width, for example the paper's full width, {width}.",
        )
