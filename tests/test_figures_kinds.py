"""The four kinds of attention of the paper, drawn from the patterns themselves."""

from __future__ import annotations

from pathlib import Path

from logsparse.paper.figures import ATTENTION_KINDS, KINDS, LENGTH
from logsparse.pictures import save_figure


def test_four_panels_show_the_cells_of_their_patterns(tmp_path: Path) -> None:
    assert ATTENTION_KINDS.figure is not None
    figure = ATTENTION_KINDS.figure([], {})
    assert figure is not None
    names = [axes.get_title(loc="left").splitlines()[0] for axes in figure.axes]
    assert names == ["(a) full", "(b) LogSparse", "(c) local + LogSparse", "(d) restart + local + LogSparse"]
    for axes, kind in zip(figure.axes, KINDS.values(), strict=True):
        assert f"after {kind.layers_to_reach(LENGTH)} layer" in axes.get_title(loc="left")
    save_figure(figure, tmp_path / "kinds.svg")
    assert (tmp_path / "kinds.svg").stat().st_size < 300_000


def test_the_table_says_what_they_cost_and_there_is_nothing_to_run() -> None:
    (table,) = ATTENTION_KINDS.tables([], {})
    assert table.lines[:2] == [["full", "136", "16", "1"], ["LogSparse", "65", "5", "4"]]
    assert ATTENTION_KINDS.runs(3, ()) == []
