"""`logsparse reproduce`: runs are recorded, go on where they stopped, and are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from command import logsparse, refusal
from logsparse.tasks import synthetic
from logsparse.tasks.ledger import record


def test_what_is_recorded_is_not_run_again_and_is_shown(tmp_path: Path) -> None:
    facts = {"R0.5": 0.0125, "R0.9": 0.006, "validation_nll": 1.0, "steps": 9, "minutes": 1.0, "config": {}}
    for run in synthetic.runs(models=["deepar-20"]):
        record(tmp_path, run, facts)
    done = logsparse("reproduce", "synthetic", "--model", "deepar-20", "-o", tmp_path)
    assert done.code == 0, done.err
    assert done.out.splitlines()[:3] == ["synthetic, R0.5", "t0   deepar-20", "24      0.0125"]
    assert "run 1" not in done.err
    assert (tmp_path / "synthetic.svg").exists()
    assert logsparse("reproduce", "--show", "-o", tmp_path).out == done.out


def test_nothing_recorded_is_said_so(tmp_path: Path) -> None:
    done = logsparse("reproduce", "--show", "-o", tmp_path)
    assert (done.code, done.out) == (0, "")
    assert "nothing is recorded" in done.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "An experiment must be one of: synthetic. Got none."),
        (["synthetik"], "did you mean 'synthetic'?"),
        (["synthetic", "--model", "deepar-30"], "did you mean 'deepar-"),
        (["synthetic", "--seeds", "0"], "seeds must be at least 1. Got 0."),
    ],
)
def test_a_mistake_is_one_line(words: list[str], text: str, tmp_path: Path) -> None:
    assert text in refusal("reproduce", *words, "-o", tmp_path)
