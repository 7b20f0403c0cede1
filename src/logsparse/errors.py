"""The one family of errors a user can meet. Each text states the rule, what came, and the way out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Self

# A message is read by a person: of a text longer than this, both ends are shown.
_LONGEST = 1000
_DIGITS_A_BIT = math.log10(2)


def escaped(text: str) -> str:
    """The text on one line that a terminal can show: control characters and lone surrogates written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: object) -> str:
    """The repr of any value, also of one that has none, such as an integer of 5,000 digits."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a stranger's repr may raise anything
        if isinstance(value, int):
            return f"a whole number of about {round(value.bit_length() * _DIGITS_A_BIT)} digits"
        return f"a value of type {type(value).__name__}"


class LogsparseError(ValueError):
    """Anything a user can mend: the command line prints it as one line and exits with code 2."""

    def __init__(self, rule: str, *, got: str, hint: str) -> None:
        rule, got, hint = (_readable(part) for part in (rule, got, hint))
        super().__init__(f"{rule} Got {got}. Hint: {hint}")
        self.got = got

    def __reduce__(self) -> tuple[object, ...]:
        # The usual way calls the class with the finished text, which has no rule, got and hint to it.
        return _again, (type(self), str(self)), self.__dict__ or None


class DataError(LogsparseError):
    """The data break a rule."""

    @classmethod
    def unreadable(cls, path: Path | str, reason: str, hint: str = "") -> Self:
        """A file that cannot be data."""
        return cls(
            "DATA must be a readable parquet, csv or feather file, or a folder of parquet files.",
            got=f"{path}: {reason}",
            hint=hint or "check the path and the ending of the name.",
        )


class StepUnknownError(DataError):
    """The data do not tell their step; whoever knows it can go on."""


class ConfigError(LogsparseError):
    """A setting breaks a rule."""


class NotFittedError(LogsparseError):
    """Something was asked of a forecaster that has not been fitted."""

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


def _again(kind: type[LogsparseError], text: str) -> LogsparseError:
    """The error as it was, on the other side of a process pool."""
    return kind.__new__(kind, text)
