"""A run -> the folder of its checkpoints, kept for this run alone: it goes on there, or another run is refused."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from logsparse.config import Config
from logsparse.data.panel import Panel
from logsparse.errors import DataError

_RUN = "run.json"


def claim(folder: Path, config: Config, seed: int, panel: Panel) -> bool:
    """Mark the folder as this run's; whether the run was begun there before. Another's folder is refused."""
    run = json.loads(json.dumps({"config": config.to_dict(), "seed": seed, "data": fingerprint(panel)}))
    mark = folder / _RUN
    if not mark.exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise _foreign(folder, "something that no training wrote")
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f".{_RUN}.{os.getpid()}"
        beside.write_text(json.dumps(run))
        beside.replace(mark)
        return False
    try:
        begun = json.loads(mark.read_text())
    except ValueError as error:
        raise _foreign(folder, f"a {_RUN} that cannot be read") from error
    if changed := [name for name in run if not isinstance(begun, dict) or begun.get(name) != run[name]]:
        names = {"config": "settings", "seed": "seed", "data": "data"}
        raise _foreign(folder, f"a training with other {' and '.join(names[name] for name in changed)}")
    return True


def fingerprint(panel: Panel) -> str:
    """The same for the same series, values and covariates, and for nothing else."""
    digest = sha256()
    facts: list[Any] = [panel.ids, str(panel.freq), panel.starts.tolist(), panel.lengths.tolist()]
    static = {name: (column.categories, column.codes.tolist()) for name, column in panel.static.items()}
    digest.update(repr((facts, static, list(panel.covariates))).encode())
    for series in range(len(panel)):
        digest.update(panel[series].tobytes())
    for covariate in panel.covariates.values():
        digest.update(covariate.tobytes())
    return digest.hexdigest()


def _foreign(folder: Path, what: str) -> DataError:
    return DataError(
        f"Checkpoints of this training go to {folder}, which must be new or its own.",
        got=what,
        hint=f"give the same command as before to go on, or remove {folder} to begin anew.",
    )
