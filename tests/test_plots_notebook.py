"""A notebook, executed: each picture is shown once, progress is one line, and nothing is written in red."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

DATA = """
import numpy as np, polars as pl, logsparse as ls
from logsparse import process
from logsparse.attention.draw import picture
hours = np.arange("2024-01-01", "2024-02-01", dtype="datetime64[h]").astype("datetime64[us]")
wave = 3 + np.sin(np.arange(len(hours)) * np.pi / 12)
levels = {"north": 10, "south": 25}
frame = pl.concat(pl.DataFrame({"unique_id": name, "ds": hours, "y": n * wave}) for name, n in levels.items())
process._QUICK_SECONDS = -1
"""
FIT = 'model = ls.LogSparse(horizon=24, steps=4).fit(frame, until="2024-01-30T23:00")'
PICTURES = [
    "forecast.plot()",
    'forecast.plot(["north", "south"], actuals=frame)',
    "model.attention().plot()",
    "model.attention(step=None).plot()",
    "model.history_.plot()",
    "picture(ls.patterns.logsparse(), 16)",
]


def executed(folder: Path, cells: list[str]) -> list[list[Any]]:
    """Run the cells in a kernel; return the outputs of each."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=120, resources=resources).execute(
        env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    outputs = [cell.outputs for cell in notebook.cells]
    assert not [one for found in outputs for one in found if one.output_type == "stream"], "no lines in red"
    return outputs


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    later = ["%matplotlib inline\nimport matplotlib.pyplot as plt", "forecast.plot('south')", "forecast", "model",
             "_, ax = plt.subplots()\nforecast.plot(ax=ax);", "forecast.plot(interactive=True)"]  # fmt: skip
    cells = [DATA, FIT, "forecast = model.forecast()", *PICTURES, *later]
    return dict(zip(cells, executed(tmp_path_factory.mktemp("notebook"), cells), strict=True))


@pytest.mark.parametrize("cell", PICTURES)
def test_a_picture_as_the_last_line_of_a_cell_is_shown_once(outputs: dict[str, list[Any]], cell: str) -> None:
    (shown,) = outputs[cell]
    assert shown.output_type == "execute_result"
    assert base64.b64decode(shown.data["image/png"]).startswith(b"\x89PNG")
    assert shown.metadata["image/png"]["width"] >= 800


def test_the_inline_backend_shows_a_picture_once_as_well(outputs: dict[str, list[Any]]) -> None:
    (shown,) = outputs["forecast.plot('south')"]
    assert "image/png" in shown.data
    (own,) = outputs["_, ax = plt.subplots()\nforecast.plot(ax=ax);"]
    assert "image/png" in own.data


def test_an_interactive_picture_is_shown(outputs: dict[str, list[Any]]) -> None:
    pytest.importorskip("plotly")
    (shown,) = outputs["forecast.plot(interactive=True)"]
    assert "application/vnd.plotly.v1+json" in shown.data


def test_forecasts_and_models_show_what_they_hold(outputs: dict[str, list[Any]]) -> None:
    assert "<img" in outputs["forecast"][0].data["text/html"]
    assert "<table" in outputs["model"][0].data["text/html"]


def test_progress_is_one_line_per_training_that_ends_with_the_result(outputs: dict[str, list[Any]]) -> None:
    # Little data are trained on twice.
    for shown, what in zip(outputs[FIT], ("training", "training on all data"), strict=True):
        assert shown.output_type == "display_data"
        assert shown.data["text/plain"].startswith(f"{what}, seed 0: ")
        assert "done" in shown.data["text/plain"]
        assert "<progress" in shown.data["text/html"]


def test_completion_in_a_kernel_lists_what_is_for_users() -> None:
    """By the completer of the kernel, which asks more than `dir`."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel()
    try:
        client.execute("import logsparse as ls; model = ls.LogSparse(horizon=3)", reply=True, timeout=60)
        found = client.complete("model.", reply=True, timeout=60)["content"]["matches"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert {"fit", "predict", "forecast", "attention", "horizon", "minutes"} <= set(found)
    assert not {"check", "summaries", "restored", "learned_until", "_fit"} & set(found)
