"""A name, or the folder of a saved model -> the forecaster. The one list of forecasters that there are."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logsparse.checks import a_path, suggest
from logsparse.errors import ConfigError, DataError, LogsparseError
from logsparse.forecast import Forecaster
from logsparse.storage import InvalidContentError

if TYPE_CHECKING:
    from logsparse.forecast import Forecaster

NAMES = {
    "arima": "logsparse.baselines.classical:AutoARIMA",
    "deepar": "logsparse.baselines.deepar:DeepAR",
    "deepstate": "logsparse.baselines.deepstate:DeepState",
    "ets": "logsparse.baselines.classical:AutoETS",
    "logsparse": "logsparse.forecaster:LogSparse",
    "seasonal-naive": "logsparse.baselines.naive:SeasonalNaive",
    "trmf": "logsparse.baselines.trmf:TRMF",
}


def named(name: str, horizon: int, **settings: Any) -> Forecaster:
    """A fresh forecaster by the name that the command line knows it by, with settings of its own."""
    if name not in NAMES:
        raise ConfigError(
            f"A model must be one of: {', '.join(NAMES)}.",
            got=repr(name),
            hint=suggest(name, NAMES, "or the path of a saved model's folder; check the spelling."),
        )
    module, _, attribute = NAMES[name].partition(":")
    forecaster: Forecaster = getattr(import_module(module), attribute)(horizon, **settings)
    return forecaster


_LONGEST_REASON = 300
_HOMES = {home.partition(":")[2]: home.partition(":")[0] for home in NAMES.values()}
# What folders of 0.1.0 call them.
_FORMER = {"AutoArima": "AutoARIMA", "AutoEts": "AutoETS", "Trmf": "TRMF"}


def load(path: str | Path, **changed: Any) -> Forecaster:
    """What `save` wrote, ready to forecast; settings such as device="cpu" or samples=500 may be changed on the way."""
    from logsparse.folder import read

    written = read(_as_path(path))
    name = _FORMER.get(written.kind, written.kind)
    if name not in _HOMES:
        raise DataError(
            f"A saved model must be of a kind that this logsparse knows: {', '.join(sorted(_HOMES))}.",
            got=f"{written.kind} in {path}, written by logsparse {written.version}",
            hint="update logsparse.",
        )
    kind: type[Forecaster] = getattr(import_module(_HOMES[name]), name)
    try:
        return kind.restored(written, **changed)
    except LogsparseError:
        raise
    except Exception as error:
        # Whatever a stranger wrote into a folder, what comes of it is a refusal.
        reason = str(error) if isinstance(error, InvalidContentError) else f"{type(error).__name__}: {error}"
        raise DataError(
            f"{path} must hold everything that a {written.kind} needs, as it was saved.",
            got=" ".join(reason.split())[:_LONGEST_REASON],
            hint="copy the folder again from where it came, or save the model again.",
        ) from error


def _as_path(path: Any) -> Path:
    return a_path("A model is loaded from the path of its folder.", path, hint='write load("model").')
