"""Tables 1 to 4: every cell of the paper has a run, settings fit, and rows appear beside the paper's numbers."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import small
from logsparse import presets
from logsparse.attention.pattern import full
from logsparse.defaults import layers_needed
from logsparse.forecaster import LogSparse
from logsparse.paper import tables
from logsparse.paper.cases import CELLS, SPARSE, TABLES, Case, models_of
from logsparse.paper.experiment import UNIDENTIFIED, Experiment
from logsparse.paper.ledger import COLUMNS, Row, Run

MODELS = ("paper", "default")


def row(case: str, model: str, **facts: str) -> Row:
    usual = {"case": case, "model": model, "minutes": "1", "R0.9": "0.1", "data": "abc"}
    return {**dict.fromkeys(COLUMNS, ""), **usual, **facts}


@pytest.mark.parametrize("name", [one.name for one in tables.TABLES_OF_THE_PAPER])
def test_every_number_of_the_paper_has_a_model_and_a_case(name: str) -> None:
    _, cases, published = TABLES[name]
    assert set(published) <= set(cases)
    assert {model for case in published.values() for model in case} <= set(models_of(name))
    assert models_of(name)[0] == "seasonal-naive"


@pytest.mark.parametrize("name", TABLES)
def test_the_settings_of_every_own_model_forecast_the_horizon_of_its_case(name: str) -> None:
    for case in TABLES[name][1].values():
        for model, make in case.configs.items():
            assert make().horizon == case.horizon, (case.data, model)


def test_sparse_and_full_models_have_the_lengths_and_cells_of_the_paper() -> None:
    for title, sparse, short in (("electricity-f, 1 day x 7", 768, 293), ("traffic-f, 1 day x 7", 576, 254)):
        configs = TABLES["sparse"][1][title].configs
        lengths = {model: make().length for model, make in configs.items()}
        assert lengths["sparse"] == lengths["full-length"] == lengths["sparse+conv"] == sparse
        assert lengths["full-memory"] == lengths["full+conv-memory"] == short
        assert set(configs) == set(SPARSE[title])
    for title, sparse, cells, short in (
        ("traffic-c20-hourly, 1 day x 28", 192, 80, 124),
        ("parking-germany-15min, 1 day x 7", 768, 112, 293),
    ):
        stand_in = TABLES["sparse"][1][title].configs
        found = {model: (make().length, make().model.kernel) for model, make in stand_in.items()}
        assert found["sparse+conv"] == found["full+conv-length"] == (sparse, 6)
        assert found["full-memory"] == (short, 1)
        assert len(stand_in["sparse"]().model.patterns[0].distances(sparse)) == cells
        assert round((sparse * cells) ** 0.5) == short


@pytest.mark.parametrize("title", TABLES["sparse"][1])
def test_sparse_models_have_layers_enough_to_reach_their_whole_window_and_full_ones_as_many(title: str) -> None:
    configs = {model: make() for model, make in TABLES["sparse"][1][title].configs.items()}
    for model, config in configs.items():
        (pattern,) = config.model.patterns
        enough = pattern.layers_to_reach(config.length)
        assert enough is not None, model
        assert config.model.layers >= enough, model
    assert len({config.model.layers for config in configs.values()}) == 1


def test_compared_patterns_have_equal_cells_and_reach_the_whole_window_but_for_logsparse_itself() -> None:
    (case,) = TABLES["patterns"][1].values()
    for name, config in ((name, make()) for name, make in case.configs.items()):
        patterns = config.model.layer_patterns
        cells = {len(pattern.distances(config.length)) for pattern in patterns}
        assert cells == ({9} if name == "log-9" else {CELLS}), name
        needed = layers_needed(patterns[::-1], config.length)
        assert needed is not None, name
        assert (needed <= config.model.layers) is (name != "log-9"), name


def test_models_that_are_compared_are_trained_alike_and_differ_in_what_they_are_compared_by() -> None:
    for name in ("kernels", "sparse", "patterns"):
        for title, case in TABLES[name][1].items():
            configs = [make() for make in case.configs.values()]
            assert len({config.train for config in configs}) == 1, title
            alike = [replace(one, context=1, model=replace(one.model, kernel=1, patterns=(full(),))) for one in configs]
            assert len({str(config) for config in alike}) == 1, title


def test_a_missing_set_has_no_runs_and_is_shown_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    granularities = next(one for one in tables.TABLES_OF_THE_PAPER if one.name == "granularities")
    assert granularities.runs(1, granularities.models) == []
    (table,) = granularities.tables([], {})
    assert {line[-1] for line in table.lines} == {"no data"}
    (line,) = [line for line in table.lines if line[:2] == ["solar, 1 day x 7", "paper"]]
    assert line[2:] == ["paper's", "-", "0.210/0.082", *"-----", "no data"]


def test_of_several_seeds_the_one_with_the_lowest_validation_loss_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    solar = "solar, 1 day x 7"
    rows = [
        row(solar, "paper", **{"R0.5": f"0.{seed}", "validation_nll": loss, "seed": str(seed), "steps": "9"})
        for seed, loss in enumerate("312")
    ]
    (table,) = next(one for one in tables.TABLES_OF_THE_PAPER if one.name == "granularities").tables(rows, {})
    shown = {line[1]: (line[3], line[6]) for line in table.lines if line[0] == solar}
    assert shown["paper"] == ("0.1000/0.1000", "3")


def test_a_line_says_what_it_stands_in_for_and_that_its_row_does_not_identify_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    case = "traffic-c20-hourly, 1 day x 28"
    rows = [row(case, "k=9", **{"R0.5": "0.2", "data": ""}), row(case, "k=6", **{"R0.5": "0.2"})]
    (table,) = tables.KERNELS_TABLE.tables(rows, {})
    notes = {line[1]: line[-1] for line in table.lines if line[0] == case}
    assert notes["k=9"] == f"stands in for traffic-c, 1 day x 7; {UNIDENTIFIED}"
    assert notes["k=6"] == "stands in for traffic-c, 1 day x 7"
    assert notes["k=1"] == "stands in for traffic-c, 1 day x 7; no data"


def test_a_set_without_a_past_is_forecast_by_seasonal_naive_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "locate", lambda one: Path() if one.name == "electricity-c-fortnight" else None)
    main = tables.MAIN_TABLE
    assert [run.model for run in main.runs(3, main.models)] == ["seasonal-naive"]
    (table,) = main.tables([row("electricity-c-fortnight, 1 day x 7", "seasonal-naive", **{"R0.5": "0.0693"})], {})
    (line,) = [line for line in table.lines if line[0].startswith("electricity-c-fortnight")]
    assert line[1:4] == ["seasonal-naive", "part", "0.0693/0.1000"]
    assert line[-1] == "the paper's test week itself, without the years before it"


def test_a_line_says_how_far_its_model_was_trained_and_whether_it_beats_seasonal_naive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    case = "parking-germany-15min, 1 day x 7"
    trained = {"config": json.dumps({"train": {"batch": 4, "patience": None}}), "steps": "500", "seed": "0"}
    rows = [
        row(case, "seasonal-naive", **{"R0.5": "0.2"}),
        row(case, "sparse", **{"R0.5": "0.1"}, **trained),
        row(case, "full-memory", **{"R0.5": "0.3"}, **trained),
    ]
    curves: dict[tuple[str, str], dict[str, Any]] = {
        (case, "sparse"): {"0": {"curve": {"validation_nll": [5.0, 2.0, 1.0, 1.0]}}},
        (case, "full-memory"): {"0": {"curve": {"validation_nll": [5.0, 4.0, 3.0, 2.0]}}},
    }
    (table,) = tables.SPARSE_TABLE.tables(rows, curves)
    shown = {line[1]: [line[2], *line[5:9], line[-1]] for line in table.lines if line[0] == case}
    about = "stands in for electricity-f, 1 day x 7"
    assert shown["seasonal-naive"] == ["stand-in", "-", "-", "-", "-", about]
    assert shown["sparse"] == ["stand-in", "2,000", "1", "yes", "yes", about]
    reason = "worse than seasonal naive: no evidence, its validation loss was still falling"
    assert shown["full-memory"] == ["stand-in", "2,000", "1", "no", "no", f"{about}; {reason}"]


@pytest.fixture
def tiny(hourly: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A case of two days at the end of two short series, its own model in small."""
    config = replace(small.config(epochs=1), horizon=24, context=30)
    left = {"paper": lambda model: {"left": [model.horizon, model.seed]}}
    case = Case("solar", 24, 1, {"paper": lambda: config}, leaves=left)
    monkeypatch.setitem(TABLES, "tiny", ("Tiny", {"here": case}, {}))
    monkeypatch.setattr(tables, "checked", lambda _name: tables_panel(hourly))
    return case


