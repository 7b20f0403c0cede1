"""The command: fast help, tables and files as output, one line and exit code 2 for an error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import polars as pl
import pytest

from command import refusal
from logsparse import cli


def logsparse(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logsparse", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture
def data(hourly: pl.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "hourly.csv"
    hourly.write_csv(path)
    return path


@pytest.mark.parametrize(
    ("command", "default"),
    [
        ("fit", "[that of the preset]"),
        ("fit", "[inferred]"),
        ("reproduce", "[all epochs]"),
        ("predict", "[0.1 to 0.9]"),
    ],
)
def test_help_names_defaults(command: str, default: str) -> None:
    assert default in " ".join(logsparse(command, "--help").stdout.split())


@pytest.mark.parametrize("command", cli.EXAMPLES)
def test_the_help_of_a_command_ends_with_an_example_on_one_line(command: Callable[..., None]) -> None:
    name = command.__name__
    assert logsparse(name, "--help").stdout.splitlines()[-1].startswith(f"  Example: logsparse {name} ")


def test_help_loads_neither_torch_nor_polars_nor_matplotlib() -> None:
    probe = (
        "import sys; from logsparse.cli import app; "
        "app(['--help'], standalone_mode=False); "
        "print([m for m in ('torch', 'polars', 'numpy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    assert "backtest" in done.stdout


def test_check_prints_what_was_recognised(data: Path) -> None:
    done = logsparse("check", data)
    assert done.returncode == 0
    for part in ("long: one row per series", "2 (b, a)", "h (season 24)", "2024-01-01", "96 to 168", "264"):
        assert part in done.stdout


def test_backtest_writes_its_results_and_score_reads_them(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "results.parquet"
    done = logsparse("backtest", "seasonal-naive", data, "--horizon", "24", "--windows", "2", "-o", out)
    assert done.returncode == 0, done.stderr
    assert "R0.5" in done.stdout
    assert pl.read_parquet(out).height == 96
    assert logsparse("score", out).stdout == done.stdout
    by_step = tmp_path / "steps.csv"
    assert "unique_id" not in logsparse("score", out, "--by", "step", "-o", by_step).stdout
    assert pl.read_csv(by_step).height == 24
    assert sorted(p.name for p in out.parent.iterdir()) == ["results.parquet"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "nowhere.csv"], "nowhere.csv: no such file"),
        (["backtest", "seasonal-naiv", "x.csv", "--horizon", "2"], "did you mean 'seasonal-naive'?"),
        (["backtest", "seasonal-naive", "x.csv"], "A model that is fitted here needs --horizon."),
        (["check"], "Missing argument 'DATA'. Hint: see `logsparse check --help`."),
        (["chekc", "x.csv"], "No such command 'chekc'. Hint: did you mean 'check'?"),
        (
            ["backtest", "seasonal-naive", "x.csv", "--horizn", "2"],
            "No such option: --horizn. Hint: did you mean '--horizon'?",
        ),
        (["check", "x.csv", "--qqqq"], "No such option: --qqqq. Hint: see `logsparse check --help`."),
        (["score", "x.txt2"], "no such file"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(words: list[str], message: str, tmp_path: Path) -> None:
    done = logsparse(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_escape_sequences_never_reach_the_terminal(tmp_path: Path) -> None:
    rows = "".join(f'"{name}",{step},1\n' for name in ("\x1b[2Jred", "two\nlines", "\u202eback") for step in (1, 2, 4))
    (tmp_path / "x.csv").write_text(f"unique_id,ds,y\n{rows}")
    results = tmp_path / "\x1b[31mresults.parquet"
    for words in (
        ["check", tmp_path / "x.csv"],
        ["check", tmp_path / "\x1b[2J.csv"],
        ["\x1b[2J"],
        ["check", tmp_path / "x.csv", "--\x1b[2J"],
        ["backtest", "seasonal-naive", tmp_path / "x.csv", "--horizon", "1", "--season", "1", "-o", results],
        ["score", results, "--by", "unique_id"],
        ["report", results, "-o", tmp_path / "\x1b[2J.html"],
    ):
        done = logsparse(*words)
        for line in (done.stdout + done.stderr).splitlines():
            assert line.isprintable(), line
        assert "Traceback" not in done.stderr
    assert "\\x1b[2Jred" in logsparse("score", results, "--by", "unique_id").stdout


@pytest.mark.parametrize("words", [[], ["data"]])
def test_no_arguments_print_the_help(words: list[str], tmp_path: Path) -> None:
    done = logsparse(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Usage: {' '.join(['logsparse', *words])} [OPTIONS] COMMAND")
    assert "Hint" not in done.stderr


def test_a_mistyped_column_gets_a_suggestion(data: Path) -> None:
    done = logsparse("check", data, "--id-col", "uniqueid")
    assert (done.returncode, "'unique_id' is similar to 'uniqueid'" in done.stderr) == (2, True)


def test_a_result_that_cannot_be_written_leaves_nothing_behind(data: Path, tmp_path: Path) -> None:
    done = logsparse("backtest", "seasonal-naive", data, "--horizon", "24", "-o", tmp_path / "results.xls")
    assert done.returncode == 2
    assert "Results are written as parquet, csv, feather or json." in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hourly.csv"]


@pytest.mark.parametrize(
    "words",
    [["backtest", "seasonal-naive", "no.csv", "--horizon", "2", "-o"], ["score", "no.csv", "-o"], ["demo", "-o"]],
)
@pytest.mark.parametrize("out", ["afile/x.parquet", "/proc/x.parquet", "afile/deep/x.csv"])
def test_a_path_that_cannot_be_written_is_refused_before_the_work(words: list[str], out: str, tmp_path: Path) -> None:
    (tmp_path / "afile").touch()
    done = logsparse(*words, out, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "logsparse: The result must be writable." in done.stderr
    assert "None" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["afile"]


def test_scores_by_group_are_a_readable_table(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.parquet"
    logsparse("backtest", "seasonal-naive", data, "--horizon", "24", "-o", out)
    lines = logsparse("score", out, "--by", "unique_id", "-o", tmp_path / "all.csv").stdout.splitlines()
    assert lines[0].split() == ["unique_id", "count", "R0.5", "R0.9", "wql", "coverage_80", "mase", "nd", "rmse"]
    assert [line.split()[:2] for line in lines[1:]] == [["a", "24"], ["b", "24"]]
    assert all(len(line) <= 100 for line in lines)
    assert "width_80" in pl.read_csv(tmp_path / "all.csv").columns


def test_the_version_is_printed() -> None:
    done = logsparse("--version")
    assert (done.returncode, done.stdout) == (0, f"logsparse {version('logsparse')}\n")


def test_the_docs_of_the_command_name_every_command_option_and_setting() -> None:
    import typer.main

    from logsparse.cli import app
    from logsparse.settings import dotted

    text = (Path(__file__).parents[1] / "docs" / "cli.md").read_text()
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = {max(option.opts, key=len) for command in commands.values() for option in command.params}
    wanted = [f"`{name} " for name in commands if name != "demo"] + [f"`{name}`" for name in options if name[0] == "-"]
    assert not [name for name in (*wanted, *(f"| `{name}` |" for name in dotted())) if name not in text]


@pytest.mark.parametrize("words", [("check", ""), ("fit", "hours.csv", "--horizon", 6, "-o", ""), ("",)])
def test_an_empty_argument_is_refused_and_not_taken_for_the_current_folder(words: tuple[object, ...]) -> None:
    assert "No argument of a command may be empty. Got '' as argument" in refusal(*words)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        ("pass time_format='%d.%m.%Y %H:%M'.", "pass --time-format '%d.%m.%Y %H:%M'."),
        ("name its columns with id_col= and target_col=.", "name its columns with --id-col and --target-col."),
        ("use for example freq='15min' or freq=1.", "use for example --freq 15min or --freq 1."),
        ("write quantiles=[0.1, 0.5, 0.9].", "write --quantiles 0.1,0.5,0.9."),
        ("pass them with predict(future=frame).", "pass them with predict --future FILE."),
        (
            "fit(frame, covariates=[...]) first, or leave future= out.",
            "fit --covariates A,B first, or leave --future out.",
        ),
        ("set refit=True.", "set --refit."),
        ("dayfirst=True reads the day, dayfirst=False the month.", "--dayfirst reads the day, --monthfirst the month."),
        ("fit with past_covariates=[...].", "fit with --past-covariates A,B."),
        ("on_bad warn forecasts every series.", "--on-bad warn forecasts every series."),
        ("those of the past are fit(past_covariates=[...]).", "those of the past are fit --past-covariates A,B."),
        ("check the path.", "check the path."),
    ],
)
def test_hints_are_in_the_words_of_the_command(hint: str, words: str) -> None:
    text = "A rule. Got freq='x' in a file. Hint: "
    assert cli.in_options(text + hint) == text + words


@pytest.mark.parametrize("name", ["tz", "now", "stale", "flat", "gaps", "outlier", "level"])
def test_a_rule_about_an_option_begins_with_the_option(name: str) -> None:
    assert cli.in_options(f"{name} must be right. Got x. Hint: y.") == f"--{name} must be right. Got x. Hint: y."


def test_a_wrong_file_gets_a_hint_that_the_command_understands(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("sku,day,qty\na,2024-01-01,1\na,2024-01-02,2\n")
    done = logsparse("check", path)
    assert done.returncode == 2
    assert "--id-col" in done.stderr
    assert "id_col=" not in done.stderr
