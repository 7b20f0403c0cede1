"""The Triton kernels: right in the interpreter, compiled for GPUs, chosen by the front; no GPU is needed here."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from logsparse.attention import attend as backends
from logsparse.attention import attend as front
from logsparse.attention import triton as module
from logsparse.attention.pattern import full, logsparse, restart
from logsparse.attention.plain import draw_seed
from logsparse.attention.triton import Launch, plan
from logsparse.errors import ConfigError
from test_attend import PATTERNS, random_inputs, results

HERE = Path(__file__).parent
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed: pip install logsparse[gpu]"
)
# Bytes of stack that a kernel may use: where the compiler needs a little, it is no loop's registers.
STACK = 24


@needs_triton
@pytest.mark.parametrize("part", ["oracle", "not oracle"])
def test_the_kernels_are_right_in_the_interpreter(part: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-n", "0", "-k", part]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [*command, "triton_interpreted.py"], cwd=HERE, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)
    assert "skipped" not in done.stdout


@needs_triton
@pytest.mark.parametrize("capability", [80, 90])
def test_the_kernels_compile_for_a_gpu_and_keep_within_its_registers(capability: int, tmp_path: Path) -> None:
    # One process for each target: triton keeps what it compiled by device, whatever the target is now.
    command = [sys.executable, "-W", "error", "triton_compiled.py", str(capability)]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["kernel"] for row in rows} == {"forward", "backward_rows", "backward_keys"}
    for row in rows:
        assert row["target"] == f"sm_{capability}", "another target's binary came back"
        assert 0 < row["registers"] <= 255
        assert row["stack"] <= STACK, row


@pytest.mark.parametrize("launch", [Launch(16, 4, 1), Launch(16, 4, 5), Launch(32, 4, 6), Launch(32, 4, 33)], ids=str)
@pytest.mark.parametrize("name", PATTERNS)
def test_a_plan_holds_every_distance_once(name: str, launch: Launch) -> None:
    distances = PATTERNS[name].distances(300)
    tiles, singles = plan(distances, launch)
    found = list(singles)
    for offset, here, before in zip(tiles[::3], tiles[1::3], tiles[2::3], strict=True):
        assert -(2**31) <= here < 2**31
        found += [offset + bit for bit in range(launch.tile) if here >> bit & 1]
        earlier = [offset - launch.tile + bit for bit in range(launch.tile) if before >> bit & 1]
        assert set(earlier) <= set(found), "the tile further back repeats the stretch before it"
    assert sorted(found) == list(distances)


def test_triton_is_not_imported_before_the_first_launch() -> None:
    script = (
        "import sys, torch\n"
        "from logsparse.attention.attend import attend\n"
        "from logsparse.attention.pattern import logsparse\n"
        "attend(*[torch.ones(1, 1, 9, 4)] * 3, logsparse(), backend='shifted')\n"
        "assert 'triton' not in sys.modules\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_on_a_cpu_without_the_interpreter_the_backend_is_refused() -> None:
    qkv = random_inputs((1, 1, 9, 4), dtype=torch.float32)
    with pytest.raises(ConfigError, match=r"Backend triton serves float32, float16 and bfloat16 .* Hint: use backend="):
        results("triton", qkv, logsparse())


def on_gpu(dtype: torch.dtype, width: int = 8) -> SimpleNamespace:
    """What the front asks of a tensor on a GPU, where there is none."""
    return SimpleNamespace(
        device=torch.device("cuda", 0), dtype=dtype, shape=(1, 1, 9, width), stride=lambda _dim: 1, ndim=4
    )


@pytest.mark.parametrize(
    ("installed", "capability", "dtype", "width", "chosen", "message"),
    [
        (True, (8, 0), torch.float32, 8, "triton", "Triton kernels serve attention on cuda:0."),
        (True, (9, 0), torch.float16, 8, "triton", "Triton kernels serve attention on cuda:0."),
        (True, (8, 0), torch.float64, 8, "shifted", "Plain torch serves attention on cuda:0 .*: torch.float64."),
        (True, (8, 0), torch.float32, 129, "shifted", "Plain torch serves .*: 129 channels per head."),
        (True, (7, 0), torch.float32, 8, "shifted", "Plain torch serves .*: cuda:0, which triton does not serve."),
        (False, (8, 0), torch.float32, 8, "shifted", "Plain torch serves .*: an install without triton."),
    ],
)
def test_on_a_gpu_the_front_takes_the_kernels_or_plain_torch_and_says_so_once(
    installed: bool,
    capability: tuple[int, int],
    dtype: torch.dtype,
    width: int,
    chosen: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    major, minor = capability
    monkeypatch.setattr(module, "_INSTALLED", installed)
    monkeypatch.setattr(backends, "_reported", set())
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(major=major, minor=minor))
    x = on_gpu(dtype, width)
    call = backends.Call(x, x, x, (0, 1, 2), 0)  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert backends.choose("auto", call).name == chosen
    assert len(caplog.messages) == 1
    assert re.fullmatch(message, caplog.messages[0])
    assert backends.choose("auto", replace(call, dense_rows=9)).name == "sdpa"
    monkeypatch.setattr(backends, "has_tangent", lambda *_: True)
    assert backends.choose("auto", call).name == "shifted", "no forward mode"


def test_a_tensor_whose_tile_spans_too_much_memory_is_copied() -> None:
    far = torch.empty_strided((1, 1, 8, 4), (1, 1, 1, 2**27), device="meta")
    near = torch.empty_strided((1, 1, 8, 4), (1, 1, 1, 2**20), device="meta")
    assert module._compact(far).stride() == (32, 32, 4, 1)
    assert module._compact(near) is near


def test_a_seed_is_drawn_where_its_generator_is() -> None:
    generator = torch.Generator().manual_seed(3)
    seed = draw_seed(generator, torch.device("meta"))
    assert seed.device.type == "cpu"
    assert torch.equal(seed, draw_seed(torch.Generator().manual_seed(3), torch.device("cpu")))
    assert draw_seed(None, torch.device("meta")).device.type == "meta"


def test_float16_is_served_on_a_cpu_by_plain_torch() -> None:
    for pattern in (logsparse(), restart(8), full()):
        q, k, v = (x.detach() for x in random_inputs((1, 1, 30, 4), dtype=torch.float16, seed=1))
        got = front.attend(q, k, v, pattern)
        assert got.dtype == torch.float16
        assert torch.allclose(got.float(), front.attend(q.float(), k.float(), v.float(), pattern), atol=2e-3)
    with pytest.raises(ConfigError, match=r"Backend native .* Got torch.float16"):
        front.attend(q, k, v, logsparse(), backend="native")