def tables_panel(frame: pl.DataFrame) -> object:
    from logsparse.data.frame import to_panel

    return to_panel(frame)


@pytest.mark.parametrize("model", ["paper", "seasonal-naive"])
def test_a_run_returns_all_facts_of_a_row(model: str, tiny: Case, tmp_path: Path) -> None:
    del tiny
    facts = tables.TABLES_OF_THE_PAPER[0].run(Run("tiny", "here", model), folder=tmp_path / "run", verbose=False)
    assert 0 <= float(facts["R0.5"]) < 2
    assert facts["minutes"] >= 0
    assert ("steps" in facts) == (model == "paper")
    if model == "paper":
        assert len(facts["trace"]["curve"]["nll"]) == 1
        assert facts["trace"]["left"] == [24, 0]
    assert list(facts["trace"]["losses"]) == (["mean-path", "ancestral"] if model == "paper" else [model])


def test_a_run_is_known_by_its_settings_and_the_whole_set_before_it_is_done(
    tiny: Case, hourly: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [Run("tiny", "here", model, budget=budget) for model in (*MODELS, "seasonal-naive") for budget in (None, 5)]
    found = tables.MAIN_TABLE.identify(runs)
    assert list(found) == runs
    own, ours, naive = (found[run] for run in runs[::2])
    assert own.config["model"]["layers"] == tiny.configs["paper"]().model.layers
    assert (own.config["method"], own.config["samples"]) == ("mean-path", 100)
    # What follows from the data is worked out: a change of the defaults is another run.
    assert ours.config["model"]["lags"][:3] == [1, 2, 3]
    assert naive.config == {"horizon": 24, "season": None}
    # The budget is no setting: it stands beside them.
    assert all(found[run] == found[replace(run, budget=None)] for run in runs)
    assert len({one.data for one in found.values()}) == 1
    later = hourly.with_columns(pl.when(pl.int_range(pl.len()) == pl.len() - 1).then(99.0).otherwise("y").alias("y"))
    monkeypatch.setattr(tables, "checked", lambda _name: tables_panel(later))
    assert tables.MAIN_TABLE.identify(runs[:1])[runs[0]].data != own.data


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_fitted_with_the_settings_it_is_known_by(model: str, tiny: Case, tmp_path: Path) -> None:
    run = Run("tiny", "here", model, seed=3, budget=0.02)
    fitted: list[LogSparse] = []

    def leave(one: LogSparse) -> dict[str, Any]:
        fitted.append(one)
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TABLES["tiny"][1], "here", replace(tiny, leaves={model: leave}))
        tables.MAIN_TABLE.run(run, folder=tmp_path, verbose=False)
    known = tables.MAIN_TABLE.identify([run])[run].config
    config = json.loads(json.dumps(fitted[0].config_.to_dict()))
    assert config["train"].pop("minutes") == 0.02
    assert known["train"].pop("minutes") is None
    assert {name: known[name] for name in config} == config
    assert fitted[0].seed == 3


