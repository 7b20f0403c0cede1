"""A folder with right checksums and wrong content is refused by name, before anything is built from it."""

from __future__ import annotations

import json
import shutil
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import logsparse as ls
from fuzz.folders import NAMES, original
from logsparse.errors import ConfigError, DataError, LogsparseError
from logsparse.storage import checksum, pack_document
from logsparse.train.checkpoint import pack_tensors

Edit = Callable[[Any], object]


def damaged(name: str, place: Path, file: str, edit: Edit) -> Path:
    """A copy of a fitted model, one of whose files is edited and all of whose checksums are right."""
    shutil.copytree(original(name)[0], place)
    document = json.loads((place / "config.json").read_bytes())
    if file == "config.json":
        edit(document)
    else:
        path = place / file
        if file.endswith(".json"):
            values = json.loads(path.read_bytes())
            edit(values)
            path.write_bytes(json.dumps(values).encode())
        else:
            tensors = {key: tensor.clone() for key, tensor in _tensors(path).items()}
            edit(tensors)
            path.write_bytes(pack_tensors(tensors))
        document["files"][file] = checksum(path.read_bytes())
    document.pop("sha256")
    (place / "config.json").write_bytes(pack_document(document))
    return place


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load

    return load(path.read_bytes())


def put(*keys: Any) -> Edit:
    """The last of these is put where the others lead to."""
    *path, last, value = keys

    def edit(values: Any) -> None:
        for key in path:
            values = values[key]
        values[last] = value

    return edit


def fill(name: str, number: float) -> Edit:
    return lambda tensors: tensors[name].view(-1)[:1].fill_(number)


SERIES, WEIGHTS, HISTORY = "series.json", "model.safetensors", "history.safetensors"
CASES: dict[str, tuple[str, str, Edit, str]] = {
    "lengths beyond the values": ("naive", SERIES, put("panel", "lengths", [5_000_000] * 3), r"of shape \(15000000"),
    "lengths short of the values": ("naive", SERIES, put("panel", "lengths", [59, 60, 60]), r"of shape \(179,\), not"),
    "a length below 1": (
        "naive",
        SERIES,
        put("panel", "lengths", [0, 90, 90]),
        "lengths must be a whole number from 1",
    ),
    "a length of half": ("naive", SERIES, put("panel", "lengths", [59.5, 60.5, 60]), "lengths must be a whole number"),
    "an id twice": ("naive", SERIES, put("panel", "ids", ["a", "a", "c"]), "each once, not"),
    "an id of 100 bits": ("naive", SERIES, put("panel", "ids", [10**30, 1, 2]), "numbers of 64 bits, each once"),
    "ids of two kinds": ("naive", SERIES, put("panel", "ids", [1, "b", "c"]), "numbers of 64 bits, each once"),
    "fewer starts": ("naive", SERIES, put("panel", "starts", [0]), r"starts must be a list of 3, not \[0\]"),
    "static of nothing": ("naive", SERIES, put("panel", "static", "x"), "static must be a dict"),
    "a code out of range": (
        "covariates",
        SERIES,
        put("panel", "static", "kind", "codes", [0, 0, 2]),
        "codes must be a whole number from -1 to 1, not 2",
    ),
    "a zone of nowhere": ("naive", SERIES, put("panel", "origin", "zone", "Mars/Base"), "Mars/Base"),
    "a zone of a number": ("naive", SERIES, put("panel", "origin", "zone", 0.5), "zone must be a text, not 0.5"),
    "an unknown library": ("naive", SERIES, put("panel", "origin", "library", "os"), "library must be one of pandas"),
    "values of another type": ("naive", HISTORY, lambda t: t.update(values=t["values"].long()), "of type float32, not"),
    "values of infinity": ("naive", HISTORY, fill("values", torch.inf), "values must be without infinities"),
    "a series without values": (
        "naive",
        HISTORY,
        lambda t: t["values"][:60].fill_(torch.nan),
        "there for every series",
    ),
    "layers without end": (
        "logsparse",
        SERIES,
        put("learned", "config", "model", "layers", 10**6),
        "layers must be at most 1000",
    ),
    "a width without end": (
        "logsparse",
        SERIES,
        put("learned", "config", "model", "width", 10**6),
        "width must be at most 100000",
    ),
    "a longer context": ("logsparse", SERIES, put("learned", "config", "context", 10**5), "position.* of shape torch"),
    "another horizon": (
        "deepar",
        SERIES,
        put("learned", "config", "horizon", 7),
        "horizon must be a whole .* 3 to 3, not",
    ),
    "a config of text": ("logsparse", SERIES, put("learned", "config", "24x7"), "config must be a dict"),
    "a std of 0": ("logsparse", SERIES, put("learned", "features", "std", 0, 0), "std must be a number from"),
    "fewer means": ("logsparse", SERIES, put("learned", "features", "mean", []), "mean must be a list of"),
    "known ids of numbers": ("logsparse", SERIES, put("learned", "known", "ids", 3), "known/ids must be a list"),
    "fewer births": ("logsparse", SERIES, put("learned", "known", "born", [0]), "born must be a list of 3"),
    "a story of nothing": ("logsparse", SERIES, put("learned", "story", {"rows": 1}), "TypeError: 'int' object"),
    "a weight missing": ("logsparse", WEIGHTS, lambda t: t.pop("output.bias"), "weight output.bias must be there"),
    "a weight too many": (
        "logsparse",
        WEIGHTS,
        lambda t: t.update(x=torch.ones(1)),
        "weight x must be one that its settings ask for",
    ),
    "a weight of another shape": (
        "logsparse",
        WEIGHTS,
        lambda t: t.update({"output.bias": t["output.bias"][None]}),
        r"output.bias must be of shape torch.Size\(\[2\]\), not torch.Size\(\[1, 2\]\)",
    ),
    "a weight of another type": (
        "logsparse",
        WEIGHTS,
        lambda t: t.update({"output.bias": t["output.bias"].double()}),
        "output.bias must be of dtype torch.float32, not torch.float64",
    ),
    "columns of a stranger": (
        "naive",
        "config.json",
        put("config", "columns", {"covariates": ["x"]}),
        "covariates must",
    ),
    "settings missing": ("naive", "config.json", put("config", {"columns": {}}), "KeyError: 'settings'"),
    "a structure of nothing": ("deepstate", SERIES, put("learned", "structure", [1]), "structure must be a dict"),
    "a trend of growth": (
        "deepstate",
        SERIES,
        put("learned", "structure", "trend", 1.5),
        "trend must be a number from 0",
    ),
    "lags of nothing": ("trmf", SERIES, put("learned", "lags", []), "lags must be in order, each once"),
    "fewer loadings": (
        "trmf",
        WEIGHTS,
        lambda t: t.update(loadings=t["loadings"][:2].clone()),
        "loadings must be of shape",
    ),
    "fewer models": ("arima", SERIES, put("learned", "models", []), "models must be a list of 3"),
    "orders without end": (
        "arima",
        SERIES,
        put("learned", "models", 0, "arma", 0, 10**6),
        "arma must be a whole number",
    ),
    "fewer coefficients": ("arima", SERIES, put("learned", "models", 0, "coef", {"x": 1.0}), "coef must be of"),
    "states missing": (
        "ets",
        SERIES,
        put("learned", "models", 0, "par", [0.5, None, None, None]),
        "par must be a list of",
    ),
    "no form": ("ets", SERIES, put("learned", "models", 0, "components", "XXXX"), "components must be a form"),
}


