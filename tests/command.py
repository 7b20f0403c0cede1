"""Run the command in this process, so that torch is loaded once."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch

from logsparse.cli import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


def logsparse(*words: object) -> Done:
    """Return the exit code and the printed text."""
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", ["logsparse", *map(str, words)]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def refusal(*words: object) -> str:
    """Return the one line printed for an error."""
    done = logsparse(*words)
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.count("\n") == 1, done.err
    return done.err


QUICK = [
    *("--context", "12"),
    *("--set", "train.epochs=2", "--set", "train.steps_per_epoch=2", "--set", "train.batch=4"),
    *("--set", "model.layers=1", "--set", "model.width=8", "--set", "model.heads=2", "--set", "model.kernel=2"),
]
"""Options for a training of four small steps."""
