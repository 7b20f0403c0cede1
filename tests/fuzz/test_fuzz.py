"""A small number of hostile cases in every test run; `make fuzz` runs more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fuzz import __main__ as runner
from fuzz.__main__ import Task, main, results, tasks
from fuzz.case import Case
from logsparse.errors import DataError


def test_hostile_cases_are_accepted_with_the_right_values_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--number", "150", "--seed", "17"])
    assert status == 0, capsys.readouterr().out


def test_cases_come_from_each_generator_in_turn() -> None:
    assert tasks(["frames", "files"], 5, 3) == [Task("frames", 5), Task("files", 5), Task("frames", 6)]
    assert {"frames", "files"} <= set(runner.GENERATORS)


@pytest.mark.parametrize("generator", ["frames", "files"])
def test_a_seed_makes_the_same_cases_again(generator: str, tmp_path: Path) -> None:
    module = __import__(f"fuzz.{generator}", fromlist=["case"])
    labels = []
    for again in range(2):
        (tmp_path / str(again)).mkdir()
        cases = [module.case(np.random.default_rng([3, i]), _new(tmp_path / str(again) / str(i))) for i in range(20)]
        labels.append([case.kind for case in cases])
    assert labels[0] == labels[1]


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _wrong() -> None:
    raise AssertionError("2 for 1")


def _refused() -> None:
    raise DataError("A rule.", got="b", hint="c.")


def _broken() -> None:
    raise KeyError("x")


@pytest.mark.parametrize(
    ("act", "outcome"),
    [(lambda: None, "accepted"), (_refused, "refused"), (_wrong, "wrong"), (_broken, "traceback")],
)
def test_the_runner_tells_what_became_of_a_case(act: object, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("kind", "label", act)  # type: ignore[arg-type]
    monkeypatch.setattr("fuzz.frames.case", lambda rng, folder: case)  # noqa: ARG005
    assert runner.run_one(Task("frames", 0), 0)["outcome"] == outcome


def test_a_silent_child_is_a_hang_and_the_next_case_still_runs() -> None:
    # With a timeout of zero no case can finish, so both children are killed.
    outcomes = [result["outcome"] for _, result in results(tasks(["frames"], 0, 2), 0, 0.0)]
    assert outcomes == ["hang", "hang"]
