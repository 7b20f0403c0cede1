"""The one family of errors a user can meet. Each text states the rule, what came, and the way out."""

from __future__ import annotations


class LogsparseError(ValueError):
    """Anything a user can mend: the command line prints it as one line and exits with code 2."""

    def __init__(self, rule: str, *, got: str, hint: str) -> None:
        super().__init__(f"{rule} Got {got}. Hint: {hint}")


class DataError(LogsparseError):
    """The data break a rule."""


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
