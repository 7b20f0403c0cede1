"""The paper's claims: which rows they compare, what counts as evidence, and when a claim is confirmed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from logsparse.paper.cases import TABLES, models_of
from logsparse.paper.claims import CLAIMS, CLAIMS_TABLE
from logsparse.paper.experiment import UNIDENTIFIED, Traces
from logsparse.paper.ledger import COLUMNS, Row
from logsparse.paper.synthetic import LONG_WAVES

TRAFFIC, PARKING, SOLAR = "traffic-c20-hourly, 1 day x 28", "parking-germany-15min, 1 day x 7", "solar, 1 day x 7"
FLAT, FALLING = [4.0, 1.0, 1.0, 1.0], [4.0, 3.0, 2.0, 1.0]
NAIVE = 0.5


def row(task: str, case: str, model: str, error: float, **facts: str) -> Row:
    usual = {"task": task, "case": case, "model": model, "R0.5": str(error), "data": "abc", "seed": "0"}
    return {**dict.fromkeys(COLUMNS, ""), **usual, **facts}


def ran(task: str, case: str, naive: float = NAIVE, **errors: float) -> list[Row]:
    """Rows of these models and of seasonal naive; k_9 stands for k=9."""
    rows = [row(task, case, model.replace("k_", "k="), error) for model, error in errors.items()]
    return [row(task, case, "seasonal-naive", naive), *rows]


def left(rows: list[Row], curves: dict[str, list[float]] | None = None, spread: float = 0.0) -> Traces:
    """Losses of ten days in proportion to each row's error, `spread` more or less every other day; flat curves."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for number, one in enumerate(rows):
        error, sign = float(one["R0.5"]), -1 if number % 2 else 1
        losses = [error * (1 + spread * (sign if day % 2 else -sign)) for day in range(10)]
        days = [str(day) for day in range(10)]
        trace: dict[str, Any] = {"losses": {"mean-path": {"of": days, "R0.5": losses, "size": [1.0] * 10}}}
        if one["model"] != "seasonal-naive":
            trace["curve"] = {"validation_nll": (curves or {}).get(one["model"], FLAT)}
        found.setdefault((one["case"], one["model"]), {})[one["seed"]] = trace
    return found


def lines(rows: list[Row], traces: Traces | None = None) -> list[list[str]]:
    found = CLAIMS_TABLE.tables(rows, left(rows) if traces is None else traces)
    return found[1].lines if found else []


def sentences(rows: list[Row], traces: Traces | None = None) -> dict[str, str]:
    found = CLAIMS_TABLE.tables(rows, left(rows) if traces is None else traces)[0].lines
    return {claim: verdict for _, claim, verdict in found}


def test_every_claim_is_about_models_of_its_tables() -> None:
    for claim in CLAIMS:
        for task, pairs in claim.pairs.items():
            models = LONG_WAVES.models if task == "long-waves" else models_of(task)
            assert {model for pair in pairs for model in pair} <= set(models), claim.says
    assert set(CLAIMS_TABLE.tasks) - {"synthetic", "long-waves"} <= set(TABLES)


def test_a_claim_is_shown_with_our_and_the_papers_numbers_once_both_models_have_run() -> None:
    assert lines(ran("kernels", TRAFFIC, k_1=0.25)) == []
    ours, theirs = ["0.2400 / 0.2500", "1 / 1", "-4.0 % [-4.0, -4.0]", "yes"], ["0.122 / 0.134", "yes"]
    note = "stands in for traffic-c, 1 day x 7"
    found = lines(ran("kernels", TRAFFIC, k_1=0.25, k_9=0.24))
    assert found == [["1", TRAFFIC, "k=9 / k=1", *ours, *theirs, note]]


@pytest.mark.parametrize(("error", "word"), [(0.24, "yes"), (0.2499, "open"), (0.251, "open"), (0.26, "no")])
def test_a_claim_holds_only_where_the_interval_excludes_zero(error: float, word: str) -> None:
    rows = ran("kernels", TRAFFIC, k_1=0.25, k_9=error)
    ((*_, interval, holds, _, _, _),) = lines(rows, left(rows, spread=0.02))
    assert holds == word, interval


