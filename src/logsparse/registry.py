"""Name, or folder of a saved model -> forecaster. The only list of forecasters: a new one gets a row here.

Classes of users join it by `register`. A folder names its class, and only classes on the list are used: nothing is
imported because a folder says so.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from logsparse.errors import ConfigError, DataError, suggest

if TYPE_CHECKING:
    from logsparse.forecast import Forecaster

Kind = TypeVar("Kind", bound="Forecaster")
NAMES = {
    "arima": "logsparse.baselines.classical:AutoARIMA",
    "deepar": "logsparse.baselines.recurrent:DeepAR",
    "deepstate": "logsparse.baselines.recurrent:DeepState",
    "ets": "logsparse.baselines.classical:AutoETS",
    "logsparse": "logsparse.forecaster:LogSparse",
    "seasonal-naive": "logsparse.baselines.naive:SeasonalNaive",
    "trmf": "logsparse.baselines.trmf:TRMF",
}
"""Name on the command line -> module and class, imported on first use; the class names the saved model."""
# Has no name of its own: several names joined by + are an ensemble.
_ENSEMBLE = "logsparse.ensemble:Ensemble"
_registered: dict[str, type[Forecaster]] = {}


def known_as(name: str) -> str | None:
    """Return the name in `NAMES` that is meant, in any case, or by its class; None if there is none."""
    meant = {key.lower(): known for known, entry in NAMES.items() for key in (known, entry.partition(":")[2])}
    return meant.get(name.lower())


def named(name: str, horizon: int, **settings: Any) -> Forecaster:
    """Return an unfitted forecaster by its name on the command line, or by its registered class."""
    known = known_as(name)
    if known is None and name in _registered:
        return _registered[name](horizon, **settings)
    if known is None:
        raise ConfigError(
            f"A model must be one of: {', '.join(NAMES)}.",
            got=repr(name),
            hint=suggest(name.lower(), NAMES, "or the path of a saved model's folder; check the spelling."),
        )
    return class_of(known)(horizon, **settings)


def class_of(name: str) -> type[Forecaster]:
    """Return the class of a name in `NAMES`."""
    return _imported(NAMES[name])


def _imported(entry: str) -> type[Forecaster]:
    module, _, attribute = entry.partition(":")
    kind: type[Forecaster] = getattr(import_module(module), attribute)
    return kind


def _classes() -> dict[str, str]:
    """Return module and class of each forecaster of logsparse, by the name of its class."""
    return {entry.partition(":")[2]: entry for entry in (*NAMES.values(), _ENSEMBLE)}


def class_saved_as(kind: str) -> type[Forecaster] | None:
    """Return the class that a folder names, one of logsparse or a registered one; None if it is neither."""
    classes = _classes()
    return _imported(classes[kind]) if kind in classes else _registered.get(kind)


def register(kind: type[Kind]) -> type[Kind]:
    """Let `logsparse.load` know a forecaster of your own, by the name of its class.

    Parameters
    ----------
    kind
        A subclass of Forecaster. A class of the same name from the same module is replaced, as when a cell of a
        notebook is run again.

    Returns
    -------
    type
        The class itself, so that this is a decorator too.

    Raises
    ------
    ConfigError
        If it is not a subclass of Forecaster, or the name is that of another class.

    Examples
    --------
    >>> import logsparse as ls
    >>> @ls.register
    ... class Weekly(ls.SeasonalNaive):
    ...     pass
    """
    from logsparse.forecast import Forecaster

    if not isinstance(kind, type) or not issubclass(kind, Forecaster):
        raise ConfigError("A subclass of Forecaster is registered.", got=repr(kind), hint="write register(MyModel).")
    name = kind.__name__
    former = _registered.get(name)
    taken = name in _classes()
    if taken or (former is not None and former.__module__ != kind.__module__):
        raise ConfigError(
            "A registered class must have a name of its own.",
            got=f"{kind.__module__}.{name}, a name of {'logsparse' if former is None else former.__module__}",
            hint="rename the class.",
        )
    _registered[name] = kind
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
    from logsparse.params import built, kind_of, opened

    written = opened(path)
    name = kind_of(written)
    kind = class_saved_as(name)
    if kind is None:
        raise DataError(
            f"A saved model must be of a kind that this logsparse knows: {', '.join(known_kinds())}.",
            got=f"{written.kind} in {path}, written by logsparse {written.version}",
            hint=f"if it is a class of your own, call {name}.load(path), or logsparse.register({name}) first; "
            "else update logsparse.",
        )
    return built(kind, written, path, changed)


def known_kinds() -> list[str]:
    """Return the names of all classes that a folder may name."""
    return sorted({*_classes(), *_registered})
