"""Results are recorded row by row, whole at every moment, and say what is still to be run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logsparse.errors import DataError
from logsparse.tasks.ledger import COLUMNS, Run, missing, record, rows

FACTS = {"R0.5": 0.123456789, "R0.9": 0.05, "validation_nll": 1.5, "steps": 7, "minutes": 2.0, "config": {"context": 3}}


def test_what_is_recorded_is_read_back_and_names_the_run(tmp_path: Path) -> None:
    run = Run("waves", "t0=24", "deepar-20", 3)
    record(tmp_path / "new", run, FACTS)
    (row,) = rows(tmp_path / "new", "waves")
    assert tuple(row) == COLUMNS
    assert [row[name] for name in ("task", "case", "model", "seed")] == ["waves", "t0=24", "deepar-20", "3"]
    assert [row[name] for name in ("R0.5", "steps", "config")] == ["0.123457", "7", '{"context": 3}']
    assert row["version"].startswith("logsparse ")
    assert all(row.values())
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["waves.csv"]


def test_only_what_is_not_recorded_is_still_to_be_run(tmp_path: Path) -> None:
    runs = [Run("waves", f"t0={t0}", "a", seed) for t0 in (24, 96) for seed in (0, 1)]
    assert missing(tmp_path, runs) == runs
    record(tmp_path, runs[1], FACTS)
    record(tmp_path, runs[2], FACTS)
    assert missing(tmp_path, runs) == [runs[0], runs[3]]
    assert len(rows(tmp_path, "waves")) == 2


def test_many_that_record_at_the_same_moment_lose_nothing(tmp_path: Path) -> None:
    runs = [Run("waves", f"t0={t0}", "a") for t0 in range(60)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda run: record(tmp_path, run, FACTS), runs))
    assert missing(tmp_path, runs) == []
    assert len(rows(tmp_path, "waves")) == 60


def test_a_last_line_without_an_end_is_ended_first(tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"), FACTS)
    path = tmp_path / "waves.csv"
    path.write_text(path.read_text().rstrip("\n"))
    record(tmp_path, Run("waves", "y", "a"), FACTS)
    assert [row["case"] for row in rows(tmp_path, "waves")] == ["x", "y"]


def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "waves.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"must hold whole rows of task, case, .* Got the columns a, b\."):
        record(tmp_path, Run("waves", "x", "a"), FACTS)
    assert (tmp_path / "waves.csv").read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_counts_as_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "waves.csv").write_text(content)
    assert rows(tmp_path, "waves") == []
    for case in "xy":
        record(tmp_path, Run("waves", case, "a"), FACTS)
    assert [row["case"] for row in rows(tmp_path, "waves")] == ["x", "y"]


def test_columns_in_another_order_are_refused_before_a_row_is_added(tmp_path: Path) -> None:
    path = tmp_path / "waves.csv"
    path.write_text(",".join(reversed(COLUMNS)) + "\n")
    with pytest.raises(DataError, match=r"Got the columns time, machine, "):
        record(tmp_path, Run("waves", "x", "a"), FACTS)
    assert path.read_text().count("\n") == 1


def test_a_row_that_was_cut_is_refused(tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"), FACTS)
    path = tmp_path / "waves.csv"
    path.write_text(path.read_text()[:-30])
    with pytest.raises(DataError, match="a row that was cut, or has more cells, number 1"):
        rows(tmp_path, "waves")


def test_a_run_that_is_recorded_is_not_recorded_again(tmp_path: Path) -> None:
    run = Run("waves", "x", "a")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda score: record(tmp_path, run, {**FACTS, "R0.5": score}), [0.1] * 20))
    assert (tmp_path / "waves.csv").read_text().count("\n") == 2


def test_a_run_that_an_older_version_recorded_twice_counts_once(tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"), FACTS)
    path = tmp_path / "waves.csv"
    line = path.read_text().splitlines()[1]
    path.write_text(path.read_text() + line.replace("0.123457", "0.5") + "\n")
    assert [row["R0.5"] for row in rows(tmp_path, "waves")] == ["0.123457"]


def test_a_model_of_points_that_is_not_trained_has_neither_r09_nor_loss(tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"), {**FACTS, "R0.9": None, "validation_nll": None})
    (row,) = rows(tmp_path, "waves")
    assert (row["R0.9"], row["validation_nll"]) == ("", "")


@pytest.mark.parametrize("facts", [{"R0.5": float("nan")}, {"R0.9": float("inf")}, {"R0.5": None}])
def test_scores_that_would_damage_the_table_are_not_recorded(facts: dict[str, float], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"must end with scores that are finite numbers\. Got R0\.5 .* of waves, x, a"):
        record(tmp_path, Run("waves", "x", "a"), {**FACTS, **facts})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_place_of_the_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "waves.csv").mkdir()
    with pytest.raises(DataError, match=r"must hold whole rows of .* Got what cannot be read \(Is a directory\)"):
        rows(tmp_path, "waves")


def test_a_row_of_another_task_is_refused(tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"), FACTS)
    (tmp_path / "waves.csv").rename(tmp_path / "tides.csv")
    with pytest.raises(DataError, match=r"must hold whole rows of .* Got a row of waves\. Hint: mend it"):
        rows(tmp_path, "tides")


def test_a_table_of_other_signs_is_refused(tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"), FACTS)
    path = tmp_path / "waves.csv"
    path.write_bytes(path.read_bytes().replace(b"waves,", b"\xff,"))
    with pytest.raises(DataError, match=r"Got what cannot be read \('utf-8'"):
        rows(tmp_path, "waves")


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        *((b"0.123457", score) for score in (b"abc", b"", b"nan", b"inf", b"-0.1")),
        *((b"0.05", score) for score in (b"nan", b"-1")),
        *((b"1.5", loss) for loss in (b"nan", b"-inf")),
        *((b"x,a,0", b"x,a," + seed) for seed in (b"x", b"00", b"1_0", b"-1", b" 1")),
    ],
)
def test_a_row_whose_figures_are_none_is_refused(was: bytes, becomes: bytes, tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"), FACTS)
    path = tmp_path / "waves.csv"
    path.write_bytes(path.read_bytes().replace(was, becomes))
    with pytest.raises(DataError, match="Got a score or seed that is no number from 0 on, of x, a"):
        rows(tmp_path, "waves")


@pytest.mark.parametrize("config", ["", "x", "[1]"])
def test_a_row_without_its_settings_is_refused(config: str, tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"), {**FACTS, "config": {}})
    path = tmp_path / "waves.csv"
    path.write_text(path.read_text().replace("{}", config))
    with pytest.raises(DataError, match="Got no settings in the column config, of x, a"):
        rows(tmp_path, "waves")


def test_checkpoints_of_different_runs_have_different_folders() -> None:
    runs = [Run("waves", case, model, seed) for case in ("t0=24", "t0=2") for model in ("a", "b") for seed in (0, 1)]
    assert len({run.folder for run in runs}) == len(runs)
