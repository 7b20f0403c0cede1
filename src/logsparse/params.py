"""Bases of every forecaster: parameters -> get_params, set_params, clone, repr; a folder -> `load`. Quantile levels.

`Diagnostics` is what a fitted forecaster shows of itself. `registry.load` finds the class of a folder, `Saved.load` is
that of one class. The content of a folder is read by folder.py, which imports torch: imported when needed.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from logsparse.errors import ConfigError, DataError, LogsparseError, a_path, shown, suggest, whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from logsparse.folder import ModelFolder

Levels = Sequence[float] | NDArray[np.floating[Any]]
LEVELS: Levels = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# Nearer to 0 or 1, the six digits of a column's name would not show the level, nor float32 hold its draws.
_OUTERMOST = 1e-6
# Class names that folders of 0.1.0 use.
_FORMER = {"AutoArima": "AutoARIMA", "AutoEts": "AutoETS", "Trmf": "TRMF"}
_LONGEST_REASON = 300


_UNSET = inspect.Parameter.empty


class Parameters:
    """Base of objects whose constructor stores each parameter under its own name and does nothing else."""

    _further: ClassVar[Mapping[str, Any]] = {}
    """Parameters that the constructor takes by `**`, with their defaults."""
    _optional: ClassVar[Sequence[str]] = ()
    """Further ones without a default: they are attributes only if they are given."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor by name.

        Parameters
        ----------
        deep
            For scikit-learn only: both values return the same. Members of an ensemble have `get_params` themselves.

        Returns
        -------
        dict
            The current value of each parameter.

        Examples
        --------
        >>> import logsparse as ls
        >>> ls.SeasonalNaive(horizon=24).get_params()
        {'horizon': 24, 'season': None}
        """
        del deep
        own = vars(self)
        given = {name: own[name] for name in self._optional if name in own}
        return {**{name: getattr(self, name) for name in _parameters(type(self), self._further)}, **given}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the constructor by name; they are checked when the forecaster is used.

        Parameters
        ----------
        **params
            New values by name.

        Returns
        -------
        Self
            The forecaster itself.

        Raises
        ------
        ConfigError
            If a name is not a parameter of the constructor.

        Examples
        --------
        >>> import logsparse as ls
        >>> ls.SeasonalNaive(horizon=24).set_params(season=168)
        SeasonalNaive(horizon=24, season=168)
        """
        for name in params:
            self._check_name(name)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def clone(self) -> Self:
        """Return an unfitted forecaster with copies of the same parameters.

        Returns
        -------
        Self
            A new object; nothing that was learned is copied.

        Examples
        --------
        >>> import logsparse as ls
        >>> ls.SeasonalNaive(horizon=24, season=168).clone()
        SeasonalNaive(horizon=24, season=168)
        """
        copies = {}
        for name, value in self.get_params().items():
            try:
                copies[name] = _copied(value)
            except TypeError as error:  # a generator or an open file
                raise ConfigError(
                    f"{name} must be a value that can be copied.", got=shown(value), hint="pass a number, text or list."
                ) from error
        return type(self)(**copies)

    def _check_name(self, name: str) -> None:
        """Raise ConfigError for a name that is not a parameter of the constructor."""
        known = _parameters(type(self), self._further)
        if name not in known and name not in self._optional:
            # The command has it as an option.
            named = "write config=logsparse.presets.named('solar')." if name == "preset" and "config" in known else ""
            more = f", and settings such as {', '.join(self._optional[:3])}" if self._optional else ""
            raise ConfigError(
                f"{type(self).__name__} has the parameters {', '.join(known)}{more}.",
                got=f"{name!r}",
                hint=named or suggest(name, [*known, *self._optional], "leave it out."),
            )

    def _learned(self) -> list[str]:
        """Return what was learned, a few words for each fact; nothing before `fit`."""
        return []

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={shown(value)}" for name, value in self._given().items())
        learned = ", ".join(self._learned())
        return f"{type(self).__name__}({given})" + (f" fitted: {learned}" if learned else "")

    def _repr_html_(self) -> str:
        """Return a table of parameters and of what was learned, for notebooks."""
        rows = {name: shown(value) for name, value in self._given().items()}
        rows["fitted"] = ", ".join(self._learned()) or "no"
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
        return f"<table><caption>{type(self).__name__}</caption>{cells}</table>"

    def _given(self) -> dict[str, Any]:
        """Return the parameters without a default, and those that differ from it."""
        usual = _parameters(type(self), self._further)
        return {name: value for name, value in self.get_params().items() if not same(value, usual.get(name, _UNSET))}


