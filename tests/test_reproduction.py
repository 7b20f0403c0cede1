"""The figures of docs/reproduction.md are those of the rows in results/, and none is without a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logsparse import presets
from logsparse.paper import synthetic
from logsparse.paper.cases import GRANULARITIES, MAIN, TABLES
from logsparse.paper.claims import CLAIMS_TABLE
from logsparse.paper.figures import EXPERIMENTS, drawn_from, path
from logsparse.paper.ledger import Row, best, counted, rows, trials
from logsparse.paper.shapes import CASE, MARKS, MATCHING
from logsparse.paper.tables import GRANULARITIES_TABLE, cell, difference

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGE = (ROOT / "docs" / "reproduction.md").read_text()
SOLAR, M4 = "solar, 1 day x 7", "m4-hourly, 2 days"
JUNE = "traffic-c20-hourly, 1 day x 28"
PARKING = "parking-germany-15min, 1 day x 7"
KERNELS = {f"k = {k}": f"k={k}" for k in (1, 2, 3, 6, 9)}


def _attention(length: int, memory: int) -> dict[str, str]:
    """The models of table 3 in words: windows of full length, and of as much memory as the sparse one."""
    kinds = {
        f"restart over {length}": "sparse{}",
        f"full over {memory}": "full{}-memory",
        f"full over {length}": "full{}-length",
    }
    return {f"{words}, {how}": model.format(conv) for how, conv in (("convolution", "+conv"), ("canonical", ""))
            for words, model in kinds.items()}  # fmt: skip


ABLATIONS = (
    ("kernels", JUNE, KERNELS),
    ("kernels", "solar, 1 day x 28", KERNELS),
    ("sparse", JUNE, _attention(192, 124)),
    ("sparse", PARKING, _attention(768, 293)),
)


def _shown() -> str:
    """Claims and results in one line, without the targets of links."""
    return " ".join(re.sub(r"\]\([^)]*\)", "]", PAGE[PAGE.index("## Claims") :]).split())


def _pair(*scores: float | str | None) -> str:
    """0.199 / 0.066, as the page writes it."""
    return " / ".join("-" if score in (None, "") else f"{float(score or 0):.3f}" for score in scores)


def _recorded(task: str, case: str, model: str) -> Row | None:
    """The row that the tables show."""
    return best([row for row in counted(rows(RESULTS, task)) if (row["case"], row["model"]) == (case, model)])


def _here(task: str, case: str, model: str) -> Row:
    row = _recorded(task, case, model)
    assert row is not None
    return row


def _scores(task: str, case: str, model: str) -> str:
    row = _here(task, case, model)
    return _pair(row["R0.5"], row["R0.9"])


def _table_4() -> Iterator[str]:
    theirs = {case: {model: _pair(*scores) for model, scores in GRANULARITIES[case].items()} for case in (SOLAR, M4)}
    names = {"seasonal naive": "seasonal-naive", "ARIMA": "arima", "DeepState": "deepstate",
             "DeepAR, our recipe": "deepar", "our default": "default"}  # fmt: skip
    for words, model in names.items():
        ours = [_scores("granularities", case, model) for case in (SOLAR, M4)]
        yield f"| {words} | {ours[0]} | | {ours[1]} | |"
    ets = _here("granularities", M4, "ets")
    wide = f"{float(ets['R0.5']):.3f} / {float(ets['R0.9']):.0f} (its intervals explode on some series)"
    yield f"| ETS | {_scores('granularities', SOLAR, 'ets')} | | {wide} | |"
    yield f"| TRMF | {_scores('granularities', SOLAR, 'trmf')} | {theirs[SOLAR]['trmf']} | | |"
    short = {row["case"]: row for row in trials(rows(RESULTS, "granularities")) if row["model"] == "paper"}
    for words, model in (("DeepAR, the paper's settings", "deepar-paper"), ("the paper's model", "paper")):
        cells = []
        for case in (SOLAR, M4):
            tried = "trials only" if model == "paper" and case in short else "not run yet"
            cells.append(_scores("granularities", case, model) if _recorded("granularities", case, model) else tried)
        yield f"| {words} | {cells[0]} | {theirs[SOLAR][model]} | {cells[1]} | {theirs[M4][model]} |"
    (budget,) = {row["budget"] for row in short.values()}
    train = presets.solar().train
    steps = f"{int(short[SOLAR]['steps']):,} and {int(short[M4]['steps']):,}"
    whole = f"{train.epochs * ((train.windows or 0) // train.batch):,}"
    yield f"The trials of the paper's model ended after {budget} minutes, at {steps} of {whole} steps"
    ended, left = (
        _here("granularities", M4, "paper"),
        GRANULARITIES_TABLE.traced(RESULTS)[0][M4, "paper"]["0"]["curve"],
    )
    likelihood, quantile = left["validation_nll"], left["validation_wql"]
    chosen = likelihood.index(min(likelihood))
    assert 1.45 < quantile[chosen] / min(quantile) < 1.55
    assert float(ended["R0.5"]) > float(_here("granularities", M4, "seasonal-naive")["R0.5"])
    yield f"Early stopping ended its training after {int(ended['steps']):,} steps"
    yield f"the weights are those of step {left['step'][chosen]:,}"
    took = [f"{float(_here('granularities', case, 'default')['minutes']):.1f}" for case in (SOLAR, M4)]
    yield f"took {took[0]} minutes on solar and {took[1]} on M4"
    found, traces = (GRANULARITIES_TABLE.recorded(RESULTS), GRANULARITIES_TABLE.traced(RESULTS)[0])
    paper, other = (cell(found, traces, SOLAR, model) for model in ("paper", "deepar-paper"))
    assert paper is not None
    assert other is not None
    joint = paper.traces["0"]["losses"]["ancestral"]
    scores = _pair(*(sum(joint[name]) / sum(joint["size"]) for name in ("R0.5", "R0.9")))
    yield f"joint sample paths of the same network have {scores} on solar"
    assert paper.flat is False
    apart = difference(paper, other)
    yield f"its R0.5 differs from the mean of DeepAR's two seeds by {apart} (95 % interval over the seven days)"


def _ablations() -> Iterator[str]:
    """Tables 2 and 3: the seed with the lowest validation loss beside the paper's numbers, and R0.5 of every seed."""
    for task, case, words in ABLATIONS:
        if _recorded(task, case, "seasonal-naive") is None:
            continue
        published = TABLES[task][2].get(TABLES[task][1][case].published(case), {})
        for said, model in words.items():
            seeds = [row for row in counted(rows(RESULTS, task)) if (row["case"], row["model"]) == (case, model)]
            if seeds:
                theirs = _pair(*published[model]) if model in published else ""
                each = ", ".join(_pair(row["R0.5"]) for row in sorted(seeds, key=lambda row: int(row["seed"])))
                yield f"| {said} | {_scores(task, case, model)} |{theirs and f' {theirs}'} | {each} |"
        yield f"| seasonal naive | {_scores(task, case, 'seasonal-naive')} | | |"


