"""Name, or folder of a saved model -> forecaster. The only list of forecasters: a new one gets a row here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logsparse.errors import ConfigError, DataError, LogsparseError, a_path, suggest

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
"""Name on the command line -> module and class, imported on first use; the class names the saved model."""
# Class names that folders of 0.1.0 use.
_FORMER = {"AutoArima": "AutoARIMA", "AutoEts": "AutoETS", "Trmf": "TRMF"}
_LONGEST_REASON = 300


def known_as(name: str) -> str | None:
    """Return the name in `NAMES` that is meant, in any case, or by its class; None if there is none."""
    meant = {key.lower(): known for known, entry in NAMES.items() for key in (known, entry.partition(":")[2])}
    return meant.get(name.lower())


def named(name: str, horizon: int, **settings: Any) -> Forecaster:
    """Return an unfitted forecaster by its name on the command line, with the given parameters."""
    known = known_as(name)
    if known is None:
        raise ConfigError(
            f"A model must be one of: {', '.join(NAMES)}.",
            got=repr(name),
            hint=suggest(name.lower(), NAMES, "or the path of a saved model's folder; check the spelling."),
        )
    return class_of(known)(horizon, **settings)


def class_of(name: str) -> type[Forecaster]:
    """Return the class of a name in `NAMES`."""
    module, _, attribute = NAMES[name].partition(":")
    kind: type[Forecaster] = getattr(import_module(module), attribute)
    return kind


def load(path: str | Path, **changed: Any) -> Forecaster:
    """Load a forecaster that `save` wrote, ready to forecast.

    Parameters
    ----------
    path
        The folder.
    **changed
        Parameters to change, such as device="cpu", samples=500 or method="direct"; those of `changeable` only.

    Returns
    -------
    Forecaster
        Of the class that was saved.

    Raises
    ------
    ConfigError, DataError
        If a parameter cannot be changed, or the folder is damaged or not a model.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ls.SeasonalNaive(horizon=3, season=7).fit(frame).save(f"{folder}/model")
    ...     ls.load(f"{folder}/model").predict()["mean"].to_list()
    [0.0, 1.0, 2.0]
    """
    from logsparse.folder import read
    from logsparse.storage import InvalidContentError

    written = read(a_path("A model is loaded from the path of its folder.", path, hint='write load("model").'))
    classes = {entry.partition(":")[2]: name for name, entry in NAMES.items()}
    name = classes.get(_FORMER.get(written.kind, written.kind))
    if name is None:
        raise DataError(
            f"A saved model must be of a kind that this logsparse knows: {', '.join(sorted(classes))}.",
            got=f"{written.kind} in {path}, written by logsparse {written.version}",
            hint="update logsparse.",
        )
    try:
        return class_of(name).restored(written, **changed)
    except LogsparseError:
        raise
    except Exception as error:
        # Whatever is wrong with the content of a folder, the user sees one kind of error.
        reason = str(error) if isinstance(error, InvalidContentError) else f"{type(error).__name__}: {error}"
        raise DataError(
            f"{path} must hold everything that a {written.kind} needs, as it was saved.",
            got=" ".join(reason.split())[:_LONGEST_REASON],
            hint="copy the folder again from its source, or save the model again.",
        ) from error