@pytest.mark.parametrize("case", list(CASES))
def test_wrong_content_with_right_checksums_is_refused_by_name(case: str, tmp_path: Path) -> None:
    name, file, edit, reason = CASES[case]
    place = damaged(name, tmp_path / "model", file, edit)
    with pytest.raises(DataError, match=rf"model must hold everything .* as it was saved\. Got .*{reason}") as caught:
        ls.load(place)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("Hint: copy the folder again from its source, or save the model again.")


@pytest.mark.parametrize("number", [torch.inf, -torch.inf, torch.nan])
def test_weights_that_are_not_finite_are_refused(number: float, tmp_path: Path) -> None:
    place = damaged("logsparse", tmp_path / "model", WEIGHTS, fill("output.bias", number))
    with pytest.raises(
        DataError, match=r"weights of a model must be finite numbers\. Got (NaN|infinity) in 'output.bias'"
    ):
        ls.load(place)


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("logsparse", put("learned", "config", "model", "layers", 10**6)),
        ("logsparse", put("learned", "config", "model", "heads", 10**6)),
        ("logsparse", put("learned", "config", "model", "embedding", 10**9)),
        ("no history", put("panel", "lengths", [5_000_000_000] * 3)),
        ("naive", put("panel", "lengths", [5_000_000_000] * 3)),
    ],
)
def test_loading_takes_neither_long_nor_more_memory_than_the_files(name: str, edit: Edit, tmp_path: Path) -> None:
    place = damaged(name, tmp_path / "model", SERIES, edit)
    began = time.perf_counter()
    tracemalloc.start()
    try:
        ls.load(place)
    except LogsparseError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 20_000_000
    assert time.perf_counter() - began < 10


def test_what_is_whole_still_forecasts_the_same(tmp_path: Path) -> None:
    for name in set(NAMES) - {"covariates", "no history"}:
        place = damaged(name, tmp_path / name, SERIES, lambda _values: None)
        assert ls.load(place).predict().equals(original(name)[1])


def test_a_setting_that_cannot_be_changed_is_the_callers_mistake(tmp_path: Path) -> None:
    place = damaged("naive", tmp_path / "model", SERIES, lambda _values: None)
    with pytest.raises(ConfigError, match="Nothing of a saved SeasonalNaive can be changed on loading"):
        ls.load(place, horizon=4)


@pytest.mark.parametrize(("name", "setting"), [("naive", "horizon"), ("deepar", "samples"), ("deepar", "horizon")])
def test_settings_beyond_all_machines_are_refused(name: str, setting: str, tmp_path: Path) -> None:
    place = damaged(name, tmp_path / "model", "config.json", put("config", "settings", setting, 2**62))
    with pytest.raises(ConfigError, match=f"{setting} must be at most 100000"):
        ls.load(place)
