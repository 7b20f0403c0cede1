"""Errors keep their text when pickled, copied or raised in another process."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logsparse.baselines.naive import SeasonalNaive
from logsparse.errors import ConfigError, DataError, LogsparseError, NotFittedError, escaped, shown

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
    spawned = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    with spawned as pool, pytest.raises(NotFittedError, match="SeasonalNaive must be fitted"):
        pool.submit(SeasonalNaive(1).predict).result()


@given(st.text(st.characters(exclude_categories=[])))
def test_a_message_is_one_line_that_any_terminal_can_show(text: str) -> None:
    for shows in (escaped(text), str(DataError(text, got=text, hint=text)), DataError("A.", got=text, hint="b.").got):
        assert shows.isprintable()


@pytest.mark.parametrize(
    ("text", "shows"),
    [
        ("M\u00fcller \u5317\u4eac", "M\u00fcller \u5317\u4eac"),
        ("\x1b[2Ja\nb\r\x00", "\\x1b[2Ja\\nb\\r\\x00"),
        ("\ud800\u202e\x9b", "\\ud800\\u202e\\x9b"),
    ],
)
def test_control_characters_are_written_as_escapes_and_letters_stay(text: str, shows: str) -> None:
    assert escaped(text) == shows
    assert str(DataError("A rule.", got=text, hint="b.")) == f"A rule. Got {shows}. Hint: b."


def test_a_message_shows_both_ends_of_what_is_too_long() -> None:
    text = str(DataError("A rule.", got="first" + "x" * 10**6 + "last", hint="b."))
    assert text.startswith("A rule. Got firstxxx")
    assert text.endswith("xxxlast. Hint: b.")
    assert len(text) < 1100


def test_a_value_without_a_repr_can_be_shown() -> None:
    assert shown(10**5000) == "a whole number of about 5000 digits"
    assert shown("a\n") == "'a\\n'"