def test_a_model_that_does_not_beat_seasonal_naive_is_no_evidence() -> None:
    rows = ran("kernels", TRAFFIC, naive=0.24, k_1=0.25, k_9=0.2)
    (line,) = lines(rows)
    assert (line[6], line[-1].split("; ")[1]) == ("-", "k=1 does not beat seasonal naive")
    assert sentences(rows)["convolution helps"] == "not tested: 1 comparison run, none is evidence"
    (line,) = lines(rows[1:])
    assert line[-1].endswith("; seasonal naive has not run")


def test_a_network_whose_loss_was_still_falling_is_no_evidence() -> None:
    rows = ran("kernels", TRAFFIC, k_1=0.25, k_9=0.2)
    (line,) = lines(rows, left(rows, {"k=9": FALLING}))
    assert (line[6], line[-1].split("; ")[1]) == ("-", "the loss of k=9 was still falling")


def test_rows_that_do_not_identify_their_run_or_left_no_losses_are_no_evidence() -> None:
    rows = ran("kernels", TRAFFIC, k_1=0.25, k_9=0.2)
    (line,) = lines(rows, {})
    assert line[5:7] == ["-", "-"]
    about = "stands in for traffic-c, 1 day x 7"
    assert line[-1] == f"{about}; no losses with the score of k=9, seed 0; k=1, seed 0"
    (line,) = lines([rows[0], {**rows[1], "data": ""}, rows[2]])
    assert line[-1] == f"{about}; {UNIDENTIFIED}"


def test_a_seed_without_its_losses_or_with_those_of_another_score_is_no_evidence() -> None:
    rows = [*ran("kernels", TRAFFIC, k_1=0.25, k_9=0.2), row("kernels", TRAFFIC, "k=9", 0.2, seed="1")]
    traces = left(rows)
    (line,) = lines(rows, traces)
    assert (line[4], line[6]) == ("2 / 1", "yes")
    del traces[TRAFFIC, "k=9"]["1"]  # type: ignore[attr-defined]
    (line,) = lines(rows, traces)
    assert (line[5], line[6], line[-1].split("; ")[1]) == ("-", "-", "no losses with the score of k=9, seed 1")
    (line,) = lines([{**one, "R0.5": "0.1"} if one["seed"] == "1" else one for one in rows], left(rows))
    assert (line[6], line[-1].split("; ")[1]) == ("-", "no losses with the score of k=9, seed 1")


def test_a_training_that_came_apart_before_its_end_is_no_evidence() -> None:
    rows = ran("kernels", TRAFFIC, k_1=0.25, k_9=0.2)
    traces = left(rows)
    traces[TRAFFIC, "k=9"]["0"]["curve"]["validation_wql"] = [0.4, 0.2, 0.1, 0.106]
    (line,) = lines(rows, traces)
    assert (line[6], line[-1].split("; ")[1]) == ("-", "a training of k=9 came apart before its end")


def test_nearly_as_good_is_what_the_paper_itself_lost() -> None:
    def found(full: float) -> str:
        models = {"sparse": 0.2, "full-length": full}
        return lines(ran("sparse", PARKING, **models))[0][6]

    assert {full: found(full) for full in (0.21, 0.19, 0.18)} == {0.21: "yes", 0.19: "yes", 0.18: "no"}


def test_in_the_synthetic_study_the_mean_of_the_seeds_is_compared_with_the_best_deepar() -> None:
    errors = {"transformer": (0.005, 0.035), "deepar-20": (0.05,), "deepar-80": (0.01, 0.01)}
    rows = [
        row("synthetic", case, model, error, seed=str(seed))
        for case in ("t0=96", "t0=7", "all")
        for model, found in errors.items()
        for seed, error in enumerate(found)
    ]
    (line,) = lines(rows)
    assert line[:4] == ["6", "synthetic, t0=96", "transformer / deepar-80", "0.0200 / 0.0100"]
    # The two seeds are far apart.
    assert line[4:] == ["2 / 2", "+100.0 % [-50.0, +250.0]", "open", "-", "-", "the best of 2 sizes of DeepAR"]


