"""Attention of a forecast: the weights of the network, at their times, as a table and a picture."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

import logsparse as ls
import small
from logsparse.attention.maps import Attention
from logsparse.attention.pattern import full, logsparse, restart
from logsparse.model.decode import decode_plainly
from logsparse.model.transformer import Block, Transformer
from logsparse.pictures import save_figure

CONTEXT, HORIZON = 24, 6


def frame(steps: int = 60) -> pl.DataFrame:
    """Two hourly series, the second with a hole near its end."""
    hours = np.datetime64("2024-01-01T00:00", "us") + np.arange(steps).astype("timedelta64[h]")
    waves = [level * (2 + np.sin(np.arange(steps) * np.pi / 12)) for level in (1, 30)]
    tables = [pl.DataFrame({"unique_id": name, "ds": hours, "y": y}) for name, y in zip("ab", waves, strict=True)]
    hole = (pl.col("unique_id") == "b") & (pl.col("ds") == hours[-3])
    return pl.concat(tables).with_columns(y=pl.when(hole).then(None).otherwise(pl.col("y")))


def fitted(pattern: Any = None) -> ls.LogSparse:
    config = small.config({"patterns": (pattern or logsparse(),), "lags": (1, 5)}, epochs=1)
    model = ls.LogSparse(HORIZON, config=config, verbose=False).fit(frame())
    with torch.no_grad():
        for name, weight in model.network_.named_parameters():
            # A network of two small steps looks at everything alike: weights as large as these have something to show.
            weight.mul_(20 if "query_key" in name else 1)
    return model


@pytest.fixture(scope="module")
def model() -> ls.LogSparse:
    return fitted()


def by_hand(model: ls.LogSparse, series: int, layer: int) -> np.ndarray[Any, Any]:
    """(heads, L, L): a pass over the window with the mean path filled in, its q and k caught on the way."""
    network = model.network_
    assert isinstance(network, Transformer)
    panel = model.panel_
    windows = model._windows(panel)
    means = torch.tensor(model.config_.horizon * [math.nan])
    with torch.no_grad():
        batch = windows(np.array([series]), panel.lengths[[series]]).clone()
        for step in range(HORIZON):
            law = network.likelihood.distribution(network(batch)[:, CONTEXT + step], batch.scale_B)
            means[step] = law.mean
            for number, lag in enumerate(model.config_.model.lags):
                if CONTEXT + step + lag < CONTEXT + HORIZON:
                    batch.lagged_BLK[:, CONTEXT + step + lag, number] = law.mean
                    batch.lag_observed_BLK[:, CONTEXT + step + lag, number] = True
        caught: list[torch.Tensor] = []
        block = network.blocks[layer]
        assert isinstance(block, Block)
        hook = block.register_forward_pre_hook(lambda _module, inputs: caught.append(inputs[0]))
        network(batch)
        hook.remove()
        q, k, _ = block.project(caught[0])
        mask = torch.from_numpy(block.attention.pattern.mask(CONTEXT + HORIZON))
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf)
    return np.asarray(scores.softmax(-1)[0].numpy())


@pytest.mark.parametrize("pattern", [full(), logsparse(), restart(6, dense_rows=10)], ids=repr)
@pytest.mark.parametrize("layer", [0, 1])
def test_the_matrix_is_the_softmax_of_the_network_s_own_scores(pattern: Any, layer: int) -> None:
    model = fitted(pattern)
    expected = by_hand(model, 1, layer)
    found = model.attention(series="b", layer=layer, step=None)
    np.testing.assert_allclose(found.weights, expected.mean(0), atol=1e-5)
    np.testing.assert_allclose(found.weights.sum(1), 1, atol=1e-5)
    assert (found.weights[~pattern.mask(30)] == 0).all()
    assert (np.triu(found.weights, 1) == 0).all()
    for head in (0, 1):
        one = model.attention(series="b", layer=layer, head=head, step=None)
        np.testing.assert_allclose(one.weights, expected[head], atol=1e-5)


@pytest.mark.parametrize("step", [0, 3, 5])
def test_a_step_s_weights_are_its_row_of_the_matrix(model: ls.LogSparse, step: int) -> None:
    row, matrix = model.attention(step=step), model.attention(step=None)
    np.testing.assert_allclose(row.weights, matrix.weights[CONTEXT + step], atol=1e-6)
    assert (row.weights[CONTEXT + step + 1 :] == 0).all()


def test_the_horizon_holds_the_mean_path(model: ls.LogSparse) -> None:
    windows = model._windows(model.panel_)
    batch = windows(np.array([0]), model.panel_.lengths[[0]])
    # With a scale of next to nothing, the samples around the mean path are the mean path.
    middle = torch.full((1, 1, HORIZON), 0.5)
    assert isinstance(model.network_, Transformer)
    drawn = decode_plainly(model.network_, batch, middle, "mean-path")[0, 0].numpy()
    np.testing.assert_allclose(model.attention().values[CONTEXT:], drawn, rtol=1e-4)


def test_the_table_has_the_times_up_to_the_step(model: ls.LogSparse) -> None:
    table = model.attention(series="b", step=2).table()
    assert table.columns == ["unique_id", "ds", "value", "weight"]
    assert len(table) == CONTEXT + 3
    known = frame().filter(pl.col("unique_id") == "b").tail(CONTEXT)
    assert table["ds"][:CONTEXT].equals(known["ds"])
    np.testing.assert_allclose(table["value"][:CONTEXT].to_numpy(), known["y"].to_numpy(), rtol=1e-6)
    assert table["value"].null_count() == 1
    assert table["weight"].sum() == pytest.approx(1)
    cells = model.attention(series="b", step=None).table()
    assert cells.columns == ["unique_id", "ds", "attended", "weight"]
    assert len(cells) == logsparse().cells(30)
    assert (cells["attended"] <= cells["ds"]).all()


def test_the_frame_is_of_the_library_of_the_data() -> None:
    pandas = pytest.importorskip("pandas")
    config = small.config(epochs=1)
    model = ls.LogSparse(HORIZON, config=config, verbose=False).fit(frame().to_pandas())
    assert isinstance(model.attention().frame(), pandas.DataFrame)


def test_a_history_shorter_than_the_context_is_padded(model: ls.LogSparse) -> None:
    found = model.attention(frame(steps=10), series="a")
    assert np.isnan(found.values[:14]).all()
    assert np.isfinite(found.values[14:]).all()
    assert found.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("step", [0, 4, None])
def test_the_picture_shows_history_and_weights(model: ls.LogSparse, step: int | None, tmp_path: Any) -> None:
    figure = model.attention(series="b", step=step).plot()
    above, below, *bar = figure.axes
    assert [axes.get_ylabel() for axes in bar] == (["weight"] if step is None else [])
    assert above.get_title(loc="left") == "b: layer 2 of 2, mean of 2 heads"
    assert below.get_title(loc="left") == model.attention(series="b", step=step).caption()
    assert below.collections if step is not None else below.images
    save_figure(figure, tmp_path / "attention.svg")
    assert (tmp_path / "attention.svg").stat().st_size > 5000


def test_layers_and_heads_are_counted_from_one_in_words(model: ls.LogSparse) -> None:
    assert model.attention(layer=0, head=1).what == "layer 1 of 2, head 2 of 2"
    assert repr(model.attention(step=2)) == (
        "Attention(step 3 of 6, series 'a' over 30 positions, layer 2 of 2, mean of 2 heads)"
    )


def test_the_times_of_most_weight_come_first(model: ls.LogSparse) -> None:
    for found in (model.attention(step=3), model.attention(step=None)):
        top = found.top(4)
        assert top.columns == ["ds", "value", "weight"]
        assert top["weight"].to_list() == sorted(top["weight"], reverse=True)
        weights = found.weights if found.step is not None else found.weights[CONTEXT:].mean(0)
        assert top["weight"][0] == weights.max()
        assert top["ds"][0] == found.times[int(weights.argmax())]
        assert len(found.top(1000)) == np.count_nonzero(weights)
    with pytest.raises(ls.ConfigError, match=r"count must be at least 1. Got 0. Hint: count the times to return"):
        model.attention().top(0)


def looking(times: pl.Series, weights: list[float]) -> Attention:
    what: dict[str, Any] = {"series": "a", "step": 0, "what": "", "library": "polars", "context": len(times) - 1}
    return Attention(weights=np.array(weights, np.float32), values=np.ones(len(times), np.float32), times=times, **what)


def test_the_caption_names_the_dates_that_were_looked_at() -> None:
    weights = [0.0, 0.25, 0.6, 0.15]
    hours = pl.datetime_range(pl.datetime(2024, 1, 31, 22), pl.datetime(2024, 2, 1, 1), "1h", eager=True)
    said = "step 1 of 1 looks most at Thu 01 Feb 00:00 (60%), Wed 31 Jan 23:00 (25%), itself (15%)"
    assert looking(hours, weights).caption() == said
    days = pl.date_range(pl.date(2023, 12, 30), pl.date(2024, 1, 2), "1d", eager=True)
    said = "step 1 of 1 looks most at Mon 01 Jan 2024 (60%), Sun 31 Dec 2023 (25%), itself (15%)"
    assert looking(days, weights).caption() == said
    assert looking(days.cast(pl.Datetime("us")), weights).caption() == said
    assert looking(pl.Series(range(4)), weights).caption() == "step 1 of 1 looks most at 2 (60%), 1 (25%), itself (15%)"


@pytest.mark.parametrize("step", [0, None])
def test_the_titles_lie_within_the_picture(step: int | None) -> None:
    length, context = 400, 370
    weights = np.tri(length, dtype=np.float32) / np.arange(1, length + 1, dtype=np.float32)[:, None]
    hours = pl.datetime_range(pl.datetime(2023, 12, 20), pl.datetime(2024, 2, 20), "1h", eager=True)[:length]
    what: dict[str, Any] = {"series": "meter 17", "step": step, "what": "layer 10 of 12, mean of 16 heads"}
    rest: dict[str, Any] = {"times": hours, "context": context, "library": "polars", **what}
    row = weights if step is None else weights[context]
    figure = Attention(weights=row, values=np.ones(length, np.float32), **rest).plot()
    FigureCanvasAgg(figure)
    figure.canvas.draw()
    for axes in figure.axes:
        assert axes._left_title.get_window_extent().x1 <= figure.bbox.x1  # type: ignore[attr-defined]


def test_a_large_matrix_keeps_the_thin_lines_of_its_pattern() -> None:
    length = 1000
    weights = np.zeros((length, length), np.float32)
    weights[np.arange(length), np.arange(length)] = 1
    times = pl.Series(range(length))
    what: dict[str, Any] = {"series": "a", "step": None, "what": "", "library": "polars", "context": 900}
    figure = Attention(weights=weights, values=np.ones(length, np.float32), times=times, **what).plot()
    shown = figure.axes[1].images[0].get_array()
    assert shown is not None
    assert shown.shape == (334, 334)
    assert (np.diag(shown) == 1).all()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            {"layer": 2},
            r"layer must be 0 to 1, or -1 to -2 .*Got 2\. Hint: layer=-1 is the last",
        ),
        ({"layer": "last"}, r"layer must be .* Got 'last'\."),
        ({"head": -3}, r"head must be 0 to 1, .*Got -3\. Hint: head=None is the mean over all"),
        ({"step": 6}, r"step must be a step of the horizon, 0 to 5, or None\. Got 6\. Hint: step=0 is the first"),
        ({"step": -1}, r"step must be .* Got -1"),
        ({"series": "aa"}, r"series must be the id of a series in the data\. Got 'aa'\. Hint: did you mean 'a'\?"),
        ({"series": 7}, r"Got 7\. Hint: name one such as 'a'"),
    ],
)
def test_an_unknown_series_layer_head_or_step_is_refused_with_a_hint(
    model: ls.LogSparse, asked: dict[str, Any], text: str
) -> None:
    with pytest.raises(ls.ConfigError, match=text):
        model.attention(**asked)


def test_an_unfitted_model_is_refused() -> None:
    with pytest.raises(ls.NotFittedError):
        ls.LogSparse(HORIZON).attention()
