"""Each call to the disk fails once, for every writer: the old or the new content is complete, the error clear."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fail_each_call import WRITERS

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def failing_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("disk") / "failing_disk.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "failing_disk.c"), "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.mark.parametrize("writer", list(WRITERS))
def test_if_any_call_to_the_disk_fails_the_old_or_the_new_content_is_complete(
    writer: str, failing_disk: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "fail_each_call.py"), str(failing_disk), str(tmp_path), writer],
        env={**os.environ, "LD_PRELOAD": str(failing_disk)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    # All kinds of failures occurred: before the switch, after it, and short writes that were completed.
    assert min(found["counts"][kind] for kind in ("old", "new", "none", "finished")) > 0, found["counts"]
