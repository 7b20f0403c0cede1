"""The code of the README and of docs/extending.md runs, its pictures exist, its figures are in the rows."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from statistics import fmean

import pytest

from logsparse import presets
from logsparse.paper import synthetic
from logsparse.paper.cases import KERNEL_SIZES, TABLES
from logsparse.paper.claims import CLAIMS_TABLE
from logsparse.paper.ledger import Row, best, counted, rows, trials
from logsparse.paper.published import GRANULARITIES, MAIN
from logsparse.paper.shapes import CASE, MARKS, MATCHING

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
README = (ROOT / "README.md").read_text()
EXTENDING = (ROOT / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README + EXTENDING, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_python_of_readme_and_docs_runs_as_it_stands(number: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKS[number]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_has_code_to_run() -> None:
    assert "```python" in README
    assert "```python" in EXTENDING


def test_the_pictures_of_the_readme_are_there() -> None:
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert pictures
    assert [name for name in pictures if not (ROOT / name).exists()] == []


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"^make (\w+)", README, flags=re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_commands_of_the_readme_exist() -> None:
    for command in set(re.findall(r"^logsparse (\w+)", README, flags=re.MULTILINE)):
        done = subprocess.run(
            [sys.executable, "-m", "logsparse", command, "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"logsparse {command}: {done.stderr}"


def _results() -> str:
    """The results of the README in one line, without the targets of links."""
    section = README[README.index("## Results") : README.index("## The attention as a building block")]
    return " ".join(re.sub(r"\]\([^)]*\)", "]", section).split())


def _table(name: str) -> list[Row]:
    return list(csv.DictReader((ROOT / "benchmarks" / "results" / f"{name}.csv").read_text().splitlines()))


def _pair(*scores: float | str | None) -> str:
    """0.199 / 0.066, as the README writes it."""
    return " / ".join("-" if score in (None, "") else f"{float(score or 0):.3f}" for score in scores)


def _mean(found: Sequence[Row]) -> str:
    return _pair(*(fmean(float(row[name]) for row in found) for name in ("R0.5", "R0.9")))


def _here(task: str, case: str, model: str) -> Row:
    """The row that the tables show."""
    found = [row for row in counted(rows(RESULTS, task)) if (row["case"], row["model"]) == (case, model)]
    # Rows from before data were recorded count where there is no other.
    row = best([row for row in found if row["data"]] or found)
    assert row is not None
    return row


def _scores(task: str, case: str, model: str) -> str:
    row = _here(task, case, model)
    return _pair(row["R0.5"], row["R0.9"])


def _minutes(row: Row) -> str:
    return f"{float(row['minutes']):.1f}"


def _default(name: str) -> list[Row]:
    """The three seeds of the last look at the test span that has three."""
    looks: dict[str, list[Row]] = {}
    for row in _table("recipe"):
        if (row["set"], row["span"]) == (name, "test"):
            looks.setdefault(row["why"], []).append(row)
    return [rows for rows in looks.values() if sorted(row["seed"] for row in rows) == ["0", "1", "2"]][-1]


def _rival(name: str, model: str) -> list[Row]:
    """The last row of each seed."""
    found = [row for row in _table("rivals") if (row["set"], row["span"], row["model"]) == (name, "test", model)]
    return list({row["seed"]: row for row in found}.values())


SOLAR, M4, TRAFFIC, FINE = (
    "solar, 1 day x 7",
    "m4-hourly, 2 days",
    "traffic-c20-hourly, 1 day x 7",
    "solar-10min, 1 day x 7",
)


def _first_table() -> Iterator[str]:
    naive = {
        "m4": _scores("granularities", M4, "seasonal-naive"),
        "solar": _scores("granularities", SOLAR, "seasonal-naive"),
        "traffic": _scores("kernels", TRAFFIC, "seasonal-naive"),
        "etth1": _mean(_rival("etth1", "seasonal-naive")),
    }
    paper = {"m4": _pair(*GRANULARITIES[M4]["paper"]), "solar": _pair(*GRANULARITIES[SOLAR]["paper"])}
    ahead = {"m4": "M4-Hourly | 48 hours", "solar": "solar, hourly | a day, 7 times",
             "traffic": "traffic, 20 sensors | a day, 7 times", "etth1": "etth1 | a day, 7 times"}  # fmt: skip
    for name, words in ahead.items():
        seeds = [float(row["R0.5"]) for row in _default(name)]
        span = f"{min(seeds):.3f} to {max(seeds):.3f}"
        yield f"| {words} | {_mean(_default(name))} | {span} | {naive[name]} | {paper.get(name, '-')} |"
    minutes = [float(row["minutes"]) for name in ahead for row in _default(name)]
    yield f"mean of three seeds, {int(min(minutes))} to {ceil(max(minutes))} minutes of training on one core"


def _rivals() -> Iterator[str]:
    names = {"nhits": "NHITS", "patchtst": "PatchTST", "gluonts-deepar": "GluonTS's DeepAR",
             "deepar": "our DeepAR, earlier recipe"}  # fmt: skip
    for model, words in names.items():
        cells = []
        for name in ("traffic", "etth1"):
            found = _rival(name, model)
            minutes = f"{fmean(float(row['minutes']) for row in found):.1f} minutes"
            cells.append(f"{_mean(found)}, {'three seeds, ' if len(found) == 3 else ''}{minutes}")
            assert len(found) in (1, 3)
        yield f"| {words} | {' | '.join(cells)} |"
    (steps,) = {row["steps"] for name in ("traffic", "etth1") for row in _rival(name, "deepar")}
    yield f"its earlier recipe (step by step, {int(steps):,} steps)"


def _attention() -> Iterator[str]:
    found = json.loads((ROOT / "benchmarks" / "results" / "attention_amd-epyc-2-cores_2026-11-15.json").read_text())
    asked = {"length": 4096, "width": 32, "pattern": "logsparse"}
    parts = {part: [row for row in found[part] if asked.items() <= row.items()] for part in ("times", "memory")}
    times, memory = ({row["contender"]: row for row in part} for part in parts.values())
    share = memory["native"]["peak_mib"] / memory["masked SDPA"]["peak_mib"]
    yield (
        f"at L = 4,096 with 32 channels per head LogSparse takes "
        f"1/{times['native']['both_ratio']:.0f} of the time of causal "
        f"attention, forward and backward, and {share:.2f} of the memory of the same pattern as a mask"
    )


def _table_4() -> Iterator[str]:
    theirs = {case: {model: _pair(*scores) for model, scores in GRANULARITIES[case].items()} for case in (SOLAR, M4)}
    names = {"seasonal naive": "seasonal-naive", "ARIMA": "arima", "DeepState": "deepstate",
             "DeepAR, our recipe": "deepar"}  # fmt: skip
    for words, model in names.items():
        ours = [_scores("granularities", case, model) for case in (SOLAR, M4)]
        yield f"| {words} | {ours[0]} | | {ours[1]} | |"
    ets = _here("granularities", M4, "ets")
    wide = f"{float(ets['R0.5']):.3f} / {float(ets['R0.9']):.0f} (its intervals explode on some series)"
    yield f"| ETS | {_scores('granularities', SOLAR, 'ets')} | | {wide} | |"
    yield f"| TRMF | {_scores('granularities', SOLAR, 'trmf')} | {theirs[SOLAR]['trmf']} | | |"
    for words, model, state in (
        ("DeepAR, the paper's settings", "deepar-paper", "not run yet"),
        ("the paper's model", "paper", "trials only"),
    ):
        assert not [row for row in counted(rows(RESULTS, "granularities")) if row["model"] == model]
        yield f"| {words} | {state} | {theirs[SOLAR][model]} | {state} | {theirs[M4][model]} |"
    yield f"| our default, mean of three seeds | {_mean(_default('solar'))} | | {_mean(_default('m4'))} | |"
    short = {row["case"]: row for row in trials(rows(RESULTS, "granularities"))}
    (budget,) = {row["budget"] for row in short.values()}
    train = presets.solar().train
    steps = f"{int(short[SOLAR]['steps']):,} and {int(short[M4]['steps']):,}"
    whole = f"{train.epochs * ((train.windows or 0) // train.batch):,}"
    yield f"The trials of the paper's model ended after {budget} minutes, at {steps} of {whole} steps"
    took = [_minutes(_here("granularities", case, "default")) for case in (SOLAR, M4)]
    yield f"took {took[0]} minutes on solar and {took[1]} on M4"


def _stand_ins() -> Iterator[str]:
    kernels = [_here("kernels", TRAFFIC, f"k={k}") for k in KERNEL_SIZES]
    naive = float(_here("kernels", TRAFFIC, "seasonal-naive")["R0.5"])
    (steps,) = {row["steps"] for row in kernels}
    lowest = min(float(row["R0.5"]) for row in kernels)
    assert lowest > naive
    yield f"{int(steps):,} steps each, none beats seasonal naive: the best has {lowest:.3f}, seasonal naive {naive:.3f}"
    models = [_here("sparse", FINE, model) for model in TABLES["sparse"][1][FINE].configs]
    naive = float(_here("sparse", FINE, "seasonal-naive")["R0.5"])
    (steps,) = {row["steps"] for row in models}
    assert sum(float(row["R0.5"]) > naive for row in models) == 3
    assert {json.loads(row["config"])["model"]["layers"] for row in models} == {3}
    yield f"{int(steps)} steps each, three do not beat it ({naive:.3f})"


def _synthetic() -> Iterator[str]:
    head, lines = synthetic.table(counted(rows(RESULTS, "synthetic")))
    found = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    shown = [found[t0] for t0 in ("24", "96", "192")]
    ours = [f"{float(one['transformer']):.3f}" for one in shown]
    yield f"| Transformer | {' | '.join(ours)} |"
    best = [min(float(one[f"deepar-{hidden}"]) for hidden in synthetic.HIDDEN) for one in shown]
    yield f"| best DeepAR of five sizes | {' | '.join(f'{score:.3f}' for score in best)} |"
    yield f"the noise alone is {synthetic.NOISE[0]:.3f}"
    yield "(section 5.1)"


def _main_and_matching() -> Iterator[str]:
    naive = _scores("main", "electricity-c-fortnight, 1 day x 7", "seasonal-naive")
    yield f"electricity-c has {naive}, the paper's model {_pair(*MAIN['electricity-c, 1 day x 7']['paper'])}"
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
    yield f"lower ({losses[0]:.2f} against {losses[1]:.2f}), R0.5 is higher ({errors[0]:.3f} against {errors[1]:.3f})"


def _claims() -> Iterator[str]:
    for claim, verdict in CLAIMS_TABLE.tables(CLAIMS_TABLE.recorded(RESULTS), {})[0].lines:
        yield f"- {claim}: {verdict}"
    sparse, full = ([_minutes(_here("sparse", FINE, f"{kind}{end}")) for kind in kinds] for kinds, end in
                    ((("sparse", "sparse+conv"), ""), (("full", "full+conv"), "-length")))  # fmt: skip
    took = "its training took"
    yield f"{took} {sparse[0]} minutes instead of {full[0]}, with convolution {sparse[1]} instead of {full[1]}"


PARTS = (_first_table, _rivals, _attention, _table_4, _stand_ins, _synthetic, _main_and_matching, _claims)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_the_results_of_the_readme_are_what_the_rows_say(part: Callable[[], Iterator[str]]) -> None:
    shown = _results()
    assert [sentence for sentence in part() if sentence not in shown] == []


def test_no_figure_of_the_readme_is_without_a_row() -> None:
    left = _results()
    for sentence in sorted((sentence for part in PARTS for sentence in part()), key=len, reverse=True):
        left = left.replace(sentence, "")
    # What every table is headed with.
    left = re.sub(r"R0\.[59]", "", left)
    assert re.findall(r"\d+\.\d+|\d+ %|\d+ of \d+|[\d.]+ minutes|[\d.]+ times as", left) == []
