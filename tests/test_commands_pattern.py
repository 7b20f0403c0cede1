"""`logsparse pattern`: the table, the picture, and the refusals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from logsparse.commands.pattern import pattern
from logsparse.errors import ConfigError


def run(*words: str) -> str:
    app = typer.Typer()
    app.command()(pattern)
    result = CliRunner().invoke(app, words, env={"COLUMNS": "100"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_paper_s_pattern_prints_its_memory_figures_and_draws(tmp_path: Path) -> None:
    target = tmp_path / "restart.svg"
    output = run("restart", "--length", "768", "--sub", "96", "--draw", str(target))
    assert "112 cells" in output
    assert "full attention of length 293" in output
    assert f"drawn: {target}" in output
    assert target.exists()


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["full"], "full()"),
        (["logsparse"], "logsparse(base=2)"),
        (["logsparse", "--base", "3", "--dense-rows", "4"], "logsparse(base=3, dense_rows=4)"),
        (["local", "--width", "7"], "local(width=7, base=2)"),
        (["restart", "--sub", "96", "--width", "1"], "restart(sub_length=96, width=1, base=2)"),
    ],
)
def test_each_kind_is_made_from_its_options(words: list[str], shown: str) -> None:
    assert shown in run(*words, "--length", "64")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["local"], r"The pattern local needs --width\. Got none\. Hint: try --width 8\."),
        (["restart"], r"The pattern restart needs --sub\. Got none\. Hint: try --sub 8\."),
        (
            ["full", "--base", "3"],
            r"full takes no settings\. Got --base 3\. Hint: leave it out",
        ),
        (["local", "--width", "3", "--sub", "8"], r"local takes --width and --base\. Got --sub 8\."),
        (["local", "--width", "0"], r"width must be at least 1\. Got 0\."),
    ],
)
def test_options_that_do_not_fit_the_kind_are_refused(words: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        run(*words, "--length", "64")


def test_the_command_s_help_needs_neither_torch_nor_matplotlib() -> None:
    heavy = {"torch", "matplotlib", "numpy"}
    program = f"import sys, logsparse.commands.pattern; sys.exit(not {heavy}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
