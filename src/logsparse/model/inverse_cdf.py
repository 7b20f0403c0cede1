"""Probability and parameters -> value: the inverse distribution functions that torch lacks.

All functions are elementwise, broadcast, and compute in float64: float32 would lose a tail of 1e-7. Likelihoods call
them (`inverse_cdf` in model/likelihood.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from logsparse.attention.native import available, extension

# Shapes: ... any, D polynomials in the normal deviate, N polynomials in 1 / df.

_PRECISION = 1e-11
_ROUNDS = 2_000
# Below it float64 represents every whole number.
_ALL_WHOLE = 2.0**53
# Ratio of the parameters of a beta distribution from which on its gamma limit is used.
_LOPSIDED = 50
# For means up to here, summing probabilities is cheaper than one incomplete beta function.
_COUNTED = 64
# Domain of the polynomial approximation to the Student-t quantile: deviates up to here (a tail of 1e-9), and the range
# of 1 / df. With this many polynomials its error is 1e-6, like that of the exact function.
_FARTHEST, _FROM, _TO = 6.0, 5e-4, 0.5
_DEVIATE_POLYNOMIALS, _DF_POLYNOMIALS = 16, 16


@torch.no_grad()
def beta_cdf(a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the regularised incomplete beta function I_x(a, b); y is 1 - x, which x near 1 would round away.

    The continued fraction needs thousands of rounds where one of a, b is far larger than the other. The gamma
    distribution is the limit there: an incomplete gamma function with one correction is accurate to 1e-6.
    """
    a, b, x, y = _aligned(a, b, x, y)
    value = torch.empty_like(x)
    right, left = b > _LOPSIDED * (a + 1), a > _LOPSIDED * (b + 1)
    middle = ~(left | right)
    value[right] = _gamma_limit(a[right], b[right], x[right], y[right])
    value[left] = 1 - _gamma_limit(b[left], a[left], y[left], x[left])
    value[middle] = _continued_fraction(a[middle], b[middle], x[middle], y[middle])
    return value


