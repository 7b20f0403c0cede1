"""`logsparse data`: list, get, check against the paper, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from logsparse.paper.commands import app
from original_files import laid
from small_sets import HOURLY, emptied


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return emptied(tmp_path / "kept", monkeypatch)


def run(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def lines_of(output: str, name: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.startswith(f"{name} ")]


def test_the_list_shows_the_paper_s_table_and_what_is_here(kept: Path, tmp_path: Path) -> None:
    assert lines_of(run("list"), "electricity-f")[0][1:6] == ["129120", "370", "15", "mins", "-"]
    run("get", "m4-hourly", "--from", laid(tmp_path / "m4", HOURLY))
    assert lines_of(run("list"), "m4-hourly")[0][5] == "here"
    assert "wind generation, by country (login: --from only)" in run("list")
    assert f"folder: {kept}" in run("list")


def test_get_prints_the_path_and_check_agrees(kept: Path, tmp_path: Path) -> None:
    assert run("get", "M4-Hourly", "--from", laid(tmp_path / "m4", HOURLY)) == f"{kept / 'm4_hourly.parquet'}\n"
    output = run("check", "m4-hourly")
    assert output.startswith("m4-hourly: agrees with the paper's table\n")
    assert ["T", "100/120", "100/120"] in [line.split() for line in output.splitlines()]
    assert "missing values 0" in output
    assert "exists already" in run("get", "m4-hourly")


def test_a_set_that_differs_is_reported_with_exit_code_1(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("get", "m4-hourly", "--from", laid(tmp_path / "m4", HOURLY))
    monkeypatch.undo()  # the true catalogue again
    monkeypatch.setenv("LOGSPARSE_DATA", str(kept))
    output = run("check", "m4-hourly", code=1)
    assert output.startswith("m4-hourly: DIFFERS\n")
    rows = [line.split() for line in output.splitlines()]
    assert ["T", "748/1008", "100/120", "differs"] in rows
    assert ["M", "414", "2", "differs"] in rows
    assert ["S", "1", "hour", "1", "hour"] in rows
    everything = run("check", code=1)
    assert "m4-hourly: DIFFERS" in everything
    assert "electricity-c: not here" in everything


def test_a_file_that_cannot_be_read_costs_no_other_set(kept: Path, tmp_path: Path) -> None:
    run("get", "m4-hourly", "--from", laid(tmp_path / "m4", HOURLY))
    (kept / "etth1.parquet").write_bytes(b"")
    output = run("check", code=1)
    assert f"etth1: CANNOT BE READ\n  {kept / 'etth1.parquet'} must hold the data set etth1." in output
    assert "m4-hourly: agrees with the paper's table" in output
    assert "electricity-c: not here" in output


def test_the_shared_sets_agree(shared_data: Path) -> None:
    assert shared_data
    output = run("check")
    assert "solar: agrees with the paper's table" in output
    assert "solar-10min: as it was made (no set of the paper)" in output
    assert "DIFFERS" not in output


def test_errors_are_one_line_with_exit_code_2(tmp_path: Path) -> None:
    for words, said in (
        (["check", "solr"], "did you mean 'solar'?"),
        (["get", "solar", "--from", "nowhere"], "nowhere: no such file"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "logsparse", "data", *words],
            env={"LOGSPARSE_DATA": str(tmp_path), "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
        assert said in done.stderr


def test_the_command_s_help_needs_neither_polars_nor_numpy() -> None:
    heavy = {"polars", "numpy", "torch"}
    program = f"import sys, logsparse.paper.commands; sys.exit(not {heavy}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
