"""The cases of tables 1 to 4: a set, its rolling windows and the settings of the paper's models on it, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from logsparse import presets
from logsparse.attention.pattern import full, restart
from logsparse.config import Config
from logsparse.forecaster import LogSparse
from logsparse.tasks.heads import look_of_all_positions, look_of_layers
from logsparse.tasks.published import GRANULARITIES, KERNELS, MAIN, SPARSE, Scores

NAIVE, OURS = "seasonal-naive", "default"
DEEPAR = "deepar-paper"
"""DeepAR with the settings of the paper; `deepar` has the recipe of our default."""
SEEDS = 5
"""Of each of the paper's own models on its own sets, as in the paper; of all others one."""
KERNEL_SIZES = (1, 2, 3, 6, 9)


@dataclass(frozen=True)
class Case:
    """Rolling windows at the end of a set, and settings of the paper's own models on it, by the model's name."""

    data: str
    horizon: int
    windows: int
    configs: Mapping[str, Callable[[], Config]]
    stands_in_for: str | None = None
    leaves: Mapping[str, Callable[[LogSparse], dict[str, Any]]] = field(default_factory=dict)
    """What a fitted model leaves for a figure beside its curve, by the model's name."""
    has_past: bool = True
    """Whether there is something to learn from before the windows; without, there is seasonal naive alone."""


def _fine_models(make: Callable[..., Config], short: int) -> dict[str, Callable[[], Config]]:
    """Six models of table 3: with and without convolution, sparse or full, `short` the context of equal memory."""
    return {
        f"{kind}{'+conv' if conv else ''}{constraint}": partial(make, sparse=kind == "sparse", conv=conv, **context)
        for conv in (False, True)
        for kind, constraint, context in (
            ("full", "-memory", {"context": short}),
            ("full", "-length", {}),
            ("sparse", "", {}),
        )
    }


def solar_fine(*, sparse: bool = True, conv: bool = True, context: int = 1008) -> Config:
    """Ten minutes: L = 1152 with 128 cells a row, or full attention of the same memory at L = 384.

    Instead of the six layers of electricity-f, the fewest that let the sparse pattern reach its whole window, the same
    for full attention; and a week held back instead of a tenth, which would be all that is known of August.
    """
    base, pattern = presets.electricity_f(sparse=False, conv=conv), restart(144, width=8)
    layers = pattern.layers_to_reach(1152)
    assert layers is not None, "every past is reached in the end"
    model = replace(base.model, layers=layers, patterns=(pattern if sparse else full(),))
    train = replace(base.train, held_back=1008)
    config = replace(base, context=context, horizon=144, model=model, train=train)
    return _one_pass(config, windows=3_000, batch=4)


def traffic_stand_in(days: int, kernel: int) -> Config:
    """The paper's network for traffic-c.

    Shares of a road's use, some hundredths, are divided by their mean, not by 1 more than it; and the rate rises and
    falls: the paper's own settings would take many times as many windows (docs/LOG.md).
    """
    config = _one_pass(presets.traffic_c(days, kernel), windows=32_000, batch=16, looks=40)
    train = replace(config.train, schedule="one-cycle", lr=3e-3, average=0.99)
    return replace(config, model=replace(config.model, scale="mean"), train=train)


def ten_layers() -> Config:
    """The paper's model of traffic-f with full, canonical attention, at hours instead of 20 minutes."""
    fine, hourly = presets.traffic_f(sparse=False, conv=False), traffic_stand_in(1, kernel=1)
    model = replace(fine.model, scale=hourly.model.scale)
    return _one_pass(replace(hourly, model=model, train=fine.train), windows=16_000, batch=16)


