"""A forecaster -> what its run is known by; once it is fitted, what its row and its trace tell of the training."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from logsparse.data.panel import Panel
from logsparse.forecast import Forecaster
from logsparse.forecaster import LogSparse
from logsparse.tasks.ledger import Identity
from logsparse.tasks.traces import plain
from logsparse.train.identity import fingerprint
from logsparse.train.loop import INTERRUPTED

# Paths drawn for every forecast that is scored; it is part of what a recorded run is known by.
SAMPLES = 100
# Seed and budget identify a run beside its config; the others change no score.
_NO_SETTINGS = ("seed", "minutes", "device", "processes", "verbose")
# Half of a sha256: panels that differ have another one, and a person can compare two of them.
_DIGITS = 32


def known_by(forecaster: Forecaster, learned_from: Panel, *data: Panel) -> Identity:
    """All its settings, those included that follow from what it learns from, and a fingerprint of all data."""
    settings = {name: value for name, value in forecaster.settings().items() if name not in _NO_SETTINGS}
    if isinstance(forecaster, LogSparse):
        config = forecaster.config or forecaster.plan(learned_from).config
        del settings["config"]
        settings |= config.to_dict()
    prints = " ".join(fingerprint(panel) for panel in data)
    # A trip through JSON turns tuples into lists, as a reader of the row will find them.
    return Identity(json.loads(json.dumps(settings)), sha256(prints.encode()).hexdigest()[:_DIGITS])


def facts_of(model: LogSparse) -> dict[str, Any]:
    """Every trained run leaves its curve. Interrupted, there is nothing to tell yet: it goes on another time."""
    story = model.story_
    if story.ended == INTERRUPTED:
        raise KeyboardInterrupt
    return {
        "validation_nll": story.best,
        "steps": int(story.rows[-1]["step"]),
        "minutes": story.seconds / 60,
        "trace": {
            "curve": {
                "step": [int(row["step"]) for row in story.rows],
                **{name: plain([row[name] for row in story.rows]) for name in ("nll", "validation_nll")},
            }
        },
    }
