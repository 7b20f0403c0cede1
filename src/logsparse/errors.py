"""The one family of errors a user can meet. Each text states the rule, what came, and the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Self


class LogsparseError(ValueError):
    """Anything a user can mend: the command line prints it as one line and exits with code 2."""

    def __init__(self, rule: str, *, got: str, hint: str) -> None:
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


def _again(kind: type[LogsparseError], text: str) -> LogsparseError:
    """The error as it was, on the other side of a process pool."""
    return kind.__new__(kind, text)
