"""`logsparse report`: a file in, a page out, one line said; mistakes in one line too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from logsparse.baselines.naive import SeasonalNaive
from logsparse.commands.report import report
from report_pages import hours, results


def logsparse(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logsparse", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_the_command_writes_the_page_and_says_where(tmp_path: Path) -> None:
    results().write_parquet(tmp_path / "results.parquet")
    done = logsparse("report", "results.parquet", "-o", "deep/page.html", "--title", "Our week", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "wrote deep/page.html\n")
    assert "<h1>Our week</h1>" in (tmp_path / "deep" / "page.html").read_text()


def test_a_saved_model_shows_its_settings(tmp_path: Path) -> None:
    SeasonalNaive(4, season=7).fit(hours(1)).save(tmp_path / "model")
    results().write_parquet(tmp_path / "results.parquet")
    report(tmp_path / "results.parquet", tmp_path / "report.html", tmp_path / "model")
    assert "Settings of SeasonalNaive" in (tmp_path / "report.html").read_text()


def test_a_file_that_is_no_result_is_refused_in_one_line(tmp_path: Path) -> None:
    results(y=None).write_parquet(tmp_path / "results.parquet")
    done = logsparse("report", "results.parquet", cwd=tmp_path)
    assert done.returncode == 2
    assert "Got no y among unique_id, ds, cutoff, mean" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["results.parquet"]
