"""README and the figures of the docs: commands and pictures exist, every figure is in a row of results."""

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
from statistics import fmean, median

import pytest

from logsparse.paper.cases import GRANULARITIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
Row = dict[str, str]


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


def _naive(task: str, case: str) -> str:
    """The scores of seasonal naive in the last row of a case of an experiment."""
    found = csv.DictReader((ROOT / "results" / f"{task}.csv").read_text().splitlines())
    row = [row for row in found if (row["case"], row["model"]) == (case, "seasonal-naive")][-1]
    return _pair(row["R0.5"], row["R0.9"])


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
SOLAR, M4, TRAFFIC = "solar, 1 day x 7", "m4-hourly, 2 days", "traffic-c20-hourly, 1 day x 7"


def _first_table() -> Iterator[str]:
    naive = {
        "m4": _naive("granularities", M4),
        "solar": _naive("granularities", SOLAR),
        "traffic": _naive("kernels", TRAFFIC),
        **{name: _mean(_rival(name, "seasonal-naive")) for name in ("etth1", "cambridge", "wind", "parking")},
    }
    paper = {"m4": _pair(*GRANULARITIES[M4]["paper"]), "solar": _pair(*GRANULARITIES[SOLAR]["paper"])}
    ahead = {"m4": "M4-Hourly | 48 hours", "solar": "solar, hourly | a day, 7 times",
             "traffic": "traffic, 20 sensors | a day, 7 times", "etth1": "etth1 | a day, 7 times",
             "cambridge": "cambridge, 45 buildings | a day, 7 times", "wind": "wind, 7 farms | a day, 7 times",
             "parking": "parking, 77 car parks, 15 minutes | a day, 7 times"}  # fmt: skip
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


PARTS = (_first_table, _attention)
# What has to be measured: decimals, shares, counts of counts, minutes, ratios.
FIGURES = r"\d+\.\d+|\d+ %|\d+ of \d+|[\d.]+ minutes|[\d.]+ times as"


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_figures_are_what_the_rows_say(part: Callable[[], Iterator[str]]) -> None:
    shown = _results()
    assert [sentence for sentence in part() if sentence not in shown] == []


def test_no_figure_is_without_a_row() -> None:
    left = _results()
    for sentence in sorted((sentence for part in PARTS for sentence in part()), key=len, reverse=True):
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


def test_the_minutes_in_the_docs_are_those_of_the_benchmark() -> None:
    text = (ROOT / "docs" / "forecaster.md").read_text()
    rows = json.loads((ROOT / "benchmarks" / "results" / "minutes_amd-epyc-2-cores_2026-11-18.json").read_text())[
        "rows"
    ]
    for row in rows:
        cells = (row["data"], row["horizon"], row["context"], row["batch"], f"{row['minutes']:.1f}")
        assert f"| {' | '.join(map(str, cells))} |" in text


def test_the_ratio_for_little_data_in_the_docs_is_that_of_its_rows() -> None:
    text = (ROOT / "docs" / "forecaster.md").read_text()
    ratios = [float(row["ratio"]) for row in _table("single") if (row["label"], row["seed"]) == ("look 9", "0")]
    assert f"over the test spans of {len(ratios)} such tasks, the median ratio of its quantile loss" in text
    assert f"that of the better of seasonal naive and AutoETS is {median(ratios):.2f}" in _one_line(text)


def test_the_spans_of_single_series_in_the_recipe_are_those_of_their_rows() -> None:
    text, spans = (ROOT / "docs" / "RECIPE.md").read_text(), ("test", *(f"validation, {n} back" for n in (1, 2, 3)))
    found: dict[str, dict[str, list[Row]]] = {}
    for row in _table("single"):
        today = row["label"] in ("look 13", "fourteenth round") and (row["model"], row["seed"]) == ("logsparse", "0")
        if today and not row["group"].endswith("-full"):
            for group in (row["group"], "all"):
                found.setdefault(group, {}).setdefault(row["span"], []).append(row)
    for group, by_span in found.items():
        cells = []
        for span in spans:
            ratios, held = (
                [float(row[name]) for row in by_span.get(span, ()) if row[name]] for name in ("ratio", "coverage_80")
            )
            cells.append(f"{median(ratios):.2f}, {100 * fmean(held):.0f} %" if held else "-")
        assert f"| {group} | {' | '.join(cells)} |" in text
    assert len(found) == 27


