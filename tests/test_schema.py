"""Requests of the HTTP interface: KServe's own examples are valid, and so is the document that describes them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from logsparse.data.calendar import Freq
from logsparse.errors import ConfigError
from logsparse.serving.schema import STEPS, ForecastQuery, ForecastRequest, definitions, levels_of


def test_a_request_with_all_fields_of_kserve_is_read() -> None:
    entry = {
        "type": "univariate_time_series",
        "name": "sales",
        "series": [1.0, None, 3],
        "frequency": "D",
        "start_timestamp": "2024-01-01T00:00:00Z",
        "unknown": 1,
    }
    options = {"horizon": 3, "quantiles": [0.1, 0.9], "seed": 1}
    request = ForecastRequest.model_validate(
        {"model": "m", "inputs": [entry], "options": options, "metadata": {"a": "b"}}
    )
    assert request.inputs[0].series == [1.0, None, 3.0]
    assert (request.options.horizon, request.options.quantiles) == (3, [0.1, 0.9])


def test_model_and_options_may_be_left_out() -> None:
    request = ForecastRequest.model_validate({"inputs": [{"name": "a", "series": [1], "frequency": "H"}]})
    assert (request.model, request.options.horizon, request.options.quantiles) == (None, None, None)


@pytest.mark.parametrize("wrong", [{"inputs": []}, {}, {"inputs": [{"name": "", "series": [1], "frequency": "H"}]}])
def test_a_request_without_series_or_names_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ForecastRequest.model_validate(wrong)


def test_every_word_of_kserve_for_a_step_is_one_of_the_library() -> None:
    assert {word: str(Freq.parse(step)) for word, step in STEPS.items() if len(word) == 1} == {
        "S": "s", "T": "min", "H": "h", "D": "d", "W": "w", "M": "MS", "Q": "QS", "Y": "YS",
    }  # fmt: skip


def test_levels_of_a_query() -> None:
    assert levels_of("0.1, 0.5,0.9") == [0.1, 0.5, 0.9]
    assert levels_of(None) is None
    with pytest.raises(ConfigError, match=r"write quantiles=0.1,0.5,0.9"):
        levels_of("0.1;0.9")


def test_only_the_columns_that_were_named_are_passed_on() -> None:
    query = ForecastQuery(id_col="shop", dayfirst=True, horizon=3)  # type: ignore[call-arg]
    assert query.columns() == {"id_col": "shop", "dayfirst": True}


def test_schemas_refer_to_each_other_by_components() -> None:
    found = definitions([ForecastRequest])
    assert set(found) == {"ForecastRequest", "SeriesInput", "ForecastOptions"}
    assert found["ForecastRequest"]["properties"]["inputs"]["items"]["$ref"] == "#/components/schemas/SeriesInput"
