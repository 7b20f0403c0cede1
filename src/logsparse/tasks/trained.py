"""A fitted model -> what its row and its trace tell of the training."""

from __future__ import annotations

from typing import Any

from logsparse.forecaster import LogSparse
from logsparse.tasks.traces import plain
from logsparse.train.loop import INTERRUPTED


def facts_of(model: LogSparse) -> dict[str, Any]:
    """Every trained run leaves its curve. Interrupted, there is nothing to tell yet: it goes on another time."""
    story = model.story_
    if story.ended == INTERRUPTED:
        raise KeyboardInterrupt
    return {
        "validation_nll": story.best,
        "steps": int(story.rows[-1]["step"]),
        "minutes": story.seconds / 60,
        "config": model.config_.to_dict(),
        "trace": {
            "curve": {
                "step": [int(row["step"]) for row in story.rows],
                **{name: plain([row[name] for row in story.rows]) for name in ("nll", "validation_nll")},
            }
        },
    }
