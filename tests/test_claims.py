"""The paper's claims: which rows they compare, and when they count as true here."""

from __future__ import annotations

import json

import pytest

from logsparse.paper.claims import CLAIMS, CLAIMS_TABLE
from logsparse.paper.experiment import UNIDENTIFIED
from logsparse.paper.ledger import COLUMNS, Row
from logsparse.paper.tables import TABLES, models_of

TRAFFIC, FINE = "traffic-c20-hourly, 1 day x 7", "solar-10min, 1 day x 7"


def row(task: str, case: str, model: str, error: float, **facts: str) -> Row:
    usual = {"task": task, "case": case, "model": model, "R0.5": str(error), "data": "abc"}
    return {**dict.fromkeys(COLUMNS, ""), **usual, **facts}


def lines(*rows: Row) -> list[list[str]]:
    found = CLAIMS_TABLE.tables(rows, {})
    return found[1].lines if found else []


def sentences(*rows: Row) -> dict[str, str]:
    return dict(CLAIMS_TABLE.tables(rows, {})[0].lines)


def test_every_claim_is_about_models_of_its_tables() -> None:
    for claim in CLAIMS:
        for task, pairs in claim.pairs.items():
            assert {model for pair in pairs for model in pair} <= set(models_of(task)), claim.says
    assert set(CLAIMS_TABLE.tasks) - {"synthetic"} <= set(TABLES)


def test_a_claim_is_shown_with_ours_and_the_papers_numbers_once_both_models_have_run() -> None:
    one, nine = row("kernels", TRAFFIC, "k=1", 0.25), row("kernels", TRAFFIC, "k=9", 0.24)
    assert lines(one) == []
    ours, theirs = ["0.2400 / 0.2500", "yes"], ["0.122 / 0.134", "yes"]
    note = "stands in for traffic-c, 1 day x 7"
    assert lines(one, nine) == [["convolution helps", TRAFFIC, "k=9 / k=1", *ours, *theirs, note]]


def test_a_comparison_with_a_row_that_does_not_identify_its_run_says_so() -> None:
    (line,) = lines(row("kernels", TRAFFIC, "k=1", 0.25, data=""), row("kernels", TRAFFIC, "k=9", 0.24))
    assert line[-1] == f"stands in for traffic-c, 1 day x 7; {UNIDENTIFIED}"


@pytest.mark.parametrize(
    ("error", "word"),
    [(0.24, "yes"), (0.2499, "about equal"), (0.251, "about equal"), (0.26, "no"), (float("nan"), "-")],
)
def test_a_claim_holds_by_more_than_a_hundredth(error: float, word: str) -> None:
    (line,) = lines(row("kernels", TRAFFIC, "k=1", 0.25), row("kernels", TRAFFIC, "k=9", error))
    assert line[4] == word


def test_nearly_as_good_is_what_the_paper_itself_lost() -> None:
    sparse = row("sparse", FINE, "sparse", 0.2)
    found = {full: lines(sparse, row("sparse", FINE, "full-length", full))[0][4] for full in (0.21, 0.19, 0.18)}
    assert found == {0.21: "yes", 0.19: "yes", 0.18: "no"}


def test_in_the_synthetic_study_the_mean_of_the_seeds_meets_the_best_deepar() -> None:
    errors = {"transformer": (0.01, 0.03), "deepar-20": (0.05,), "deepar-80": (0.01, 0.01)}
    seeds = [
        row("synthetic", case, model, error)
        for case in ("t0=96", "t0=7", "all")
        for model, found in errors.items()
        for error in found
    ]
    (line,) = lines(*seeds)
    pair = ["synthetic, t0=96", "transformer / deepar-80", "0.0200 / 0.0100", "no"]
    assert line == [
        "in the synthetic study the Transformer beats DeepAR, each with a learning rate of its own",
        *pair,
        "-",
        "-",
        "the best of 2 sizes of DeepAR",
    ]


def test_each_claim_is_told_in_a_sentence_with_its_figures() -> None:
    errors = {"k=1": 0.2, "k=2": 0.15, "k=3": 0.2, "k=9": 0.21}
    found = sentences(*(row("kernels", TRAFFIC, model, error) for model, error in errors.items()))
    assert set(found) == {claim.says for claim in CLAIMS}
    assert found["convolution helps"] == (
        "in part: holds in 1 of 3 comparisons, R0.5 differs by -25 to +5 %, in the median +0 %"
    )
    assert found["the Transformer beats DeepAR of the same recipe: only the network differs"] == "not run yet"


def test_only_models_of_the_same_recipe_are_compared_as_such() -> None:
    def ran(model: str, method: str, loss: str, width: int) -> Row:
        config = {"method": method, "model": {"width": width, "lags": [1]}, "train": {"loss_on": loss}}
        return row("granularities", "solar, 1 day x 7", model, 0.1, config=json.dumps(config))

    ours = ran("default", "two-way", "both", 48)
    (line,) = lines(ours, ran("deepar", "two-way", "both", 40))
    assert line[:3] == [CLAIMS[-2].says, "solar, 1 day x 7", "default / deepar"]
    assert lines(ours, ran("deepar", "ancestral", "both", 40)) == []
    assert lines(ours, ran("deepar", "two-way", "all", 40)) == []


def test_with_the_settings_of_the_paper_its_own_two_models_meet() -> None:
    solar = "solar, 1 day x 7"
    (line,) = lines(row("granularities", solar, "paper", 0.2), row("granularities", solar, "deepar-paper", 0.25))
    ours, theirs = ["0.2000 / 0.2500", "yes"], ["0.210 / 0.222", "yes"]
    assert line == [CLAIMS[-3].says, solar, "paper / deepar-paper", *ours, *theirs, ""]


@pytest.mark.parametrize(("error", "word"), [(0.15, "confirmed"), (0.25, "not confirmed"), (0.2, "not confirmed")])
def test_a_claim_is_confirmed_where_every_comparison_says_so(error: float, word: str) -> None:
    found = sentences(row("kernels", TRAFFIC, "k=1", 0.2), row("kernels", TRAFFIC, "k=9", error))
    assert found["convolution helps"].startswith(f"{word}: holds in ")


def test_errors_of_zero_compare_with_nothing() -> None:
    found = sentences(row("kernels", TRAFFIC, "k=1", 0), row("kernels", TRAFFIC, "k=9", 0))
    assert found["convolution helps"] == "not run yet"
