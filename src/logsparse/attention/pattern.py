"""Length -> the cells each cell may attend to, as distances into the past: which, how many, what they reach.

A pattern is a function: `restart(96).distances(768)`. All rows share one sorted set of distances (0 is the
cell itself), so none ever points to the future; the first `dense_rows` rows attend to their whole past.
Positions count from 0. Drawing lives in `draw`; nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from logsparse.attention.reach import Bools, count_paths, layers_until_complete, received
from logsparse.checks import whole
from logsparse.errors import ConfigError


@dataclass(frozen=True, repr=False)
class Pattern:
    """A rule and its settings. Make one with `full`, `logsparse`, `local`, `restart` or `from_distances`."""

    rule: str
    settings: tuple[tuple[str, int | tuple[int, ...]], ...] = ()
    dense_rows: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if self.rule not in _RULES:
            raise ConfigError(
                f"A pattern's rule must be one of {', '.join(_RULES)}.",
                got=repr(self.rule),
                hint="make one with logsparse(), local(7), restart(96), full() or from_distances([...]).",
            )
        object.__setattr__(self, "dense_rows", _whole("dense_rows", self.dense_rows, least=0))

    def __repr__(self) -> str:
        shown = [*self.settings, *([("dense_rows", self.dense_rows)] if self.dense_rows else [])]
        return f"{self.rule}({', '.join(f'{name}={value}' for name, value in shown)})"

    def to_dict(self) -> dict[str, Any]:
        """Only strings, whole numbers and lists, so that JSON gives the same dict back."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in self.settings}
        return {"rule": self.rule, **plain, "dense_rows": self.dense_rows}

    @staticmethod
    def from_dict(settings: Mapping[str, Any]) -> Pattern:
        if not isinstance(settings, Mapping):
            raise ConfigError(
                "A pattern is read from a dict.",
                got=repr(settings),
                hint="write {'rule': 'restart', 'sub_length': 96}.",
            )
        arguments = dict(settings)
        name = arguments.pop("rule", None)
        makers: dict[Any, Callable[..., Pattern]] = {
            maker.__name__: maker for maker in (full, logsparse, local, restart, from_distances)
        }
        try:
            return makers[name](**arguments)
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"A pattern needs a rule, one of {', '.join(makers)}, and that rule's settings.",
                got=repr(dict(settings)),
                hint="write, for example, {'rule': 'restart', 'sub_length': 96}.",
            ) from error

    def distances(self, length: int) -> tuple[int, ...]:
        """Sorted, 0 first, all below `length`: row l attends to l - s for every s <= l among them."""
        length = _whole("length", length, least=1)
        return tuple(sorted({s for s in _RULES[self.rule](length, **dict(self.settings)) if s < length}))

    def cells_of(self, length: int) -> tuple[tuple[int, ...], int]:
        """Distances, and how many first rows see their whole past: all, where the distances leave out nothing."""
        distances = self.distances(length)
        return distances, length if len(distances) == length else min(self.dense_rows, length)

    def mask(self, length: int) -> Bools:
        """(L, L): entry [l, j] says whether row l attends to cell j."""
        return self.reach(length, layers=1)

    def row(self, position: int) -> tuple[int, ...]:
        """The cells that this row attends to, oldest first, itself last."""
        position = _whole("position", position, least=0)
        distances = range(position + 1) if position < self.dense_rows else self.distances(position + 1)
        return tuple(position - s for s in reversed(distances))

    def cells(self, length: int) -> int:
        """How many cells all rows attend to together."""
        length = _whole("length", length, least=1)
        dense = min(self.dense_rows, length)
        return dense * (dense + 1) // 2 + sum(length - max(s, dense) for s in self.distances(length))

    def row_cells(self, length: int) -> int:
        """How many cells the fullest row attends to."""
        return max(len(self.distances(length)), min(self.dense_rows, int(length)))

    def reach(self, length: int, layers: int) -> Bools:
        """(L, L): entry [l, j] says whether row l has received cell j after so many layers."""
        layers, length = _whole("layers", layers, least=0), _whole("length", length, least=1)
        return received(self.distances(length), length, self.dense_rows, layers)

    def layers_to_reach(self, length: int) -> int | None:
        """The fewest layers after which every row has received its whole past; None if no number will do."""
        return layers_until_complete(self.distances(length), int(length), self.dense_rows)

    def paths(self, query: int, key: int, edges: int) -> int:
        """How many paths lead from `key` to `query` by exactly so many edges, none of them a self-edge."""
        query, key = _whole("query", query, least=0), _whole("key", key, least=0)
        edges = _whole("edges", edges, least=0)
        if key > query:
            return 0
        span = query - key + 1
        dense_cells = min(max(self.dense_rows - key, 0), span)
        return count_paths(self.distances(span), span, dense_cells, edges)


def full(*, dense_rows: int = 0) -> Pattern:
    """Every s >= 0."""
    return Pattern("full", dense_rows=dense_rows)


def logsparse(base: int = 2, *, dense_rows: int = 0) -> Pattern:
    """Every s = base^e, and s = 0."""
    return Pattern("logsparse", (("base", _whole("base", base, least=2)),), dense_rows=dense_rows)


def local(width: int, base: int = 2, *, dense_rows: int = 0) -> Pattern:
    """Every s < width, and beyond the window's left edge every s = width - 1 + base^e."""
    if _whole("width", width, least=1) == 1:
        return logsparse(base, dense_rows=dense_rows)
    settings = (("width", int(width)), ("base", _whole("base", base, least=2)))
    return Pattern("local", settings, dense_rows=dense_rows)


def restart(sub_length: int, width: int | None = None, base: int = 2, *, dense_rows: int = 0) -> Pattern:
    """Every s = r + m * sub_length with m >= 0 and r <= sub_length a distance of `local(width, base)`.

    Counted back from the query, so that paths cross subsequences. Width None is ceil(log2 sub_length).
    """
    sub_length = _whole("sub_length", sub_length, least=1)
    width = max(1, (sub_length - 1).bit_length()) if width is None else _whole("width", width, least=1)
    settings = (("sub_length", sub_length), ("width", width), ("base", _whole("base", base, least=2)))
    return Pattern("restart", settings, dense_rows=dense_rows)


def from_distances(distances: Iterable[int], *, dense_rows: int = 0) -> Pattern:
    """The given s, and always s = 0: without it the first row would attend to nothing."""
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


_RULES: dict[str, Callable[..., Iterable[int]]] = {
    "full": range,
    "logsparse": lambda length, base: _local(length, 1, base),
    "local": _local,
    "restart": _restart,
    "from_distances": lambda _length, distances: distances,
}


def _whole(name: str, value: int, *, least: int) -> int:
    return whole(name, value, least=least, hint="see `help(logsparse.attention.pattern)` for what each setting means.")
