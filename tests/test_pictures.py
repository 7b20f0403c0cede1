"""Pictures as files: drawn again, they are the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from logsparse.pictures import new_panels, save_figure


def test_a_picture_drawn_again_has_the_same_bytes(tmp_path: Path) -> None:
    """The layout is solved anew each time, and its last digits depend on where things lie in memory."""
    drawn = set()
    for n in range(10):
        moved = [object() for _ in range(397 * n)]
        figure, panels = new_panels((8, 5), [1.3, 1, 1])
        for axes in panels:
            axes.plot(np.sin(np.arange(50) / 3))
            axes.set_title("weights", loc="left")
            axes.set_ylabel("weight")
        save_figure(figure, tmp_path / "panels.svg")
        drawn.add((tmp_path / "panels.svg").read_bytes())
        del moved
    assert len(drawn) == 1
