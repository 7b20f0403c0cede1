"""Two processes take the steps of one; a rank that dies ends the run at once; a restart resumes the run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def torchrun(folder: Path, *, ranks: int, dies_at: int = -1, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [f"--max-restarts={restarts}", str(HERE / "train_ranks.py"), str(folder), str(dies_at)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def losses(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"rank 0 step \d+ loss (\S+)", output)]


def end(output: str) -> list[float]:
    return [float(number) for number in output.strip().splitlines()[-1].removeprefix("end ").split()]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    done = torchrun(tmp_path_factory.mktemp("alone"), ranks=1)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_processes_give_the_losses_of_one(alone: str, tmp_path: Path) -> None:
    done = torchrun(tmp_path, ranks=2)
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == pytest.approx(losses(alone), rel=1e-5)
    assert len(losses(alone)) == 12
    assert end(done.stdout) == pytest.approx(end(alone), rel=1e-5)


def test_ranks_draw_disjoint_windows_which_together_are_the_batch_of_one(alone: str, tmp_path: Path) -> None:
    done = torchrun(tmp_path, ranks=2)
    whole = {step: ast.literal_eval(seen) for step, seen in re.findall(r"rank 0 step (\d+) .*windows (.*)", alone)}
    for step, seen in whole.items():
        parts = [ast.literal_eval(part) for part in re.findall(rf"rank \d step {step} .*windows (.*)", done.stdout)]
        assert [len(part) for part in parts] == [4, 4]
        assert [series for series, _ in sorted(parts[0] + parts[1])] == [series for series, _ in seen]
        assert [total for _, total in sorted(parts[0] + parts[1])] == pytest.approx([total for _, total in seen])


def test_a_rank_that_dies_ends_the_run_with_its_error_and_never_hangs(tmp_path: Path) -> None:
    began = time.monotonic()
    done = torchrun(tmp_path, ranks=2, dies_at=5)
    assert done.returncode != 0
    assert "exitcode  : 7" in done.stderr
    assert time.monotonic() - began < 60


def test_a_restart_resumes_from_the_last_checkpoint(alone: str, tmp_path: Path) -> None:
    done = torchrun(tmp_path, ranks=2, dies_at=7, restarts=1)
    assert done.returncode == 0, done.stderr
    steps = [int(step) for step in re.findall(r"rank 0 step (\d+)", done.stdout)]
    assert steps[-1] == 12
    assert steps.count(7) + steps.count(8) >= 2
    assert steps.count(3) == 1
    assert end(done.stdout) == pytest.approx(end(alone), rel=1e-5)
