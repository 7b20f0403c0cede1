"""What a head attends to, as plain JSON: the model's own weights, of the head that the rule names."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import logsparse as ls
import small
from logsparse.attention.maps import Attention
from logsparse.paper.experiment import (
    array,
    attention_of_all_positions,
    attention_of_layers,
    chosen,
    long_range_score,
    whole_matrix,
)


@pytest.fixture(scope="module")
def model() -> ls.LogSparse:
    fitted = ls.LogSparse(6, config=small.config(epochs=1), verbose=False).fit(small.panel(series=2))
    with torch.no_grad():
        for name, weight in fitted.network_.named_parameters():
            # A network of some small steps looks at everything alike; these weights have something to show.
            weight.mul_(20 if "query_key" in name else 1)
    return fitted


def look(weights: Any, step: int | None = 0) -> Attention:
    length = np.shape(weights)[-1]
    context = length - 2
    values, times = np.ones(length, np.float32), pl.Series(range(length))
    return Attention(np.array(weights, np.float32), values, times, context, "a", step, "", "polars")


def test_a_head_that_attends_to_few_cells_far_back_scores_more_than_one_that_attends_everywhere_or_to_itself() -> None:
    few = long_range_score(look([0, 0.5, 0.5, 0, 0, 0, 0, 0]), far=3)
    alike = long_range_score(look([1 / 7] * 7 + [0]), far=3)
    itself = long_range_score(look([0, 0, 0, 0, 0, 0, 1, 0]), far=3)
    assert few == pytest.approx(0.5)
    assert few > alike > itself == 0


def test_of_a_matrix_the_farsight_is_the_mean_over_rows_that_have_far_cells() -> None:
    matrix = np.eye(6)
    assert long_range_score(look(matrix, step=None), far=2) == 0
    matrix[5] = [1, 0, 0, 0, 0, 0]
    assert long_range_score(look(matrix, step=None), far=2) == pytest.approx(1 / 4)


def test_the_head_is_the_one_that_the_rule_names(model: ls.LogSparse) -> None:
    head, found = chosen(model, layer=1, step=0)
    looks = [model.attention(layer=1, head=one) for one in (0, 1)]
    assert head == int(np.argmax([long_range_score(one, 6) for one in looks]))
    np.testing.assert_array_equal(found.weights, looks[head].weights)


def test_layers_are_counted_from_1_and_those_that_do_not_exist_are_left_out(model: ls.LogSparse) -> None:
    trace = attention_of_layers(model)
    (layer,) = trace["layers"]
    assert layer["layer"] == 2
    expected = model.attention(layer=1, head=layer["head"]).weights
    np.testing.assert_allclose(array(layer["weights"]), expected, rtol=1e-3)
    assert trace["window"]["context"] == 24
    assert trace["window"]["times"][-1] == "1970-01-06T05:00"
    assert len(trace["window"]["values"]) == 30
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace


def test_the_matrix_comes_back_whole(model: ls.LogSparse) -> None:
    trace = attention_of_all_positions(model)
    found = whole_matrix(trace["matrix"]["weights"])
    expected = model.attention(layer=1, head=trace["matrix"]["head"], step=None).weights
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
