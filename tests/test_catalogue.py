"""Names may be spelled in several ways; every set has a source or a note."""

from __future__ import annotations

from datetime import timedelta

import pytest

from logsparse.data.calendar import Freq
from logsparse.errors import ConfigError
from logsparse.paper.catalogue import DATASETS, DataSet, named, step_in_words


@pytest.mark.parametrize("name", ["m4-hourly", "M4-Hourly", "m4_hourly", " m4-hourly "])
def test_a_name_may_be_written_in_many_ways(name: str) -> None:
    assert named(name).name == "m4-hourly"


def test_an_unknown_name_gets_a_suggestion() -> None:
    text = r"A data set must be one of: electricity-c, .*, etth1. Got 'trafic-c'. Hint: did you mean 'traffic-c'\?"
    with pytest.raises(ConfigError, match=text):
        named("trafic-c")
    with pytest.raises(ConfigError, match="Hint: `logsparse data list` shows all of them"):
        named("zzz")


@pytest.mark.parametrize("dataset", [entry for entry in DATASETS if entry.span], ids=lambda entry: entry.name)
def test_a_span_has_the_number_of_steps_of_the_catalogue(dataset: DataSet) -> None:
    step = timedelta(microseconds=Freq.parse(dataset.step).count)
    steps = (dataset.last - dataset.first) // step + 1
    # The paper counts the observed steps of traffic-c, and the calendar's of traffic-f.
    left_out = 0 if dataset.name == "traffic-f" else dataset.gaps
    assert steps - left_out == dataset.lengths[0]


def test_the_paper_s_sets_all_have_a_source() -> None:
    paper = [entry for entry in DATASETS if entry.paper]
    assert [entry.name for entry in paper if entry.source is None] == []
    assert len(paper) == 7
    assert [entry.name for entry in paper if entry.source and entry.source.login] == ["wind"]
    assert len({entry.file for entry in DATASETS}) == len(DATASETS)


def test_steps_are_written_as_in_the_paper() -> None:
    assert [step_in_words(step) for step in ("h", "15min", "20min", "d")] == ["1 hour", "15 mins", "20 mins", "1 day"]
