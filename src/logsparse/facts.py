"""A value of a saved file -> the same, if it is of the kind that must be there; else an error that names it.

Whoever opens a folder of a stranger passes every value through here before anything is built from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logsparse.checks import is_number, is_whole

_LONGEST_SHOWN = 60


class UnfitError(ValueError):
    """What a saved file holds cannot be what was saved."""

    def __init__(self, name: str, must: str, got: object) -> None:
        shown = repr(got)
        super().__init__(f"{name} must be {must}, not {shown[:_LONGEST_SHOWN]}{'...' * (len(shown) > _LONGEST_SHOWN)}")


def require(name: str, must: str, got: object, *, holds: bool) -> None:
    if not holds:
        raise UnfitError(name, must, got)


def entries(name: str, value: Any, *keys: str) -> Mapping[str, Any]:
    """A dict that has all these keys."""
    require(name, f"a dict with {', '.join(keys)}", value, holds=isinstance(value, dict) and set(keys) <= set(value))
    found: Mapping[str, Any] = value
    return found


def a_list(name: str, value: Any, count: int | None = None) -> Sequence[Any]:
    """A list, of `count` entries where that is known."""
    holds = isinstance(value, list) and count in (None, len(value))
    require(name, "a list" if count is None else f"a list of {count}", value, holds=holds)
    found: Sequence[Any] = value
    return found


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    require(name, f"a whole number from {least} to {most}", value, holds=is_whole(value) and least <= value <= most)
    return int(value)


def number(name: str, value: Any, least: float = -np.inf, most: float = np.inf) -> float:
    """A finite number within these bounds."""
    require(name, f"a number from {least} to {most}", value, holds=is_number(value) and least <= value <= most)
    return float(value)


def text(name: str, value: Any) -> str:
    require(name, "a text", value, holds=isinstance(value, str))
    return str(value)


def texts(name: str, value: Any, known: Sequence[str] | None = None) -> tuple[str, ...]:
    """Different texts, all of them `known` where that is given."""
    found = tuple(text(name, entry) for entry in a_list(name, value))
    require(name, "each a different one", value, holds=len(set(found)) == len(found))
    if known is not None:
        require(name, f"among {', '.join(known)}", value, holds=set(found) <= set(known))
    return found


def ids(name: str, value: Any) -> tuple[str | int, ...]:
    """Names of series: different ones, at least one, all texts or all whole numbers of 64 bits."""
    found = tuple(a_list(name, value))
    of_numbers = all(is_whole(entry) and -(2**63) <= entry < 2**63 for entry in found)
    holds = (of_numbers or all(isinstance(entry, str) for entry in found)) and len(set(found)) == len(found) > 0
    require(name, "texts, or whole numbers of 64 bits, each once", value, holds=holds)
    return found


def wholes(name: str, value: Any, count: int, least: int, most: int) -> NDArray[np.int64]:
    """So many whole numbers within these bounds."""
    return np.array([whole_number(name, entry, least, most) for entry in a_list(name, value, count)], np.int64)


def numbers(name: str, value: Any, count: int, least: float = -np.inf) -> tuple[float, ...]:
    """So many finite numbers."""
    return tuple(number(name, entry, least) for entry in a_list(name, value, count))


def array(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array of this shape and number type, without infinities; NaN may stand for what is missing."""
    found = np.asarray(value)
    require(name, f"of shape {shape}", found.shape, holds=found.shape == shape)
    require(name, f"of type {np.dtype(dtype)}", found.dtype, holds=found.dtype == dtype)
    require(name, "without infinities", "inf", holds=not np.isinf(found).any())
    return found
