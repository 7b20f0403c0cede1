"""The errors that users meet, and the checks of settings that raise them.

Each message states the rule, what was given, and a hint.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self, SupportsFloat

# Longer texts are shortened to their two ends.
_LONGEST = 1000
_DIGITS_PER_BIT = math.log10(2)


def escaped(text: str) -> str:
    """Return the text as one printable line, with control characters and lone surrogates escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: object) -> str:
    """Return the repr of any value, or a description if repr fails, as for an integer of 5,000 digits."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the repr of a foreign class may raise anything
        if isinstance(value, int):
            return f"a whole number of about {round(value.bit_length() * _DIGITS_PER_BIT)} digits"
        return f"a value of type {type(value).__name__}"


class LogsparseError(ValueError):
    """An error that the user can correct; the command line prints it as one line and exits with code 2."""

    def __init__(self, rule: str, *, got: str, hint: str) -> None:
        rule, got, hint = (_readable(part) for part in (rule, got, hint))
        super().__init__(f"{rule} Got {got}. Hint: {hint}")
        self.rule, self.got, self.hint = rule, got, hint

    def __reduce__(self) -> tuple[object, ...]:
        # The default calls the class with the message, which is not what `__init__` takes.
        return _unpickled, (type(self), str(self)), self.__dict__ or None


class DataError(LogsparseError):
    """The data, or a file, break a rule."""

    @classmethod
    def unreadable(cls, path: Path | str, reason: str, hint: str = "") -> Self:
        """Return the error for a file that cannot be read as data."""
        return cls(
            "DATA must be a readable parquet, csv or feather file, or a folder of parquet files.",
            got=f"{path}: {reason}",
            hint=hint or "check the path and the ending of the name.",
        )

    @classmethod
    def no_history(cls) -> Self:
        """Return the error for a model that was saved without history and is given none."""
        return cls(
            "A model saved without its history must be given one to forecast.",
            got="no history",
            hint="predict(frame) with the last steps of each series, or save(history=True).",
        )

    @classmethod
    def other_kind(cls, name: str, fitted: str, got: str) -> Self:
        """Return the error for a covariate of text that was fitted as numbers, or the other way round."""
        return cls(
            f"The covariate {name!r} must hold {fitted}, as in the data that the model was fitted on.",
            got=got,
            hint=f"convert the column to {fitted}.",
        )


class StepUnknownError(DataError):
    """The step cannot be inferred from the data; a caller that knows it can continue."""


class SplitSeriesError(DataError):
    """A series lies in two parts; a caller that reads all parts as one table can continue."""

    @classmethod
    def of(cls, series: object, one: Path, other: Path, folder: Path, parts: int) -> Self:
        """Return the error for a series in two of the `parts` of a folder."""
        return cls(
            "Each series must lie whole in one part.",
            got=f"series {series!r} in {one} and in {other} of {folder}",
            hint=f"write it anew: `logsparse shard {folder} -o {folder.name}-whole --parts {parts}`.",
        )


class MissingColumnsError(DataError):
    """A frame lacks columns; a caller that knows what they are for can say so."""

    missing: tuple[str, ...] = ()
    """Names of those columns."""


class ConfigError(LogsparseError):
    """A setting breaks a rule."""


class NotFittedError(LogsparseError):
    """A method was called that needs a fitted forecaster."""

    def __init__(self, forecaster: object) -> None:
        name = type(forecaster).__name__
        super().__init__(
            f"{name} must be fitted before it forecasts.",
            got=f"an unfitted {name}",
            hint=f"call {name}(...).fit(frame) first.",
        )


def _readable(text: str) -> str:
    text = escaped(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def _unpickled(kind: type[LogsparseError], text: str) -> LogsparseError:
    """Return the error with its message unchanged."""
    return kind.__new__(kind, text)


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