def test_the_single_series_of_full_length_in_the_recipe_are_their_rows() -> None:
    text = _one_line((ROOT / "docs" / "RECIPE.md").read_text())
    rows = [
        row for row in _table("single") if (row["model"], row["label"], row["seed"]) == ("logsparse", "look 13", "0")
    ]
    ratios, held = ([float(row[name]) for row in rows] for name in ("ratio", "coverage_80"))
    assert (
        f"over all {len(rows)} tasks the median ratio is {median(ratios):.2f}, coverage {100 * fmean(held):.0f} %"
        in text
    )
    for name in ("etth1", "traffic", "solar", "cambridge", "parking"):
        own = [row for row in rows if row["group"] == f"{name}-full"]
        ratios, held = ([float(row[column]) for row in own] for column in ("ratio", "coverage_80"))
        shown = f"{median(ratios):.2f} | {max(ratios):.2f} | {100 * fmean(held):.0f} %"
        assert f"| {name}, full length | {shown} |" in text


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


def test_the_costs_of_the_page_on_scale_are_those_of_the_last_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import shards

    results = sorted((ROOT / "benchmarks" / "results").glob("shards_*.json"), key=lambda path: path.stem[-10:])
    if not results:
        pytest.skip("not measured yet")
    found, page = json.loads(results[-1].read_text()), (ROOT / "docs" / "scale.md").read_text()
    begin, end = page.index(shards.BEGIN) + len(shards.BEGIN), page.index(shards.END)
    assert page[begin:end] == shards.section(found["rows"], found["machine"], found["versions"]["logsparse"])
    assert shards.Cost.of(found["rows"]).efficiency > 0.5


def test_the_cost_model_gives_back_what_its_constants_were_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import shards

    def row(series: int, steps: int, jobs: int) -> dict[str, float]:
        seconds = 3 + series * (1e-3 + 1e-6 * steps) / jobs / (0.9 if jobs > 1 else 1)
        cells = series * steps
        return {
            "series": series, "steps": steps, "jobs": jobs, "predict_seconds": seconds,
            "shard_seconds": 1 + cells / 1e6,
            "series_per_second": series / seconds, "predict_peak_mib": 300 + 350 * jobs,
            "caller_seconds": 2 + cells / 1e8, "parts_mib": 4 * cells / 2**20, "results_mib": 700 * series / 2**20,
        }  # fmt: skip

    rows = [row(*size) for size in shards.SIZES]
    cost = shards.Cost.of(rows)
    assert cost.series == pytest.approx(1e-3, rel=0.05)
    assert cost.step == pytest.approx(1e-6, rel=0.05)
    assert (cost.base_mib, cost.worker_mib) == (300, 350)
    for made in rows[3:]:
        size = int(made["series"]), int(made["steps"]), int(made["jobs"])
        assert cost.predict_seconds(*size) == pytest.approx(made["predict_seconds"], rel=0.02)
    # A caller that has 10 ns of work per step, and workers 3 us: no more of them than it can feed.
    assert cost.predict_seconds(10**6, 500, 10**4) == pytest.approx(cost.start + 5, rel=0.02)
    page = shards.section(rows, "a machine", "1.0")
    assert "| 100,000 series, 500 steps, 2 workers |" in page
    assert "nan" not in page


def test_the_memory_of_the_page_on_scale_is_that_of_the_row() -> None:
    (path,) = (ROOT / "benchmarks" / "results").glob("mapped-100000_*.json")
    (row,) = json.loads(path.read_text())["rows"]
    gib = {what: f"{row[f'{what}_peak_mib'] / 1024:.2f} GiB" for what in ("read", "fit", "predict")}
    page = _one_line((ROOT / "docs" / "scale.md").read_text())
    assert f"at most {gib['read']} beside the files while they were read, {gib['fit']} while a network" in page
    assert f"and {gib['predict']} while all were forecast, with a limit of {row['limit_gib']:.0f} GiB" in page
