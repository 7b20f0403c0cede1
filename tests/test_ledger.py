"""Results are recorded row by row, atomically; the ledger says which runs are missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logsparse.config import Config
from logsparse.errors import DataError
from logsparse.paper import ledger
from logsparse.paper.ledger import COLUMNS, Identity, Row, Run, counted, missing, rows, trials, unfinished

FACTS = {"R0.5": 0.123456789, "R0.9": 0.05, "validation_nll": 1.5, "steps": 7, "minutes": 2.0}
KNOWN = Identity({"context": 3, "train": {"lr": 0.001, "epochs": 20}}, "abc")


def record(folder: Path, run: Run, facts: dict[str, Any] = FACTS, identity: Identity = KNOWN) -> None:
    ledger.record(folder, run, identity, facts)


def todo(folder: Path, runs: Sequence[Run], identity: Identity = KNOWN) -> list[Run]:
    return missing(folder, dict.fromkeys(runs, identity))


def earlier(folder: Path, run: Run, facts: dict[str, Any] = FACTS) -> Row:
    """A row from before runs had a fingerprint of their data."""
    record(folder, run, facts)
    path = folder / f"{run.task}.csv"
    path.write_text(path.read_text().replace(",abc,", ",,"))
    return rows(folder, run.task)[-1]


def test_what_is_recorded_is_read_back_and_names_the_run(tmp_path: Path) -> None:
    run = Run("waves", "t0=24", "deepar-20", 3)
    record(tmp_path / "new", run)
    (row,) = rows(tmp_path / "new", "waves")
    assert tuple(row) == COLUMNS
    assert [row[name] for name in ("task", "case", "model", "seed")] == ["waves", "t0=24", "deepar-20", "3"]
    assert [row[name] for name in ("R0.5", "steps", "config")] == [
        *("0.123457", "7", '{"context": 3, "train": {"epochs": 20, "lr": 0.001}}'),
    ]
    assert (row["budget"], row["data"]) == ("none", "abc")
    assert row["version"].startswith("logsparse ")
    assert all(row.values())
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["waves.csv"]


def test_only_what_is_not_recorded_is_still_to_be_run(tmp_path: Path) -> None:
    runs = [Run("waves", f"t0={t0}", "a", seed) for t0 in (24, 96) for seed in (0, 1)]
    assert todo(tmp_path, runs) == runs
    record(tmp_path, runs[1])
    record(tmp_path, runs[2])
    assert todo(tmp_path, runs) == [runs[0], runs[3]]
    assert len(rows(tmp_path, "waves")) == 2


def test_many_that_record_at_the_same_moment_lose_nothing(tmp_path: Path) -> None:
    runs = [Run("waves", f"t0={t0}", "a") for t0 in range(60)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda run: record(tmp_path, run), runs))
    assert todo(tmp_path, runs) == []
    assert len(rows(tmp_path, "waves")) == 60


def test_a_last_line_without_an_end_is_ended_first(tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"))
    path = tmp_path / "waves.csv"
    path.write_text(path.read_text().rstrip("\n"))
    record(tmp_path, Run("waves", "y", "a"))
    assert [row["case"] for row in rows(tmp_path, "waves")] == ["x", "y"]


def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "waves.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"must hold complete rows of task, case, .* Got the columns a, b\."):
        record(tmp_path, Run("waves", "x", "a"))
    assert (tmp_path / "waves.csv").read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_counts_as_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "waves.csv").write_text(content)
    assert rows(tmp_path, "waves") == []
    for case in "xy":
        record(tmp_path, Run("waves", case, "a"))
    assert [row["case"] for row in rows(tmp_path, "waves")] == ["x", "y"]


def test_columns_in_another_order_are_refused_before_a_row_is_added(tmp_path: Path) -> None:
    path = tmp_path / "waves.csv"
    path.write_text(",".join(reversed(COLUMNS)) + "\n")
    with pytest.raises(DataError, match=r"Got the columns time, machine, "):
        record(tmp_path, Run("waves", "x", "a"))
    assert path.read_text().count("\n") == 1


def test_a_row_that_was_cut_is_refused(tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"))
    path = tmp_path / "waves.csv"
    path.write_text(path.read_text()[:-30])
    with pytest.raises(DataError, match="too few or too many cells in row 1"):
        rows(tmp_path, "waves")


def test_a_run_that_is_recorded_is_not_recorded_again(tmp_path: Path) -> None:
    run = Run("waves", "x", "a")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda score: record(tmp_path, run, {**FACTS, "R0.5": score}), [0.1] * 20))
    assert (tmp_path / "waves.csv").read_text().count("\n") == 2


def test_a_run_that_an_older_version_recorded_twice_counts_once(tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"))
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
    with pytest.raises(DataError, match=r"scores of a run must be finite numbers\. Got R0\.5 .* of waves, x, a"):
        record(tmp_path, Run("waves", "x", "a"), {**FACTS, **facts})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_place_of_the_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "waves.csv").mkdir()
    with pytest.raises(
        DataError, match=r"must hold complete rows of .* Got content that cannot be read \(Is a directory\)"
    ):
        rows(tmp_path, "waves")


def test_a_row_of_another_task_is_refused(tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"))
    (tmp_path / "waves.csv").rename(tmp_path / "tides.csv")
    with pytest.raises(DataError, match=r"must hold complete rows of .* Got a row of waves\. Hint: repair it"):
        rows(tmp_path, "tides")


def test_a_table_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"))
    path = tmp_path / "waves.csv"
    path.write_bytes(path.read_bytes().replace(b"waves,", b"\xff,"))
    with pytest.raises(DataError, match=r"Got content that cannot be read \('utf-8'"):
        rows(tmp_path, "waves")


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        *((b"0.123457", score) for score in (b"abc", b"", b"nan", b"inf", b"-0.1")),
        *((b"0.05", score) for score in (b"nan", b"-1")),
        *((b"1.5", loss) for loss in (b"nan", b"-inf")),
        *((b"x,a,0", b"x,a," + seed) for seed in (b"x", b"00", b"1_0", b"-1", b" 1")),
        *((b",7,", b"," + steps + b",") for steps in (b"x", b"1.5", b"-1")),
        *((b"0,none", b"0," + budget) for budget in (b"", b"0", b"-1", b"nan", b"25.0", b"x")),
    ],
)
def test_a_row_whose_numbers_do_not_parse_is_refused(was: bytes, becomes: bytes, tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"))
    path = tmp_path / "waves.csv"
    path.write_bytes(path.read_bytes().replace(was, becomes))
    with pytest.raises(
        DataError, match="Got a score, seed, budget or number of steps that is not a non-negative number, for x, a"
    ):
        rows(tmp_path, "waves")


@pytest.mark.parametrize(
    "config", ["", "x", "[1]", '{""train"": 5}', '{""train"": {""batch"": ""x""}}', '{""model"": 1}']
)
def test_a_row_without_its_settings_is_refused(config: str, tmp_path: Path) -> None:
    record(tmp_path, Run("waves", "x", "a"), identity=Identity({}, "abc"))
    path = tmp_path / "waves.csv"
    path.write_text(path.read_text().replace("{}", config))
    with pytest.raises(DataError, match="Got no settings of its model in the column config, for x, a"):
        rows(tmp_path, "waves")


def test_checkpoints_of_different_runs_have_different_folders() -> None:
    runs = [Run("waves", case, model, seed) for case in ("t0=24", "t0=2") for model in ("a", "b") for seed in (0, 1)]
    assert len({run.folder for run in runs}) == len(runs)


def test_a_run_under_a_budget_is_a_trial_and_the_finished_one_is_still_to_be_run(tmp_path: Path) -> None:
    trial, run = Run("waves", "x", "a", budget=25), Run("waves", "x", "a")
    record(tmp_path, trial)
    assert todo(tmp_path, [run, trial]) == [run]
    found = rows(tmp_path, "waves")
    assert (counted(found), trials(found)) == ([], found)
    record(tmp_path, run, {**FACTS, "R0.5": 0.5})
    found = rows(tmp_path, "waves")
    assert [row["R0.5"] for row in counted(found)] == ["0.5"]
    assert [(row["R0.5"], row["budget"]) for row in trials(found)] == [("0.123457", "25")]
    assert todo(tmp_path, [run, trial]) == []


def test_trials_of_other_budgets_are_other_runs_and_may_stand_beside_each_other(tmp_path: Path) -> None:
    runs = [Run("waves", "x", "a", budget=budget) for budget in (5, 25.5, 25.5000001)]
    for run in runs:
        record(tmp_path, run)
    assert [row["budget"] for row in rows(tmp_path, "waves")] == ["5", "25.5", "25.5000001"]
    assert todo(tmp_path, runs) == []
    assert len({run.folder for run in (*runs, Run("waves", "x", "a"))}) == 4


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (
            Identity({"context": 4, "train": {"lr": 0.001, "epochs": 20}}, "abc"),
            "context 4, and 3 in the row of seed 0",
        ),
        (Identity({"context": 3, "train": {"lr": 0.002, "epochs": 20}}, "abc"), r"train\.lr 0\.002, and 0\.001 in"),
        (Identity({"context": 3, "train": {"lr": 0.001}}, "abc"), r"train\.epochs unknown, and 20 in"),
        (Identity(KNOWN.config, "abd"), "data abd, and abc in"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_with_other_settings_or_data_than_its_cell_is_refused_by_the_field(
    other: Identity, field: str, seed: int, tmp_path: Path
) -> None:
    record(tmp_path, Run("waves", "x", "a"))
    text = (
        rf"waves, x, a, seed {seed} must have the config and data .* in .*waves.csv\. Got {field}.* Hint: .*-o FOLDER"
    )
    with pytest.raises(DataError, match=text):
        todo(tmp_path, [Run("waves", "x", "a", seed)], other)
    with pytest.raises(DataError, match=text):
        record(tmp_path, Run("waves", "x", "a", seed), identity=other)
    assert todo(tmp_path, [Run("waves", "y", "a", seed)], other)
    assert len(rows(tmp_path, "waves")) == 1


@pytest.mark.parametrize(
    ("was", "becomes", "field"), [("0.001", "0.5", r"train\.lr 0\.5"), (",abc,", ",abd,", "data abd")]
)
def test_a_table_whose_seeds_differ_in_more_than_the_seed_is_refused_by_the_field(
    was: str, becomes: str, field: str, tmp_path: Path
) -> None:
    for seed in (0, 1):
        record(tmp_path, Run("waves", "x", "a", seed))
    path = tmp_path / "waves.csv"
    head, first, second = path.read_text().splitlines()
    path.write_text("\n".join([head, first, second.replace(was, becomes)]))
    with pytest.raises(
        DataError,
        match=rf"waves, x, a, seed 1 must have the config and data .* Got {field}, and .* in the row of seed 0",
    ):
        rows(tmp_path, "waves")


def test_a_setting_that_an_earlier_version_did_not_have_counts_as_its_default(tmp_path: Path) -> None:
    settings = Config(context=168, horizon=24).to_dict()
    without = {name: value for name, value in settings["model"].items() if name != "hidden_history"}
    record(tmp_path, Run("waves", "x", "a", 0), identity=Identity({**settings, "model": without}, "abc"))
    record(tmp_path, Run("waves", "x", "a", 1), identity=Identity(settings, "abc"))
    assert [row["seed"] for row in rows(tmp_path, "waves")] == ["0", "1"]
    other = {**settings, "model": {**without, "hidden_history": 0.5}}
    with pytest.raises(DataError, match=r"Got model\.hidden_history 0\.5, and 0\.0 in the row of seed 0"):
        todo(tmp_path, [Run("waves", "x", "a", 2)], Identity(other, "abc"))


VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, "a", [1, 2], []])
CONFIGS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), VALUES | inner, max_size=3),
    max_leaves=4,
)


@given(one=CONFIGS, other=CONFIGS)
def test_two_seeds_stand_in_one_cell_if_and_only_if_their_configs_are_the_same(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    with TemporaryDirectory() as name:
        folder, again = Path(name), Run("waves", "x", "a", 1)
        record(folder, Run("waves", "x", "a"), identity=Identity(one, "abc"))
        # The order of the settings says nothing.
        turned = json.loads(json.dumps(dict(reversed(one.items()))))
        assert todo(folder, [again], Identity(turned, "abc")) == [again]
        if json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True):
            record(folder, again, identity=Identity(other, "abc"))
            assert len(rows(folder, "waves")) == 2
        else:
            with pytest.raises(
                DataError, match=r"must have the config and data .* Got .*, and .* in the row of seed 0"
            ):
                record(folder, again, identity=Identity(other, "abc"))


def test_an_earlier_row_without_its_data_is_shown_until_its_run_is_finished(tmp_path: Path) -> None:
    run = Run("waves", "x", "a")
    old = earlier(tmp_path, run)
    other = Identity({"context": 9}, "xyz")
    assert counted(rows(tmp_path, "waves")) == [old]
    assert todo(tmp_path, [run], other) == unfinished(tmp_path, [run]) == [run]
    record(tmp_path, run, {**FACTS, "R0.5": 0.5}, other)
    assert [row["R0.5"] for row in counted(rows(tmp_path, "waves"))] == ["0.5"]
    assert len(rows(tmp_path, "waves")) == 2
    assert todo(tmp_path, [run], other) == unfinished(tmp_path, [run]) == []


def test_an_earlier_row_of_another_seed_is_not_counted_beside_a_finished_one(tmp_path: Path) -> None:
    earlier(tmp_path, Run("waves", "x", "a", 1))
    record(tmp_path, Run("waves", "x", "a", 0))
    assert [row["seed"] for row in counted(rows(tmp_path, "waves"))] == ["0"]


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "results").glob("*.csv")), ids=lambda path: path.stem
)
def test_the_committed_rows_of_limited_minutes_are_trials(path: Path) -> None:
    found = rows(path.parent, path.stem)
    for row in found:
        limit = json.loads(row["config"]).get("train", {}).get("minutes")
        assert (row in trials(found)) == (limit is not None), row["case"]
    if path.stem == "granularities":
        assert {(row["model"], row["budget"]) for row in trials(found)} == {("paper", "25")}