def test_deepar_with_the_settings_of_the_paper_stands_beside_its_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    solar, panel = "solar, 1 day x 7", small.panel(series=2, steps=1200)
    monkeypatch.setattr(tables, "checked", lambda _name: panel)
    names = ("paper", "deepar-paper", "default", "deepar")
    assert set(names) <= set(models_of("granularities"))
    found = tables.GRANULARITIES_TABLE.identify([Run("granularities", solar, name) for name in names])
    paper, theirs, ours, recipe = (one.config for one in found.values())
    assert (theirs["model"]["layers"], theirs["model"]["width"], theirs["model"]["lags"]) == (3, 40, [1])
    assert [theirs[name] for name in ("context", "features", "train")] == [
        paper[name] for name in ("context", "features", "train")
    ]
    # The authors fed the mean back; DeepAR feeds its own samples.
    assert [one["method"] for one in (paper, theirs, ours, recipe)] == ["mean-path", "ancestral", "two-way", "two-way"]
    assert recipe["train"] == ours["train"]
    assert TABLES["granularities"][2][solar]["deepar-paper"] == (0.222, 0.093)


def test_models_of_the_paper_take_five_seeds_on_its_own_sets_and_one_elsewhere_unless_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "locate", lambda _dataset: Path())

    def seeds(table: Experiment, asked: int | None, title: str) -> dict[str, int]:
        return Counter(run.model for run in table.runs(asked, table.models) if run.case == title)

    solar, granularities = "solar, 1 day x 7", tables.GRANULARITIES_TABLE
    by_default = seeds(granularities, None, solar)
    assert (by_default["paper"], by_default["deepar-paper"]) == (5, 5)
    assert (by_default["default"], by_default["deepar"], by_default["arima"]) == (1, 1, 1)
    assert seeds(granularities, 2, solar)["paper"] == seeds(granularities, 2, solar)["default"] == 2
    stand_in = seeds(tables.KERNELS_TABLE, None, "traffic-c20-hourly, 1 day x 28")
    assert (stand_in.pop("seasonal-naive"), set(stand_in.values())) == (1, {3})
    assert seeds(tables.MAIN_TABLE, None, "cambridge-buildings, 7 days")["paper"] == 1
    assert seeds(tables.KERNELS_TABLE, None, "traffic-c, 1 day x 7")["k=9"] == 5
    # A fit with the same settings trains one.
    assert {make().train.seeds for make in presets.NAMES.values()} == {1}


