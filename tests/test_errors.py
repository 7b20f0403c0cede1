"""Errors keep their text on every way out of a process."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest

from logsparse.baselines.naive import SeasonalNaive
from logsparse.errors import ConfigError, DataError, LogsparseError, NotFittedError

ERRORS = [
    DataError("A rule.", got="b", hint="c."),
    ConfigError("A rule.", got="b", hint="c."),
    NotFittedError(SeasonalNaive(1)),
    DataError.unreadable("x.csv", "no such file"),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_an_error_can_be_pickled_and_copied(error: LogsparseError) -> None:
    error.add_note("seen")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert (type(again), str(again), again.__notes__) == (type(error), str(error), error.__notes__)


def test_an_error_survives_a_pool_of_processes() -> None:
    with ProcessPoolExecutor(1) as pool, pytest.raises(NotFittedError, match="SeasonalNaive must be fitted"):
        pool.submit(SeasonalNaive(1).predict).result()