def _one_pass(config: Config, *, windows: int, batch: int, looks: int = 10) -> Config:
    """As many windows as two cores can learn from in minutes, the same for all models of a stand-in.

    In small batches: their many steps count for more than the windows of each.
    """
    train = replace(config.train, windows=windows, batch=batch, epochs=1, patience=None)
    return replace(config, train=replace(train, look_every=windows // batch // looks, validation_windows=16 * batch))


def _compared(make: Callable[[], Config]) -> dict[str, Callable[[], Config]]:
    """The paper's own model and its DeepAR, on the same windows."""
    return {"paper": make, DEEPAR: lambda: presets.deepar(make())}


def _kernels(make: Callable[..., Config]) -> dict[str, Callable[[], Config]]:
    return {f"k={kernel}": partial(make, 1, kernel) for kernel in KERNEL_SIZES}


# Figures 2 and 6 are drawn from runs of the tables, where the paper's own sets are here.
_MATRIX, _LAYERS = {"k=1": look_of_all_positions}, {"full-length": look_of_layers}

TABLES: dict[str, tuple[str, dict[str, Case], dict[str, dict[str, Scores]]]] = {
    "main": (
        "Table 1, all methods",
        {
            "electricity-c, 1 day x 7": Case("electricity-c", 24, 7, _compared(presets.electricity_c)),
            "electricity-c-fortnight, 1 day x 7": Case(
                "electricity-c-fortnight", 24, 7, {}, "electricity-c, 1 day x 7", has_past=False
            ),
            "electricity-c, 7 days": Case("electricity-c", 168, 1, _compared(partial(presets.electricity_c, 7))),
            "traffic-c, 1 day x 7": Case("traffic-c", 24, 7, _compared(presets.traffic_c)),
            "traffic-c, 7 days": Case("traffic-c", 168, 1, _compared(partial(presets.traffic_c, 7))),
        },
        MAIN,
    ),
    "kernels": (
        "Table 2, size of the kernel",
        {
            "electricity-c, 1 day x 7": Case("electricity-c", 24, 7, _kernels(presets.electricity_c)),
            "traffic-c, 1 day x 7": Case("traffic-c", 24, 7, _kernels(presets.traffic_c), leaves=_MATRIX),
            "traffic-c20-hourly, 1 day x 7": Case(
                "traffic-c20-hourly", 24, 7, _kernels(traffic_stand_in), "traffic-c, 1 day x 7", _MATRIX
            ),
        },
        KERNELS,
    ),
    "sparse": (
        "Table 3, sparse against full attention",
        {
            "electricity-f, 1 day x 7": Case("electricity-f", 96, 7, _fine_models(presets.electricity_f, 197)),
            "traffic-f, 1 day x 7": Case("traffic-f", 72, 7, _fine_models(presets.traffic_f, 182), leaves=_LAYERS),
            "solar-10min, 1 day x 7": Case(
                "solar-10min", 144, 7, _fine_models(solar_fine, 240), "electricity-f and traffic-f"
            ),
        },
        SPARSE,
    ),
    "granularities": (
        "Table 4, various granularities",
        {
            "electricity-f, 1 day x 7": Case(
                "electricity-f", 96, 7, _compared(partial(presets.electricity_f, sparse=False))
            ),
            "traffic-f, 1 day x 7": Case("traffic-f", 72, 7, _compared(partial(presets.traffic_f, sparse=False))),
            "solar, 1 day x 7": Case("solar", 24, 7, _compared(presets.solar)),
            "m4-hourly, 2 days": Case("m4-hourly", 48, 1, _compared(presets.m4_hourly)),
            "wind, 30 days x 7": Case("wind", 30, 7, _compared(presets.wind)),
        },
        GRANULARITIES,
    ),
    "learned-attention": (
        "Figure 2, scores of its model",
        {
            "traffic-c20-hourly, 1 day x 7": Case(
                "traffic-c20-hourly", 24, 7, {"full-length": ten_layers}, "traffic-f, 1 day x 7", _LAYERS
            ),
        },
        SPARSE,
    ),
}
# The paper's baselines, beside its own model and our default; tables 2 and 3 compare its own models alone.
RIVALS = {
    "main": (OURS, "arima", "ets", "trmf", "deepar", "deepstate"),
    "granularities": (OURS, "arima", "ets", "trmf", "deepar", "deepstate"),
}


_OWN = {model for _, cases, _ in TABLES.values() for case in cases.values() for model in case.configs}


def models_of(name: str) -> tuple[str, ...]:
    """Seasonal naive first, always: what is not better than it is not worth its minutes."""
    own = [model for case in TABLES[name][1].values() for model in case.configs]
    return (NAIVE, *dict.fromkeys(own), *RIVALS.get(name, ()))


def seeds_of(model: str, case: Case) -> int:
    """How many runs the model has by default on the set."""
    return SEEDS if model in case.configs and case.stands_in_for is None else 1


def applies(model: str, case: Case) -> bool:
    """Whether the model is run on the set."""
    if not case.has_past:
        return model == NAIVE
    # TRMF needs series of one span, which those of M4 are not; the paper leaves that cell empty too.
    if model == "trmf" and case.data == "m4-hourly":
        return False
    return model in case.configs or model not in _OWN