def _synthetic() -> Iterator[str]:
    head, lines = synthetic.table(counted(rows(RESULTS, "synthetic")))
    found = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    shown = [found[t0] for t0 in ("24", "96", "192")]
    ours = [f"{float(one['transformer']):.3f}" for one in shown]
    yield f"| Transformer | {' | '.join(ours)} |"
    lowest = [min(float(one[f"deepar-{hidden}"]) for hidden in synthetic.HIDDEN) for one in shown]
    yield f"| best DeepAR of five sizes | {' | '.join(f'{score:.3f}' for score in lowest)} |"
    yield f"the noise alone gives {synthetic.NOISE[0]:.3f}"
    yield "(section 5.1)"


def _long_waves() -> Iterator[str]:
    found = {model: _here("long-waves", synthetic.LONG_CASE, model) for model in synthetic.LONG_MODELS[1:]}
    sparse, short, whole = (f"{float(found[model]['R0.5']):.4f}" for model in ("sparse", "full-memory", "full-length"))
    yield (
        f"R0.5 is {sparse} with sparse attention over 768 steps, {short} with full attention over 293 and {whole} with "
        "full attention over 768"
    )
    yield f"A forecast that knows everything but the amplitudes has about {synthetic.UNSEEN:.3f}."
    assert {int(row["steps"]) for row in found.values()} == {2800}


