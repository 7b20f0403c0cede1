"""The examples, the code of README and docs and the tutorial run; links lead somewhere; the site builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import logsparse

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
# ```python and ```sh are run, all other blocks are not.
BLOCKS = {path: re.findall(r"^```(python|sh)\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE) for path in PAGES}
# Runs as bash does, with the commands of this environment.
SHELL = "import subprocess; subprocess.run(['bash', '-euc', {!r}], check=True)"
NOTEBOOK = """
import re, sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
def words():
    # Results of cells alone: quick work shows no progress.
    found = [output for cell in cells for output in cell.outputs if output.output_type == "execute_result"]
    return [re.findall(r"[A-Za-z_]+=?", output.data["text/plain"]) for output in found]
stored = words()
NotebookClient(notebook, timeout=120, resources={"metadata": {"path": "."}}).execute()
assert words() == stored, "the stored outputs are those of other cells: execute the notebook and save it"
outputs = [output for cell in cells for output in cell.outputs]
assert not [output for output in outputs if output.output_type == "stream"], "no lines in red"
print([kind for output in outputs for kind in output.get("data", {})])
"""


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_is_short(path: Path, tmp_path: Path) -> None:
    assert path.read_text().count("\n") < 60
    assert _run(tmp_path, "-W", "error", str(path)).stdout


@pytest.mark.parametrize("path", [path for path in PAGES if BLOCKS[path]], ids=_name)
def test_the_code_of_a_page_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(text if kind == "python" else SHELL.format(text) for kind, text in BLOCKS[path]))
    _run(tmp_path, "-W", "error", str(script))


def test_the_readme_and_every_guide_have_code_that_runs() -> None:
    guides = [ROOT / "README.md", DOCS / "extending.md", *(DOCS / "how-to").glob("*.md")]
    assert len(guides) > 5
    assert [_name(path) for path in guides if not any(kind == "python" for kind, _ in BLOCKS[path])] == []


def test_the_tutorial_runs(tmp_path: Path) -> None:
    assert "image/png" in _run(tmp_path, "-c", NOTEBOOK, str(DOCS / "tutorial.ipynb")).stdout


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_links_to_files_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", path.read_text())
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_reference_has_every_exported_name() -> None:
    text = "".join((DOCS / "reference" / name).read_text() for name in ("api.md", "settings.md"))
    assert [name for name in logsparse.__all__ if not re.search(rf":: logsparse\.{name}\n|`ls\.{name}`", text)] == []


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for package in ("sphinx", "myst_nb", "furo", "sphinx_copybutton"):
        pytest.importorskip(package, reason='the site needs pip install -e ".[docs]"')
    words = ("-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html", "-d", "doctrees")
    _run(tmp_path, *words, str(DOCS), "site")
    assert (tmp_path / "site" / "tutorial.html").exists()
