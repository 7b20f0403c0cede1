"""What a fitted forecaster shows of itself -> a report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Diagnostics:
    """Evidence for a report, as `Forecaster.diagnostics` returns it.

    Parameters
    ----------
    settings, losses, attention
        Settings by name; one row per validation (step, seconds, nll, validation_nll); a figure, or None.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.SeasonalNaive(horizon=24).diagnostics().settings
    {'horizon': 24, 'season': None}
    """

    settings: dict[str, Any]
    losses: list[dict[str, float]] = field(default_factory=list)
    attention: Figure | None = None