def _main_and_matching() -> Iterator[str]:
    naive = _scores("main", "electricity-c-fortnight, 1 day x 7", "seasonal-naive")
    yield f"electricity-c has {naive}, the paper's model {_pair(*MAIN['electricity-c, 1 day x 7']['paper'])}"
    parts = (
        ("electricity-c, 15 to 21 December 2014", "electricity-c-2014-12-5weeks, 1 day x 7"),
        ("traffic-c, 15 to 20 January 2008", "traffic-c-2008-01-fortnight, 1 day x 5"),
    )
    for words, case in parts:
        yield f"| {words} | {' | '.join(_scores('main', case, model) for model in ('default', 'seasonal-naive'))} |"
    left, refused = MATCHING.traced(RESULTS)
    assert not refused
    share = {model: [f"{100 * left[CASE, model]['shares'][mark]:.0f} %" for mark in MARKS] for model in ("k=1", "k=6")}
    yield f"k = 6 gives {share['k=6'][0]} of a head's weight"
    (tops, spikes), few = share["k=1"], share["k=6"][1]
    yield f"and {few} to lone spikes of the same height; k = 1 gives {tops} and {spikes}"
    one, six = (_here("matching", CASE, model) for model in ("k=1", "k=6"))
    losses, errors = ([float(row[name]) for row in (six, one)] for name in ("validation_nll", "R0.5"))
    assert losses[0] < losses[1]
    assert errors[0] > errors[1]
    loss = f"lower ({losses[0]:.2f} against {losses[1]:.2f})"
    yield f"{loss}, but R0.5 is higher ({errors[0]:.3f} against {errors[1]:.3f})"


def _figures() -> Iterator[str]:
    curves, matrix = (
        one.tables(one.recorded(RESULTS), one.traced(RESULTS)[0])[0].lines
        for one in (EXPERIMENTS["curves"], EXPERIMENTS["attention-matrix"])
    )
    one, nine = ([f"{float(loss):.2f}" for loss in line[3:]] for line in curves if line[0] == JUNE if line[1] != "k=3")
    yield f"in training ({nine[0]} against {one[0]}) and in validation ({nine[1]} against {one[1]})"
    ((case, _, here, alike),) = matrix
    assert case == JUNE
    yield f"gives {here} of its weight to cells whole days back, where equal weights would give {alike}"


def _claims() -> Iterator[str]:
    found, (traces, refused) = CLAIMS_TABLE.recorded(RESULTS), CLAIMS_TABLE.traced(RESULTS)
    assert not refused
    for _, claim, verdict in CLAIMS_TABLE.tables(found, traces)[0].lines:
        yield f"- {claim}: {verdict}"


PARTS = (_table_4, _ablations, _synthetic, _long_waves, _main_and_matching, _figures, _claims)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_the_results_are_what_the_rows_say(part: Callable[[], Iterator[str]]) -> None:
    shown = _shown()
    assert [sentence for sentence in part() if sentence not in shown] == []


def test_no_figure_is_without_a_row() -> None:
    left = _shown()
    for sentence in sorted((sentence for part in PARTS for sentence in part()), key=len, reverse=True):
        left = left.replace(sentence, "")
    # What every table is headed with.
    left = re.sub(r"R0\.[59]", "", left)
    assert re.findall(r"\d+\.\d+|\d+ %|\d+ of \d+|[\d.]+ minutes|[\d.]+ times as", left) == []


def test_every_picture_is_drawn_from_the_rows_and_traces_that_are_here() -> None:
    drawn = [one for one in EXPERIMENTS.values() if one.figure and path(one, RESULTS).exists()]
    assert len(drawn) > 4
    assert [one.name for one in drawn if drawn_from(one, RESULTS) not in path(one, RESULTS).read_text()] == []


def test_every_experiment_is_listed_and_every_picture_exists() -> None:
    assert [name for name in EXPERIMENTS if f"`{name}`" not in PAGE] == []
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", PAGE):
        assert (ROOT / "docs" / picture).exists()
