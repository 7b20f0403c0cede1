"""-> what a result needs to identify itself: machine, versions, date; and where it is written."""

from __future__ import annotations

import json
import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> str:
    """The processor and its cores, as a file name can hold it."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    found = re.search(r"model name\s*:\s*(.+)", text)
    name = found[1] if found else platform.processor() or platform.machine()
    return re.sub(r"[^a-z0-9]+", "-", f"{name} {os.cpu_count()} cores".lower()).strip("-")


def write_result(theme: str, rows: list[dict[str, Any]]) -> Path:
    """One JSON a run, named theme_machine_date."""
    now = datetime.now(UTC)
    versions = {name: version(name) for name in ("logsparse", "torch", "polars", "numpy")}
    path = RESULTS / f"{theme}_{machine()}_{now:%Y-%m-%d}.json"
    RESULTS.mkdir(exist_ok=True)
    head = {"theme": theme, "machine": machine(), "time": f"{now:%Y-%m-%dT%H:%MZ}", "versions": versions}
    path.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    return path
