"""One hostile input -> its outcome: accepted with the right values, refused with a clear error, or a finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from logsparse.errors import LogsparseError

ACCEPTED, REFUSED = "accepted", "refused"


class Case(NamedTuple):
    """A generator of cases is a function `(rng, folder) -> Case`; all randomness comes from `rng`."""

    kind: str
    """Group in which it is counted, for example "frame: times" or "folder: edited weights"."""
    label: str
    """One line on what was done to the input; with the seed it identifies the case."""
    run: Callable[[], None]
    """Returns if the input was accepted and its values are right; raises AssertionError if they are wrong."""


def outcome(case: Case) -> str:
    """Return `accepted` or `refused`; any other exception of `run` is a finding and passes through."""
    try:
        case.run()
    except LogsparseError:
        return REFUSED
    return ACCEPTED