def _parameters(kind: type, further: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the constructor with their defaults; `**` is those of the parent class and further."""
    owner = next(cls for cls in kind.__mro__ if "__init__" in vars(cls))
    own = list(inspect.signature(vars(owner)["__init__"]).parameters.values())[1:]
    named = {one.name: one.default for one in own if one.kind is not one.VAR_KEYWORD}
    return named if len(named) == len(own) else {**_parameters(owner.__mro__[1], further), **named, **further}


def _copied(value: Any) -> Any:
    """Return a copy of the value of a parameter; of a list of forecasters, a list of clones."""
    if isinstance(value, (list, tuple)) and any(isinstance(entry, Parameters) for entry in value):
        return [entry.clone() if isinstance(entry, Parameters) else copy.deepcopy(entry) for entry in value]
    return copy.deepcopy(value)


def same(one: object, other: object) -> bool:
    """Return True if two values of a parameter are of one type and equal; arrays are compared as a whole."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other)
    return one is other or (type(one) is type(other) and bool(one == other))


def check_levels(levels: Levels) -> tuple[float, ...]:
    """Return the quantile levels in ascending order, each once; raise ConfigError for what is not a level."""
    try:
        rising = sorted({float(level) for level in levels})
    except (TypeError, ValueError, OverflowError):  # one number, or text, or a number of 400 digits
        rising = []
    if not rising or not all(0 < level < 1 for level in rising):
        raise ConfigError(
            "Quantiles must be a list of levels between 0 and 1, both excluded.",
            got=shown(levels),
            hint="write quantiles=[0.1, 0.5, 0.9].",
        )
    if rising[0] < _OUTERMOST or rising[-1] > 1 - _OUTERMOST:
        raise ConfigError(
            "Quantile levels must lie between 0.000001 and 0.999999.",
            got=f"{rising[0] if rising[0] < _OUTERMOST else rising[-1]!r}",
            hint="ask for a less extreme level, such as 0.001 or 0.999.",
        )
    for low, high in pairwise(rising):
        if f"{low:g}" == f"{high:g}":
            raise ConfigError(
                "Quantiles must differ in their first six digits, which name their columns.",
                got=f"{low!r} and {high!r}",
                hint="leave one of them out.",
            )
    return tuple(rising)


def steps_asked(asked: int | None, horizon: int) -> int:
    """Return how many steps of a forecast are asked for, at most the horizon of the model; None: all."""
    steps = horizon if asked is None else whole("horizon", asked, hint="count the steps to forecast.")
    if steps > horizon:
        raise ConfigError(
            f"A forecast has at most the {horizon} steps that the model was fitted for.",
            got=f"a horizon of {steps}",
            hint="fit a model with that horizon.",
        )
    return steps


@dataclass(frozen=True)
class Diagnostics:
    """Evidence for a report, as `Forecaster.diagnostics` returns it.

    Parameters
    ----------
    settings, losses, attention
        Settings by name; one row per validation (step, seconds, nll, validation_nll, validation_wql); a figure or None.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.SeasonalNaive(horizon=24).diagnostics().settings
    {'horizon': 24, 'season': None}
    """

    settings: dict[str, Any]
    losses: list[dict[str, float]] = field(default_factory=list)
    attention: Figure | None = None


class Saved(ABC):
    """Base of what a folder is read into: one class method, `load`."""

    @classmethod
    def load(cls, path: str | Path, **changed: Any) -> Self:
        """Load a forecaster of this class that `save` wrote, whether the class is registered or not.

        Parameters
        ----------
        path
            The folder.
        **changed
            Parameters to change; those of `changeable` only.

        Returns
        -------
        Self
            Ready to forecast.

        Raises
        ------
        ConfigError, DataError
            If a parameter cannot be changed, or the folder is damaged or not a model of this class.

        Examples
        --------
        >>> import tempfile
        >>> import polars as pl
        >>> import logsparse as ls
        >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ls.SeasonalNaive(horizon=3, season=7).fit(frame).save(f"{folder}/model")
        ...     ls.SeasonalNaive.load(f"{folder}/model")
        SeasonalNaive(horizon=3, season=7)
        """
        written = opened(path)
        if kind_of(written) != cls.__name__:
            raise DataError(
                f"{cls.__name__}.load reads a saved {cls.__name__}.",
                got=f"a {kind_of(written)} in {path}",
                hint="logsparse.load reads every kind that it knows.",
            )
        return built(cls, written, path, changed)

    @classmethod
    @abstractmethod
    def restored(cls, written: ModelFolder, **changed: Any) -> Self:
        """Return the forecaster that was saved, with some of its `changeable` parameters changed."""


Kind = TypeVar("Kind", bound=Saved)


def refuse_changes(what: str, free: Sequence[str], changed: Mapping[str, Any], fitted: Collection[str] = ()) -> None:
    """Raise ConfigError for a parameter that is not `free` to change on loading; `fitted`: those that `fit` used."""
    which = f"Only {', '.join(free)}" if free else "Nothing"
    for name, value in changed.items():
        if name not in free:
            raise ConfigError(
                f"{which} of {what} can be changed on loading.",
                got=f"{name}={shown(value)}",
                hint="fit again for another one." if name in fitted else suggest(name, free, "leave it out."),
            )


def altered(model: Kind, **settings: Any) -> Kind:
    """Return a copy that has these settings where it knows them, and so do its members; what was learned is shared."""
    twin = copy.copy(model)
    for name, value in settings.items():
        if hasattr(twin, name):
            setattr(twin, name, value)
    if (members := getattr(twin, "members_", None)) is not None:
        twin.members_ = {name: altered(member, **settings) for name, member in members.items()}  # type: ignore[attr-defined]
    return twin


def opened(path: str | Path) -> ModelFolder:
    """Return the content of a folder."""
    from logsparse.folder import read

    return read(a_path("A model is loaded from the path of its folder.", path, hint='write load("model").'))


def kind_of(written: ModelFolder) -> str:
    """Return the present name of the class that was saved."""
    return _FORMER.get(written.kind, written.kind)


def built(kind: type[Kind], written: ModelFolder, path: str | Path, changed: dict[str, Any]) -> Kind:
    """Return the forecaster; whatever is wrong with the content of a folder, the user sees one kind of error."""
    from logsparse.storage import InvalidContentError

    try:
        return kind.restored(written, **changed)
    except LogsparseError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, InvalidContentError) else f"{type(error).__name__}: {error}"
        raise DataError(
            f"{path} must hold everything that a {written.kind} needs, as it was saved.",
            got=" ".join(reason.split())[:_LONGEST_REASON],
            hint="copy the folder again from its source, or save the model again.",
        ) from error
