"""Folder of a saved model -> forecaster of a given class; `registry.load` finds the class, `Forecaster.load` is one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from logsparse.errors import DataError, LogsparseError, a_path

if TYPE_CHECKING:
    from logsparse.folder import ModelFolder

# Class names that folders of 0.1.0 use.
_FORMER = {"AutoArima": "AutoARIMA", "AutoEts": "AutoETS", "Trmf": "TRMF"}
_LONGEST_REASON = 300


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
