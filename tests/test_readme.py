"""README and docs/reproduction.md: the code runs, pictures and commands exist, every figure is in a row of results."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import tomllib
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
REPRODUCTION = (ROOT / "docs" / "reproduction.md").read_text()


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= 110


def test_the_pictures_of_the_readme_are_there() -> None:
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert pictures
    assert [name for name in pictures if not (ROOT / name).exists()] == []


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?:^|`)make (\w+)", README, flags=re.MULTILINE))
    assert {"demo", "test", "docs"} <= targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)] == []


def test_the_commands_of_the_readme_exist() -> None:
    commands = set(re.findall(r"`logsparse (\w+)", README))
    assert {"fit", "predict", "reproduce"} <= commands
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "logsparse", command, "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"logsparse {command}: {done.stderr}"


def test_readme_and_changelog_name_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"version = {{{project['version']}}}" in README
    assert f"## {project['version']} (" in (ROOT / "CHANGELOG.md").read_text()


def _results() -> str:
    """The results of the README in one line, without the targets of links."""
    return _one_line(README[README.index("## Results") : README.index("## When not to use it")])


def _one_line(text: str) -> str:
    return " ".join(re.sub(r"\]\([^)]*\)", "]", text).split())


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


RIVALS = ("nhits", "patchtst", "gluonts-deepar")
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
        others = " | ".join(_rival_cell(name, model) for model in RIVALS)
        yield f"| {words} | {_mean(_default(name))} | {span} | {naive[name]} | {paper.get(name, '-')} | {others} |"
    minutes = [float(row["minutes"]) for name in ahead for row in _default(name)]
    yield f"mean of three seeds, {int(min(minutes))} to {ceil(max(minutes))} minutes of training on one core"
    minutes = [float(row["minutes"]) for name in ahead for model in RIVALS for row in _rival(name, model)]
    yield f"Other models: {int(min(minutes))} to {ceil(max(minutes))} minutes, one seed, or three where marked *"


def _rival_cell(name: str, model: str) -> str:
    """The mean over the seeds, with a star if there are three; a dash if the model was not run on this set."""
    found = _rival(name, model)
    assert len(found) in (0, 1, 3)
    return f"{_mean(found)}{'*' if len(found) == 3 else ''}" if found else "-"


def _headline() -> list[dict[str, float | str]]:
    found = json.loads((ROOT / "benchmarks" / "results" / "headline_amd-epyc-2-cores_2026-11-18.json").read_text())
    return list(found["rows"])


def _attention() -> Iterator[str]:
    (row,) = (row for row in _headline() if (row["length"], row["pattern"]) == (4096, "logsparse(base=2)"))
    yield (
        f"At 4,096 steps LogSparse attention is {row['forward_ratio']:.0f} times as fast as torch's causal attention "
        f"forward and {row['both_ratio']:.0f} times forward and backward"
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


README_PARTS = (_first_table, _attention)
REPRODUCTION_PARTS = (_table_4, _stand_ins, _synthetic, _main_and_matching, _claims)
TEXTS = {**dict.fromkeys(README_PARTS, _results()), **dict.fromkeys(REPRODUCTION_PARTS, _one_line(REPRODUCTION))}
# What has to be measured: decimals, shares, counts of counts, minutes, ratios.
FIGURES = r"\d+\.\d+|\d+ %|\d+ of \d+|[\d.]+ minutes|[\d.]+ times as"


@pytest.mark.parametrize("part", TEXTS, ids=lambda part: part.__name__)
def test_figures_are_what_the_rows_say(part: Callable[[], Iterator[str]]) -> None:
    assert [sentence for sentence in part() if sentence not in TEXTS[part]] == []


@pytest.mark.parametrize("parts", [README_PARTS, REPRODUCTION_PARTS], ids=["readme", "reproduction"])
def test_no_figure_is_without_a_row(parts: Sequence[Callable[[], Iterator[str]]]) -> None:
    left = TEXTS[parts[0]]
    for sentence in sorted((sentence for part in parts for sentence in part()), key=len, reverse=True):
        left = left.replace(sentence, "")
    # What every table is headed with.
    left = re.sub(r"R0\.[59]", "", left)
    assert re.findall(FIGURES, left) == []


def test_the_model_of_the_picture_is_calibrated() -> None:
    measured = json.loads((ROOT / "docs" / "forecast.json").read_text())
    assert 0.75 <= measured["coverage_80"] <= 0.85
    sentence = f"over the {measured['days']} days that follow, {100 * measured['coverage_80']:.1f} % of the values lie"
    assert sentence in _one_line(README)


def test_the_speeds_in_the_docs_are_those_of_the_headline_benchmark() -> None:
    text = (ROOT / "docs" / "explanation" / "kernel.md").read_text()
    for row in (row for row in _headline() if "both_ratio" in row):
        name = str(row["pattern"]).split("(")[0].replace("restart", "restart(96)")
        ratios = f"{row['forward_ratio']:.0f}x | {row['both_ratio']:.0f}x"
        assert f"| {name} | {row['length']:,} | {row['width']} | {ratios} |" in text


def test_the_scores_of_the_methods_in_the_docs_are_those_of_their_rows() -> None:
    text = (ROOT / "docs" / "explanation" / "two-way.md").read_text()
    names = {"m4": "M4-Hourly, 48 hours", "etth1": "etth1, 7 days of 24 hours",
             "solar": "solar, 7 days of 24 hours", "traffic": "traffic, 7 days of 24 hours"}  # fmt: skip
    found = {(row["set"], row["method"], row["samples"]): row for row in _table("methods")}
    for name, words in names.items():
        scores = [found[name, method, samples] for method, samples in
                  (("direct", ""), ("two-way", ""), ("two-way", "100"))]  # fmt: skip
        cells = " | ".join(_pair(row["R0.5"], row["R0.9"]) for row in scores)
        assert f"| {words} | {cells} |" in text
