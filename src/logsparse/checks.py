"""A user's setting -> the same as a plain Python value; one of the wrong kind is refused by name before work begins."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from numbers import Integral, Real
from pathlib import Path
from typing import Any, SupportsFloat

from logsparse.errors import ConfigError, shown


def is_whole(value: Any) -> bool:
    """Whether it is an integer, numpy's included; truth values are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def whole(name: str, value: Any, *, hint: str, least: int = 1, most: int | None = None) -> int:
    """A whole number of at least `least`, and at most `most`."""
    if not is_whole(value):
        raise ConfigError(f"{name} must be a whole number.", got=shown(value), hint=hint)
    if value < least:
        raise ConfigError(f"{name} must be at least {least}.", got=shown(int(value)), hint=hint)
    if most is not None and value > most:
        raise ConfigError(f"{name} must be at most {most}.", got=shown(int(value)), hint=hint)
    return int(value)


def is_number(value: Any) -> bool:
    """Whether it is a finite number, numpy's included; truth values are none."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(_as_float(value))


def _as_float(value: SupportsFloat) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf


def above_zero(name: str, value: Any, *, hint: str) -> float:
    """A number above 0."""
    if not is_number(value) or value <= 0:
        raise ConfigError(f"{name} must be a number above 0.", got=shown(value), hint=hint)
    return float(value)


def is_truth(value: Any) -> bool:
    """Whether it is True or False, numpy's included."""
    import numpy as np

    return isinstance(value, (bool, np.bool_))


def truth(name: str, value: Any) -> bool:
    """True or False."""
    if not is_truth(value):
        raise ConfigError(
            f"{name} must be True or False.", got=shown(value), hint=f"write {name}=False, or leave it out."
        )
    return bool(value)


def listed(name: str, value: Any) -> list[str]:
    """Column names: a list of them, an array, an index, a set, a generator, or nothing."""
    try:
        names = None if isinstance(value, (str, bytes)) else [str(entry) for entry in ([] if value is None else value)]
    except (TypeError, ValueError):  # no list, or a number of more digits than Python writes
        names = None
    if names is None:
        raise ConfigError(
            f"{name} must be a list of column names.", got=shown(value), hint=f"write {name}=[{shown(value)}]."
        )
    # The order of a set of text differs from process to process, and columns are inputs of a network in their order.
    return sorted(names) if isinstance(value, AbstractSet) else names


def a_path(rule: str, value: Any, *, hint: str) -> Path:
    """A path that a file system can be asked for."""
    named = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(named, str) or "\0" in named:
        raise ConfigError(rule, got=shown(value), hint=hint)
    return Path(named)


def suggest(word: object, known: Iterable[object], otherwise: str) -> str:
    """A hint that names the nearest of what is known, if one is near."""
    near = difflib.get_close_matches(str(word), [str(entry) for entry in known], n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def keywords(given: Iterable[str], known: Iterable[str]) -> None:
    """No keyword but those that are known."""
    allowed = list(known)
    for name in given:
        if name not in allowed:
            raise ConfigError(
                f"Columns are described by {', '.join(allowed)}.",
                got=f"the unknown keyword {name!r}",
                hint=suggest(name, allowed, "leave it out."),
            )
