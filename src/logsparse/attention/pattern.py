"""Length -> the cells that each cell attends to, as distances into the past, and what layers of them reach.

All rows share one sorted set of distances (0 is the cell itself), so no cell attends to the future; the first
`dense_rows` rows attend to their whole past. Positions count from 0. To add a pattern, write a function like those
below and enter it in `PATTERNS`: `logsparse pattern`, `--set model.patterns=...` and saved models read that registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from logsparse.attention.reach import Bools, Numbers, crossings, entry
from logsparse.errors import ConfigError, whole

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# numpy and torch are imported where they are used: `logsparse --help` reads the registry and needs none.
MaskMod: TypeAlias = "Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]"


@dataclass(frozen=True, repr=False)
class Pattern:
    """The distances at which attention looks back: a rule of the registry and its settings.

    Make one with `full`, `logsparse`, `local`, `restart`, `seasonal` or `from_distances`. Patterns are hashable.

    Parameters
    ----------
    rule : str
        Name of an entry of `PATTERNS`.
    settings : tuple of (str, int or tuple of int)
        Settings of the rule, by name.
    dense_rows : int, default 0
        Number of first rows that attend to their whole past.

    Raises
    ------
    ConfigError
        If the rule is unknown or `dense_rows` is not a whole number of at least 0.

    Examples
    --------
    >>> import logsparse as ls
    >>> pattern = ls.patterns.logsparse(dense_rows=2)
    >>> pattern
    logsparse(base=2, dense_rows=2)
    >>> pattern.distances(10)
    (0, 1, 2, 4, 8)
    >>> pattern.row(9)
    (1, 5, 7, 8, 9)
    >>> pattern.mask(4).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 0],
           [0, 1, 1, 1]])
    >>> pattern.layers_to_reach(10)
    3
    >>> ls.patterns.Pattern.from_dict(pattern.to_dict()) == pattern
    True
    """

    rule: str
    settings: tuple[tuple[str, int | tuple[int, ...]], ...] = ()
    dense_rows: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if self.rule not in PATTERNS:
            raise ConfigError(
                f"A pattern's rule must be one of {', '.join(PATTERNS)}.",
                got=repr(self.rule),
                hint="make one with logsparse(), local(7), restart(96), seasonal(24), full() or from_distances([...]).",
            )
        object.__setattr__(self, "dense_rows", _whole("dense_rows", self.dense_rows, least=0))

    def __repr__(self) -> str:
        shown = [*self.settings, *([("dense_rows", self.dense_rows)] if self.dense_rows else [])]
        return f"{self.rule}({', '.join(f'{name}={value}' for name, value in shown)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the rule and its settings as strings, whole numbers and lists, ready for JSON."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in self.settings}
        return {"rule": self.rule, **plain, "dense_rows": self.dense_rows}

    @staticmethod
    def from_dict(settings: Mapping[str, Any]) -> Pattern:
        """Return the pattern that `to_dict` described; raise ConfigError if the rule or a setting is unknown."""
        if not isinstance(settings, Mapping):
            raise ConfigError(
                "A pattern is read from a dict.",
                got=repr(settings),
                hint="write {'rule': 'restart', 'sub_length': 96}.",
            )
        arguments = dict(settings)
        name = arguments.pop("rule", None)
        try:
            return PATTERNS[name].make(**arguments)
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"A pattern needs a rule, one of {', '.join(PATTERNS)}, and that rule's settings.",
                got=repr(dict(settings)),
                hint="write, for example, {'rule': 'restart', 'sub_length': 96}.",
            ) from error

    def distances(self, length: int) -> tuple[int, ...]:
        """Return the distances below `length`, sorted, 0 first: row l attends to l - s for every s <= l of them."""
        length = _whole("length", length, least=1)
        return tuple(sorted({s for s in PATTERNS[self.rule].distances(length, **dict(self.settings)) if s < length}))

    def cells_of(self, length: int) -> tuple[tuple[int, ...], int]:
        """Return the distances, and how many first rows see their whole past: all, if every distance is present."""
        distances = self.distances(length)
        return distances, length if len(distances) == length else min(self.dense_rows, length)

    def mask(self, length: int) -> Bools:
        """Return (L, L) booleans: entry [l, j] is True if row l attends to cell j."""
        return self.reach(length, layers=1)

    def mask_mod(self, length: int, device: str | torch.device = "cpu") -> MaskMod:
        """Return `mask(length)` as a function (batch, head, query, key) -> bool, for FlexAttention on this device."""
        import torch

        distances, dense_rows = self.cells_of(length)
        seen_L = torch.zeros(length, dtype=torch.bool, device=device)
        seen_L[list(distances)] = True

        def mask_mod(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query >= key) & (seen_L[(query - key).clamp(min=0)] | (query < dense_rows))

        mask_mod.__name__ = f"{self.rule}_{length}"
        return mask_mod

    def row(self, position: int) -> tuple[int, ...]:
        """Return the cells that this row attends to, oldest first, itself last."""
        position = _whole("position", position, least=0)
        distances = range(position + 1) if position < self.dense_rows else self.distances(position + 1)
        return tuple(position - s for s in reversed(distances))

    def cells(self, length: int) -> int:
        """Return the number of cells that all rows attend to together."""
        length = _whole("length", length, least=1)
        dense = min(self.dense_rows, length)
        return dense * (dense + 1) // 2 + sum(length - max(s, dense) for s in self.distances(length))

    def row_cells(self, length: int) -> int:
        """Return the number of cells that the fullest row attends to."""
        return max(len(self.distances(length)), min(self.dense_rows, int(length)))

    def reach(self, length: int, layers: int) -> Bools:
        """Return (L, L) booleans: entry [l, j] is True if row l has received cell j after `layers` layers."""
        import numpy as np

        layers, length = _whole("layers", layers, least=0), _whole("length", length, least=1)
        crossed = crossings(self.distances(length), length)
        before = after = next(crossed)
        for _ in range(layers):
            before, after = after, next(crossed, after)
        line = np.concatenate([after[::-1], np.zeros(length - 1, bool)])
        cells: Bools = np.lib.stride_tricks.sliding_window_view(line, length)[::-1].copy()
        if self.dense_rows and layers:
            cells |= np.arange(length) <= entry(before, self.dense_rows)[:, None]
        return cells

    def layers_to_reach(self, length: int) -> int | None:
        """Return the fewest layers after which every row has received its whole past; None if no number suffices."""
        import numpy as np

        rows = np.arange(length)
        before: Bools | None = None
        for layers, after in enumerate(crossings(self.distances(length), len(rows))):
            gap = len(rows) if after.all() else int(np.argmin(after))
            complete = rows < gap
            if self.dense_rows and before is not None:
                complete |= rows - entry(before, self.dense_rows) <= gap
            if complete.all():
                return layers
            before = after
        return None

    def arrivals(self, length: int) -> Numbers:
        """Return, per cell, the number of layers after which the last row has received it; -1 if it never does."""
        import numpy as np

        layer_of = np.full(length, -1)
        before: Bools | None = None
        for layers, after in enumerate(crossings(self.distances(length), len(layer_of))):
            received = after[::-1]
            if self.dense_rows and before is not None:
                received = received | (np.arange(length) <= entry(before, self.dense_rows)[-1])
            layer_of[received & (layer_of < 0)] = layers
            before = after
        return layer_of

    def paths(self, query: int, key: int, edges: int) -> int:
        """Return the number of paths from `key` to `query` of exactly `edges` edges, none of them a self-edge."""
        import numpy as np

        query, key = _whole("query", query, least=0), _whole("key", key, least=0)
        edges = _whole("edges", edges, least=0)
        if key > query:
            return 0
        span = query - key + 1
        dense_cells = min(max(self.dense_rows - key, 0), span)
        # Python integers: path counts outgrow 64 bits.
        ways = np.zeros(span, dtype=object)
        ways[0] = 1
        for _ in range(edges):
            longer = np.zeros_like(ways)
            for step in self.distances(span)[1:]:
                longer[step:] += ways[:-step]
            longer[:dense_cells] = np.cumsum(ways[:dense_cells]) - ways[:dense_cells]
            ways = longer
        return int(ways[-1])


def full(*, dense_rows: int = 0) -> Pattern:
    """Return the pattern of causal attention: every s >= 0.

    Parameters
    ----------
    dense_rows : int, default 0
        Accepted as for the other patterns; without effect here.

    Returns
    -------
    Pattern

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.patterns.full().distances(4)
    (0, 1, 2, 3)
    """
    return Pattern("full", dense_rows=dense_rows)


def logsparse(base: int = 2, *, dense_rows: int = 0) -> Pattern:
    """Return the LogSparse pattern: every s = base^e, and s = 0.

    Parameters
    ----------
    base : int, default 2
        Base of the powers, at least 2.
    dense_rows : int, default 0
        Number of first rows that attend to their whole past.

    Returns
    -------
    Pattern

    Raises
    ------
    ConfigError
        If a setting is out of its range.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.patterns.logsparse().distances(20)
    (0, 1, 2, 4, 8, 16)
    """
    return Pattern("logsparse", (("base", _whole("base", base, least=2)),), dense_rows=dense_rows)


def local(width: int, base: int = 2, *, dense_rows: int = 0) -> Pattern:
    """Return a dense window followed by powers: every s < width, and every s = width - 1 + base^e.

    Parameters
    ----------
    width : int
        Cells of the dense window, the cell itself included; 1 is `logsparse(base)`.
    base : int, default 2
        Base of the powers, at least 2.
    dense_rows : int, default 0
        Number of first rows that attend to their whole past.

    Returns
    -------
    Pattern

    Raises
    ------
    ConfigError
        If a setting is out of its range.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.patterns.local(4).distances(20)
    (0, 1, 2, 3, 4, 5, 7, 11, 19)
    """
    if _whole("width", width, least=1) == 1:
        return logsparse(base, dense_rows=dense_rows)
    settings = (("width", int(width)), ("base", _whole("base", base, least=2)))
    return Pattern("local", settings, dense_rows=dense_rows)


def restart(sub_length: int, width: int | None = None, base: int = 2, *, dense_rows: int = 0) -> Pattern:
    """Return `local(width, base)` restarted every `sub_length` cells.

    Every s = r + m * sub_length with m >= 0 and r <= sub_length a distance of `local(width, base)`. Subsequences are
    counted back from the query, so that paths cross them.

    Parameters
    ----------
    sub_length : int
        Cells of a subsequence.
    width : int, optional
        Cells of the dense window; ceil(log2(sub_length)) by default.
    base : int, default 2
        Base of the powers, at least 2.
    dense_rows : int, default 0
        Number of first rows that attend to their whole past.

    Returns
    -------
    Pattern

    Raises
    ------
    ConfigError
        If a setting is out of its range.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.patterns.restart(8).distances(20)
    (0, 1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 14, 16, 17, 18, 19)
    """
    sub_length = _whole("sub_length", sub_length, least=1)
    width = max(1, (sub_length - 1).bit_length()) if width is None else _whole("width", width, least=1)
    settings = (("sub_length", sub_length), ("width", width), ("base", _whole("base", base, least=2)))
    return Pattern("restart", settings, dense_rows=dense_rows)


def seasonal(season: int, base: int = 2, *, dense_rows: int = 0) -> Pattern:
    """Return the LogSparse pattern with the seasons: every s = base^e, and every multiple of the season and beside it.

    Parameters
    ----------
    season : int
        Cells of a season, at least 2: 24 for hours. Every s = m * season - 1, m * season and m * season + 1 is seen.
    base : int, default 2
        Base of the powers, at least 2.
    dense_rows : int, default 0
        Number of first rows that attend to their whole past.

    Returns
    -------
    Pattern

    Raises
    ------
    ConfigError
        If a setting is out of its range.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.patterns.seasonal(7).distances(20)
    (0, 1, 2, 4, 6, 7, 8, 13, 14, 15, 16)
    """
    settings = (("season", _whole("season", season, least=2)), ("base", _whole("base", base, least=2)))
    return Pattern("seasonal", settings, dense_rows=dense_rows)


def from_distances(distances: Iterable[int], *, dense_rows: int = 0) -> Pattern:
    """Return the pattern of the given distances, and always s = 0, without which the first row would see nothing.

    Parameters
    ----------
    distances : iterable of int
        Distances into the past, at least 0 each.
    dense_rows : int, default 0
        Number of first rows that attend to their whole past.

    Returns
    -------
    Pattern

    Raises
    ------
    ConfigError
        If a distance is not a whole number of at least 0.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.patterns.from_distances([24, 168, 1]).distances(100)
    (0, 1, 24)
    """
    if not isinstance(distances, Iterable):
        raise ConfigError("distances must be a list of them.", got=repr(distances), hint="from_distances([0, 1, 24]).")
    chosen = {0, *(_whole("a distance", s, least=0) for s in distances)}
    return Pattern("from_distances", (("distances", tuple(sorted(chosen))),), dense_rows=dense_rows)


def _local(length: int, width: int, base: int) -> Iterator[int]:
    yield from range(min(width, length))
    power = 1
    while width - 1 + power < length:
        yield width - 1 + power
        power *= base


def _restart(length: int, sub_length: int, width: int, base: int) -> Iterator[int]:
    kept = list(_local(sub_length + 1, width, base))
    for start in range(0, length, sub_length):
        yield from (start + s for s in kept)


def _seasonal(length: int, season: int, base: int) -> Iterator[int]:
    yield from _local(length, 1, base)
    for multiple in range(season, length + 1, season):
        yield from (multiple - 1, multiple, multiple + 1)


@dataclass(frozen=True)
class Rule:
    """An entry of the registry."""

    make: Callable[..., Pattern]
    """Takes the settings, checks them, and returns the pattern, whose rule is this function's name."""
    distances: Callable[..., Iterable[int]]
    """(length, **settings) -> distances in any order; those of `length` and above are dropped."""
    options: Mapping[str, str] | None = None
    """Whole-number settings that the command line takes, each with its help; None keeps the rule off it."""


_BASE = {"base": "base of the powers [2]"}
_WIDTH = {"width": "cells of the dense window [restart: log2 of the subsequence]"}
PATTERNS: dict[str, Rule] = {
    "full": Rule(full, range, {}),
    "logsparse": Rule(logsparse, lambda length, base: _local(length, 1, base), _BASE),
    "local": Rule(local, _local, {**_WIDTH, **_BASE}),
    "restart": Rule(restart, _restart, {"sub_length": "cells of a subsequence", **_WIDTH, **_BASE}),
    "seasonal": Rule(seasonal, _seasonal, {"season": "cells of a season", **_BASE}),
    "from_distances": Rule(from_distances, lambda _length, distances: distances),
}


def __dir__() -> list[str]:
    return [*PATTERNS, "PATTERNS", "Pattern", "Rule"]


def _whole(name: str, value: int, *, least: int) -> int:
    return whole(name, value, least=least, hint="see `help(logsparse.attention.pattern)` for what each setting means.")