def test_a_case_that_ends_earlier_learns_from_scores_on_and_is_known_by_the_cut_set(
    tiny: Case, hourly: pl.DataFrame, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Run("tiny", "here", "seasonal-naive")
    whole = tables.MAIN_TABLE.identify([run])[run].data
    last = hourly["ds"].max()
    assert last is not None
    until = hourly["ds"].unique().sort()[-25]
    monkeypatch.setitem(TABLES["tiny"][1], "here", replace(tiny, until=f"{until}"))
    cut = tables.MAIN_TABLE.identify([run])[run].data
    scores = tables.MAIN_TABLE.run(run, folder=tmp_path, verbose=False)["R0.5"]
    monkeypatch.setitem(TABLES["tiny"][1], "here", tiny)
    monkeypatch.setattr(tables, "checked", lambda _name: tables_panel(hourly.filter(pl.col("ds") <= until)))
    assert whole != cut == tables.MAIN_TABLE.identify([run])[run].data
    assert tables.MAIN_TABLE.run(run, folder=tmp_path, verbose=False)["R0.5"] == scores


# Every case of the evidence that has data of its own: the last steps of its real set would take hours.
NEW = [
    (task, title)
    for task, title in (
        *(("kernels", title) for title in ("solar, 1 day x 28", "traffic-c20-hourly, 1 day x 28")),
        *(("sparse", title) for title in ("traffic-c20-hourly, 1 day x 28", "parking-germany-15min, 1 day x 7")),
        *(("main", f"cambridge-buildings, {days}") for days in ("1 day x 7", "7 days")),
    )
]


@pytest.mark.parametrize(("task", "title"), NEW, ids=str)
def test_each_own_model_of_a_new_case_runs_on_little_data(
    task: str, title: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = TABLES[task][1][title]
    panel = small.panel(series=2, steps=case.horizon * 2 + 900)
    monkeypatch.setattr(tables, "checked", lambda _name: panel)
    for model, make in list(case.configs.items())[:: len(case.configs) - 1]:
        few = replace(make().train, windows=4, batch=2, validate_every=1, validation_windows=2)
        config = replace(make(), train=few)
        short = replace(case, windows=1, until=None, configs={**case.configs, model: partial(replace, config)})
        monkeypatch.setitem(TABLES[task][1], title, short)
        facts = tables.MAIN_TABLE.run(Run(task, title, model), folder=tmp_path / model, verbose=False)
        assert float(facts["R0.5"]) > 0
        assert len(facts["trace"]["curve"]["validation_nll"]) == 2


def test_a_model_that_is_not_trained_has_no_budget_and_no_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "locate", lambda one: Path() if one.name == "solar" else None)
    runs = tables.GRANULARITIES_TABLE.runs(2, ["paper", "default", "arima", "seasonal-naive"], 25)
    found = [(run.model, run.seed, run.budget) for run in runs]
    untrained = [("arima", 0, None), ("seasonal-naive", 0, None)]
    # The first seed of every model before the second of any.
    assert found == [("paper", 0, 25), ("default", 0, 25), *untrained, ("paper", 1, 25), ("default", 1, 25)]
