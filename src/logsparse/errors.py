"""The errors that users meet. Each message states the rule, what was given, and a hint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Self

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
        self.got = got

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


class StepUnknownError(DataError):
    """The step cannot be inferred from the data; a caller that knows it can continue."""


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