def _gamma_limit(a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return I_x(a, b) for b far above a, after Wise (1950)."""
    count = b + (a - 1) / 2
    reach = -count * torch.where(x < 0.5, torch.log1p(-x), torch.log(y))
    density = torch.exp(torch.xlogy(a, reach) - reach - torch.lgamma(a))
    limit: Tensor = torch.special.gammainc(a, reach)
    return limit - density * (a - 1) * (a + 1 + reach) / (24 * count**2)


def _continued_fraction(a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return I_x(a, b) by Lentz's method, in about sqrt(max(a, b)) rounds."""
    # It converges fast on one side of the mean only; the other side is computed as the complement.
    mirrored = x > (a + 1) / (a + b + 2)
    a, b = torch.where(mirrored, b, a), torch.where(mirrored, a, b)
    x, y = torch.where(mirrored, y, x), torch.where(mirrored, x, y)
    log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
    front = torch.exp(torch.xlogy(a, x) + torch.xlogy(b, y) - log_beta) / a
    upper = torch.ones_like(x)
    lower = 1 / (1 - (a + b) * x / (a + 1))
    fraction = lower
    for step in range(1, _ROUNDS):
        twice = a + 2 * step
        even = step * (b - step) * x / ((twice - 1) * twice)
        odd = -(a + step) * (a + b + step) * x / (twice * (twice + 1))
        lower = 1 / (1 + even * lower)
        upper = 1 + even / upper
        fraction = fraction * lower * upper
        lower = 1 / (1 + odd * lower)
        upper = 1 + odd / upper
        change = lower * upper
        fraction = fraction * change
        if bool(((change - 1).abs() < _PRECISION).all()):
            break
    part = front * fraction
    return torch.where(mirrored, 1 - part, part)


@torch.no_grad()
def student_t_quantile(uniform: Tensor, df: Tensor) -> Tensor:
    """Return the quantile of the standard Student-t distribution, df from 2 to 1,000: a stretched normal quantile.

    The logarithm of the stretch is a smooth function of the normal deviate and 1 / df. A few Chebyshev polynomials in
    both approximate it in a fraction of the time of the exact function (docs/LOG.md).
    """
    p = uniform.double()
    deviate = -torch.special.ndtri(torch.minimum(p, 1 - p))
    if bool((deviate > _FARTHEST).any()):
        return student_t_quantile_exactly(uniform, df)
    signed = torch.where(p < 0.5, -deviate, deviate)
    if df.shape[-1:] == (1,) and (p.ndim == 1 or p.shape[-2] == 1):
        # All distributions at the same levels: one matrix product.
        over = _chebyshev(_place(deviate), _DEVIATE_POLYNOMIALS)
        return signed * torch.exp(_coefficients(df).squeeze(-2) @ (over if p.ndim == 1 else over.squeeze(-3)).mT)
    if p.device.type == "cpu" and available():
        return _stretched_by_kernel(signed, df)
    return stretched(signed, df)


def stretched(deviate: Tensor, df: Tensor) -> Tensor:
    """Map normal deviates to Student-t deviates, on any device: the reference of the kernel."""
    return deviate * torch.exp(_clenshaw(_coefficients(df), _place(deviate)))


def _stretched_by_kernel(deviate: Tensor, df: Tensor) -> Tensor:
    """Compute `stretched` in one call of the C++ kernel instead of forty of torch, which matters for few paths."""
    deviate, df = (x.contiguous() for x in _aligned(deviate, df))
    out, surface = torch.empty_like(deviate), _surface()
    where = [x.data_ptr() for x in (deviate, df, out, surface)]
    extension().student_t(out.numel(), where, tuple(surface.shape), (_FROM, _TO, _FARTHEST))
    return out


def _coefficients(df: Tensor) -> Tensor:
    """Return coefficients (..., D) of the polynomials in the deviate."""
    return _chebyshev(_place_of_df(1 / df.double()), _DF_POLYNOMIALS) @ _surface().to(df.device)


def _clenshaw(coefficient: Tensor, place: Tensor) -> Tensor:
    """Evaluate Chebyshev series with coefficients (..., D) at places (...) by Clenshaw's recurrence."""
    coefficient_D, twice = coefficient.unbind(-1), 2 * place
    before, last = coefficient_D[-1], torch.addcmul(coefficient_D[-2], twice, coefficient_D[-1])
    for part in coefficient_D[-3:0:-1]:
        before, last = last, torch.addcmul(part - before, twice, last)
    return torch.addcmul(coefficient_D[0] - before, place, last)


@lru_cache(maxsize=1)
def _surface() -> Tensor:
    """Return coefficients (N, D), interpolated from the exact function at the Chebyshev points."""
    at_D, at_N = (
        torch.cos(torch.pi * (torch.arange(count, dtype=torch.float64) + 0.5) / count)
        for count in (_DEVIATE_POLYNOMIALS, _DF_POLYNOMIALS)
    )
    deviate_D, inverse_df_N = _FARTHEST * torch.sqrt((at_D + 1) / 2), _FROM + (_TO - _FROM) * (at_N + 1) / 2
    exact_ND = student_t_quantile_exactly(torch.special.ndtr(-deviate_D), 1 / inverse_df_N[:, None])
    stretch_ND = torch.log(-exact_ND / deviate_D)
    over_DD, over_NN = _chebyshev(at_D, _DEVIATE_POLYNOMIALS), _chebyshev(at_N, _DF_POLYNOMIALS)
    surface_ND: Tensor = torch.linalg.solve(over_NN, torch.linalg.solve(over_DD.mT, stretch_ND, left=False))
    return surface_ND.contiguous()


def _place(deviate: Tensor) -> Tensor:
    """Map deviates to [-1, 1]; through their square, since the stretch is an even function."""
    return 2 * (deviate / _FARTHEST) ** 2 - 1


def _place_of_df(inverse_df: Tensor) -> Tensor:
    """Map 1 / df to [-1, 1]."""
    return 2 * (inverse_df - _FROM) / (_TO - _FROM) - 1


def _chebyshev(x: Tensor, count: int) -> Tensor:
    """Return the first Chebyshev polynomials at x, (..., count)."""
    return torch.cos(torch.arange(count, dtype=x.dtype, device=x.device) * torch.acos(x)[..., None])


@torch.no_grad()
def student_t_quantile_exactly(uniform: Tensor, df: Tensor) -> Tensor:
    """Return the same quantile for df >= 2 at any level.

    The expansions of Hill (1970, Algorithm 396) have an error of 1e-3 at df = 2 and 1e-5 from df = 3 on; one Newton
    step on the exact tail removes it.
    """
    p, n = _aligned(uniform, df)
    tail = torch.minimum(p, 1 - p)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * torch.sqrt(a * torch.pi / 2) * n
    # Centre: a correction to the normal quantile. Tail: an inverse power series in tail^(2/n).
    normal = torch.special.ndtri(tail)
    small = torch.where(n < 5, 0.3 * (n - 4.5) * (normal + 0.6), 0.0)
    slope = (((0.05 * d * normal - 5) * normal - 7) * normal - 2) * normal + b + c + small
    square = normal**2
    bent = (((((0.4 * square + 6.3) * square + 36) * square + 94.5) / slope - square - 3) / b + 1) * normal
    power = (2 * d * tail) ** (2 / n)
    series = 1 / (((n + 6) / (n * power) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)
    far = (series * power - 1) * (n + 1) / (n + 2) + 1 / power
    t = torch.sqrt(n * torch.where(power > 0.05 + a, torch.expm1(a * bent**2), far))

    share = n / (n + t**2)
    exact = 0.5 * beta_cdf(n / 2, torch.full_like(n, 0.5), share, t**2 / (n + t**2))
    log_density = (
        torch.lgamma((n + 1) / 2) - torch.lgamma(n / 2) - 0.5 * torch.log(n * torch.pi) + (n + 1) / 2 * torch.log(share)
    )
    t = t + (exact - tail) / torch.exp(log_density)
    return torch.where(p < 0.5, -t, t)


@torch.no_grad()
def negative_binomial_quantile(uniform: Tensor, mean: Tensor, dispersion: Tensor) -> Tensor:
    """Return the smallest count k with P(X <= k) >= uniform, where the variance is mean + dispersion * mean^2.

    The C++ kernel sums probabilities up to means of some thousands; what it leaves is found by bisection.
    """
    by_kernel = mean.device.type == "cpu" and available()
    return _found(uniform, mean, dispersion, _counted_by_kernel if by_kernel else _counted)


@torch.no_grad()
def negative_binomial_quantile_plainly(uniform: Tensor, mean: Tensor, dispersion: Tensor) -> Tensor:
    """Return the same quantile in plain torch, on any device: the reference of the kernel."""
    return _found(uniform, mean, dispersion, _counted)


def _found(uniform: Tensor, mean: Tensor, dispersion: Tensor, counted: Callable[..., Tensor]) -> Tensor:
    """Return counts as `counted` finds them, and by bisection where it returns -1."""
    aligned = _aligned(uniform, mean, 1 / dispersion.double())
    u, m, r = (part.reshape(-1) for part in aligned)
    found = counted(u, m, r)
    rest = torch.nonzero(found < 0).squeeze(1)
    if rest.numel() > 0:
        found[rest] = _bisected(u[rest], m[rest], r[rest])
    return found.reshape(aligned[0].shape)


def _counted_by_kernel(u: Tensor, m: Tensor, r: Tensor) -> Tensor:
    """Return the count by summing probabilities, further than `_counted` does, else -1."""
    parts = [x.contiguous() for x in (u, m, r)]
    out = torch.empty_like(parts[0])
    where = [x.data_ptr() for x in (*parts, out)]
    extension().counts(out.numel(), where, (_COUNTED, _LOPSIDED), torch.get_num_threads())
    return out


def _counted(u: Tensor, m: Tensor, r: Tensor) -> Tensor:
    """Return the count by summing probabilities where it is small, else -1."""
    found = torch.full_like(u, -1)
    # For larger means the first probabilities may underflow, and the sum is long.
    open_ = torch.nonzero(m < _COUNTED).squeeze(1)
    u, m, r = u[open_], m[open_], r[open_]
    probability = torch.exp(-r * torch.log1p(m / r))
    total = probability.clone()
    share = m / (r + m)
    for count in range(2 * _COUNTED):
        done = total >= u
        if bool(done.any()):
            found[open_[done]] = count
            open_, u, r, share, probability, total = (x[~done] for x in (open_, u, r, share, probability, total))
        if open_.numel() == 0:
            break
        probability = probability * share * (r + count) / (count + 1)
        total = total + probability
    return found


def _bisected(u: Tensor, m: Tensor, r: Tensor) -> Tensor:
    """Return the count by bisection on whole numbers, between the bounds of Cantelli's inequality."""
    deviation = torch.sqrt(m + m**2 / r)
    low = torch.floor(m - deviation * torch.sqrt((1 - u) / u)).clamp(min=0) - 1
    high = torch.ceil(m + deviation * torch.sqrt(u / (1 - u))) + 1
    # First guess: the normal quantile with a correction for skewness.
    z = torch.special.ndtri(u)
    skew = (1 + 2 * m / r) / deviation
    middle = torch.floor(m + deviation * (z + skew * (z**2 - 1) / 6))
    reach = (0.02 * deviation).clamp(min=1).ceil()
    open_ = torch.arange(u.numel(), device=u.device)
    while open_.numel() > 0:
        at = torch.clamp(middle[open_], low[open_] + 1, high[open_] - 1)
        r_open, m_open = r[open_], m[open_]
        both = r_open + m_open
        below = beta_cdf(r_open, at + 1, r_open / both, m_open / both) < u[open_]
        low[open_] = torch.where(below, at, low[open_])
        high[open_] = torch.where(below, high[open_], at)
        # Growing steps away from the guess until the count is bracketed, then halves.
        halves = torch.floor((low[open_] + high[open_]) / 2)
        stride = at + torch.where(below, reach[open_], -reach[open_])
        middle[open_] = torch.where(below, torch.minimum(stride, halves), torch.maximum(stride, halves))
        reach[open_] = reach[open_] * 4
        # Beyond 2^53, where floats are more than 1 apart, stop at twelve digits. A count may lie there even if its mean
        # does not.
        apart = torch.where(high[open_] < _ALL_WHOLE, 1.0, 1e-12 * high[open_])
        open_ = open_[high[open_] - low[open_] > apart]
    return high


def _aligned(*parts: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors in float64, broadcast to one shape."""
    return tuple(torch.broadcast_tensors(*(part.double() for part in parts)))  # type: ignore[no-untyped-call]
