"""A real Ray cluster of two nodes: one is killed in the middle, then the driver is; the bytes stay the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import logsparse as ls
from command import refusal
from small_shards import PARTS, command, contents, entries, frame, naive, network, wait_for_entries

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra `ray`")
SLOW = ("--samples", 1000)


@pytest.fixture
def nodes() -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).with_name("ray_nodes.py")
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield process
        process.communicate(timeout=60)


@needs_ray
def test_nodes_and_drivers_may_die(nodes: subprocess.Popen[str], tmp_path: Path) -> None:
    ls.shard(frame(), tmp_path / "parts", parts=PARTS)
    network(tmp_path / "model")
    ls.predict_shards(tmp_path / "model", tmp_path / "parts", tmp_path / "whole", jobs=1, samples=1000, verbose=False)
    assert nodes.stdout is not None
    assert nodes.stdin is not None
    address = nodes.stdout.readline().strip()
    words = ("predict", tmp_path / "model", tmp_path / "parts", *SLOW, "--ray", address, "-o")

    # The second node dies without grace in the middle.
    one = tmp_path / "one"
    with command(*words, one) as process:
        wait_for_entries(one, 2, process)
        nodes.stdin.write("kill\n")
        nodes.stdin.flush()
        assert nodes.stdout.readline() == "killed\n"
        assert len(entries(one)) < PARTS
        said = process.communicate(timeout=240)[1]
        assert process.returncode == 0, said
    assert contents(one) == contents(tmp_path / "whole")
    attempts = [json.loads(path.read_text())["attempt"] for path in (one / "_ledger" / "done").glob("*.json")]
    assert len(attempts) == PARTS
    assert max(attempts) <= 2

    # The driver dies, and is started again on what is left of the cluster.
    two = tmp_path / "two"
    with command(*words, two) as process:
        wait_for_entries(two, 2, process)
        os.kill(process.pid, signal.SIGKILL)
    kept = {path.name: path.stat().st_mtime_ns for path in two.glob("*.parquet") if path.stem in entries(two)}
    assert 0 < len(kept) < PARTS
    with command(*words, two) as process:
        said = process.communicate(timeout=240)[1]
        assert process.returncode == 0, said
    assert f"wrote {PARTS - len(kept)} parts" in said
    assert contents(two) == contents(tmp_path / "whole")
    assert {name: (two / name).stat().st_mtime_ns for name in kept} == kept


def test_a_missing_extra_is_one_error_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ls.shard(frame(4), tmp_path / "parts", parts=2)
    naive(tmp_path / "model")
    words = ("predict", tmp_path / "model", tmp_path / "parts", "-o", tmp_path / "out", "--ray")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "Workers of Ray need the extra `ray`. Got no module ray. Hint: pip install" in refusal(*words)


@needs_ray
def test_an_address_at_which_nothing_listens_is_refused_at_once(tmp_path: Path) -> None:
    ls.shard(frame(), tmp_path / "parts", parts=2)
    naive(tmp_path / "naive")
    with pytest.raises(ls.ConfigError, match=r"must answer at its address\. Got 127\.0\.0\.1:1: .*refused"):
        ls.predict_shards(tmp_path / "naive", tmp_path / "parts", tmp_path / "out", ray="127.0.0.1:1", verbose=False)