def test_long_waves_are_compared_at_equal_memory_and_at_equal_length() -> None:
    models = {"sparse": 0.02, "full-memory": 0.1, "full-length": 0.02}
    found = [line[1:4] + line[6:7] for line in lines(ran("long-waves", "t0=744", **models))]
    assert found == [
        ["t0=744", "sparse / full-memory", "0.0200 / 0.1000", "yes"],
        ["t0=744", "sparse / full-length", "0.0200 / 0.0200", "yes"],
    ]


def test_networks_that_learned_nothing_of_the_distant_past_are_no_evidence() -> None:
    found = lines(ran("long-waves", "t0=744", **{"sparse": 0.1029, "full-memory": 0.1028, "full-length": 0.1026}))
    assert [line[6] for line in found] == ["-", "-"]
    assert {line[-1] for line in found} == {"neither has learned to look 744 steps back"}


def test_each_claim_is_a_sentence_with_its_figures() -> None:
    rows = ran("kernels", TRAFFIC, k_1=0.2, k_2=0.15, k_3=0.2, k_9=0.21)
    found = sentences(rows)
    assert set(found) == {claim.says for claim in CLAIMS}
    assert found["convolution helps"] == (
        "in part: holds in 1 of 3 comparisons, R0.5 differs by -25.0 to +5.0 % (95 % interval -25.0 to +5.0 %), "
        "1 seed each"
    )
    assert found["the Transformer beats DeepAR of the same recipe: only the network differs"] == "not run yet"
    more = [*rows, row("kernels", TRAFFIC, "k=9", 0.21, seed="1")]
    assert sentences(more)["convolution helps"].endswith(" %), 1 to 2 seeds each")


def test_comparisons_that_are_no_evidence_are_counted_apart() -> None:
    rows = ran("kernels", TRAFFIC, k_1=0.2, k_3=0.16, k_9=0.6)
    assert sentences(rows)["convolution helps"] == (
        "confirmed: holds in 1 of 1 comparison, R0.5 differs by -20.0 % (95 % interval -20.0 to -20.0 %), 1 seed each; "
        "1 comparison more, not evidence"
    )


@pytest.mark.parametrize(("error", "word"), [(0.15, "confirmed"), (0.25, "refuted"), (0.2, "not confirmed")])
def test_a_claim_is_confirmed_where_every_comparison_says_so(error: float, word: str) -> None:
    rows = ran("kernels", TRAFFIC, k_1=0.2, k_9=error)
    assert sentences(rows, left(rows, spread=0.02))["convolution helps"].startswith(f"{word}: holds in ")


def test_only_models_of_the_same_recipe_are_compared_as_such() -> None:
    def trained(model: str, method: str, loss: str, width: int) -> Row:
        config = {"method": method, "model": {"width": width, "lags": [1]}, "train": {"loss_on": loss}}
        return row("granularities", SOLAR, model, 0.1, config=json.dumps(config))

    ours = trained("default", "two-way", "both", 48)
    (line,) = lines([ours, trained("deepar", "two-way", "both", 40)])
    assert line[:3] == ["5", SOLAR, "default / deepar"]
    assert lines([ours, trained("deepar", "ancestral", "both", 40)]) == []
    assert lines([ours, trained("deepar", "two-way", "all", 40)]) == []


def test_with_the_settings_of_the_paper_its_own_two_models_meet() -> None:
    models = {"paper": 0.2, "deepar-paper": 0.25}
    (line,) = lines(ran("granularities", SOLAR, **models))
    ours, theirs = ["0.2000 / 0.2500", "1 / 1", "-20.0 % [-20.0, -20.0]", "yes"], ["0.210 / 0.222", "yes"]
    assert line == ["4", SOLAR, "paper / deepar-paper", *ours, *theirs, ""]
