"""A model folder -> the forecaster that was saved there, whichever it was."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from logsparse.baselines import NAMES
from logsparse.checks import a_path
from logsparse.errors import DataError, LogsparseError
from logsparse.facts import UnfitError
from logsparse.forecast import Forecaster

_LONGEST_REASON = 300
_HOMES = {home.partition(":")[2]: home.partition(":")[0] for home in NAMES.values()}


def load(path: str | Path, **changed: Any) -> Forecaster:
    """What `save` wrote, ready to forecast; settings such as device="cpu" or samples=500 may be changed on the way."""
    from logsparse.folder import read

    written = read(_as_path(path))
    if written.kind not in _HOMES:
        raise DataError(
            f"A saved model must be of a kind that this logsparse knows: {', '.join(sorted(_HOMES))}.",
            got=f"{written.kind} in {path}, written by logsparse {written.version}",
            hint="update logsparse.",
        )
    kind: type[Forecaster] = getattr(import_module(_HOMES[written.kind]), written.kind)
    try:
        return kind.restored(written, **changed)
    except LogsparseError:
        raise
    except Exception as error:
        # Whatever a stranger wrote into a folder, what comes of it is a refusal.
        reason = str(error) if isinstance(error, UnfitError) else f"{type(error).__name__}: {error}"
        raise DataError(
            f"{path} must hold everything that a {written.kind} needs, as it was saved.",
            got=" ".join(reason.split())[:_LONGEST_REASON],
            hint="copy the folder again from where it came, or save the model again.",
        ) from error


def _as_path(path: Any) -> Path:
    return a_path("A model is loaded from the path of its folder.", path, hint='write load("model").')
