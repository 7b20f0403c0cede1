"""The code of the README and of docs/extending.md runs, its commands exist, its pictures are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXTENDING = (ROOT / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README + EXTENDING, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_python_of_readme_and_docs_runs_as_it_stands(number: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKS[number]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_has_code_to_run() -> None:
    assert "```python" in README
    assert "```python" in EXTENDING


def test_the_pictures_of_the_readme_are_there() -> None:
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert pictures
    assert [name for name in pictures if not (ROOT / name).exists()] == []


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"^make (\w+)", README, flags=re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_commands_of_the_readme_exist() -> None:
    for command in set(re.findall(r"^logsparse (\w+)", README, flags=re.MULTILINE)):
        done = subprocess.run(
            [sys.executable, "-m", "logsparse", command, "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"logsparse {command}: {done.stderr}"
