"""A setting given by a user -> the same as a plain Python value, or a ConfigError that names the setting."""

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
    """Return True for integers, including those of numpy, but not for booleans."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def whole(name: str, value: Any, *, hint: str, least: int = 1, most: int | None = None) -> int:
    """Return an integer of at least `least` and at most `most`."""
    if not is_whole(value):
        raise ConfigError(f"{name} must be a whole number.", got=shown(value), hint=hint)
    if value < least:
        raise ConfigError(f"{name} must be at least {least}.", got=shown(int(value)), hint=hint)
    if most is not None and value > most:
        raise ConfigError(f"{name} must be at most {most}.", got=shown(int(value)), hint=hint)
    return int(value)


def is_number(value: Any) -> bool:
    """Return True for finite numbers, including those of numpy, but not for booleans."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(_as_float(value))


def _as_float(value: SupportsFloat) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf


def above_zero(name: str, value: Any, *, hint: str) -> float:
    """Return a number above 0."""
    if not is_number(value) or value <= 0:
        raise ConfigError(f"{name} must be a number above 0.", got=shown(value), hint=hint)
    return float(value)


def is_truth(value: Any) -> bool:
    """Return True for booleans, including those of numpy."""
    import numpy as np

    return isinstance(value, (bool, np.bool_))


def truth(name: str, value: Any) -> bool:
    """Return a boolean."""
    if not is_truth(value):
        raise ConfigError(
            f"{name} must be True or False.", got=shown(value), hint=f"write {name}=False, or leave it out."
        )
    return bool(value)


def listed(name: str, value: Any) -> list[str]:
    """Return column names as a list; they may be given as any iterable, or as None for no names."""
    try:
        names = None if isinstance(value, (str, bytes)) else [str(entry) for entry in ([] if value is None else value)]
    except (TypeError, ValueError):  # not iterable, or an integer of more digits than Python prints
        names = None
    if names is None:
        raise ConfigError(
            f"{name} must be a list of column names.", got=shown(value), hint=f"write {name}=[{shown(value)}]."
        )
    # The order of a set differs between processes, and the order of columns is the order of a network's inputs.
    return sorted(names) if isinstance(value, AbstractSet) else names


def a_path(rule: str, value: Any, *, hint: str) -> Path:
    """Return a path that a file system accepts."""
    named = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(named, str) or "\0" in named:
        raise ConfigError(rule, got=shown(value), hint=hint)
    return Path(named)


def suggest(word: object, known: Iterable[object], otherwise: str) -> str:
    """Return a hint with the known word closest to this one, or `otherwise` if none is close."""
    near = difflib.get_close_matches(str(word), [str(entry) for entry in known], n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def keywords(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a ConfigError for a keyword that is not known."""
    allowed = list(known)
    for name in given:
        if name not in allowed:
            raise ConfigError(
                f"Columns are described by {', '.join(allowed)}.",
                got=f"the unknown keyword {name!r}",
                hint=suggest(name, allowed, "leave it out."),
            )
