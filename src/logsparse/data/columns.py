"""What a frame's columns are called and mean; each name a user gives is checked here. The only place that says them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypedDict, cast

from logsparse.checks import keywords, listed
from logsparse.data.calendar import Step
from logsparse.errors import ConfigError, DataError

ID, TIME, TARGET, CUTOFF = "unique_id", "ds", "y", "cutoff"
# What a backtest adds so that its frame can be judged alone: a point forecast to compare with, and the unit of MASE.
NAIVE, SCALE = "seasonal_naive", "seasonal_error"
# Stands behind the name of a column that came a second time: pandas and pyarrow allow it, polars does not.
_AGAIN = "\0again"


class Columns(TypedDict, total=False):
    """What a frame's columns mean; every entry can be left out."""

    id_col: str | int
    time_col: str | int
    target_col: str | int
    freq: Step | None
    covariates: Iterable[str] | None
    static: Iterable[str] | None


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The same, with the usual names filled in."""

    id_col: str = ID
    time_col: str = TIME
    target_col: str = TARGET
    freq: Step | None = None
    covariates: list[str] = field(default_factory=list)
    static: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, columns: Columns) -> Meaning:
        """A pandas frame may name its columns by numbers: inside, every name is text."""
        keywords(columns, Columns.__annotations__)
        self = cls(
            id_col=str(columns.get("id_col", ID)),
            time_col=str(columns.get("time_col", TIME)),
            target_col=str(columns.get("target_col", TARGET)),
            freq=columns.get("freq"),
            covariates=listed("covariates", columns.get("covariates")),
            static=listed("static", columns.get("static")),
        )
        taken: dict[str, str] = {}
        for use, names in self._uses().items():
            for name in names:
                if taken.setdefault(name, use) != use:
                    raise ConfigError(
                        "A column must have one meaning.",
                        got=f"{name!r} as {taken[name]} and as {use}",
                        hint="leave out one of the two.",
                    )
        return self

    def _uses(self) -> dict[str, list[str]]:
        alone = {"id_col": [self.id_col], "time_col": [self.time_col], "target_col": [self.target_col]}
        return {**alone, "covariates": self.covariates, "static": self.static}

    @property
    def used(self) -> list[str]:
        """Every column of a long table that is read."""
        return list(dict.fromkeys(chain(*self._uses().values())))


def as_given(columns: Columns) -> Columns:
    """What was given, checked, as plain text and lists: it is read more than once, and saved with a model."""
    checked = Meaning.of(columns)
    return cast("Columns", {name: getattr(checked, name) for name in columns})


def names_once(names: Iterable[object]) -> list[str]:
    """Names as text, the second of two equal ones marked, so that a table can hold them all."""
    found: dict[str, None] = {}
    for name in map(str, names):
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise DataError("Column names must be valid Unicode.", got=f"{name!r}", hint="rename that column.")
        unique = name
        while unique in found:
            unique += _AGAIN
        found[unique] = None
    return list(found)


def refuse_doubles(found: Iterable[str], used: Iterable[str]) -> None:
    """A column that is read must be there once; others may come as often as they like."""
    wanted = set(used)
    for name in found:
        if name.endswith(_AGAIN) and (plain := name.split(_AGAIN)[0]) in wanted:
            raise DataError(
                f"The column {plain!r} must be there once.",
                got="two columns of that name",
                hint="drop or rename one of them.",
            )


def require(found: Sequence[str], names: Sequence[str]) -> None:
    """All these columns, each once."""
    refuse_doubles(found, names)
    found = [name for name in found if _AGAIN not in name]
    missing = [name for name in names if name not in found]
    if not missing:
        return
    alike = {name: difflib.get_close_matches(name, found, n=1, cutoff=0.5) for name in missing}
    meant = [f"{name!r} may be {near[0]!r}" for name, near in alike.items() if near]
    raise DataError(
        f"A frame must have the columns {', '.join(names)}, or be wide: a time column and one number column a series.",
        got=f"no {', '.join(missing)} among {', '.join(found[:12])}",
        hint="; ".join([*meant, "name your columns with id_col=, time_col=, target_col=."]),
    )
