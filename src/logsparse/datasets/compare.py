"""A data set and its file -> T, M, S and the span as they must be and as they are, and what else the file tells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from logsparse.data.calendar import Freq
from logsparse.data.panel import Panel
from logsparse.datasets.catalogue import DataSet, named, step_in_words
from logsparse.datasets.ready import how_to_get, load, locate, outside
from logsparse.datasets.record import checksum, recall
from logsparse.errors import DataError


@dataclass(frozen=True)
class Finding:
    """`here` says what was found, `agrees` whether it is what it must be."""

    what: str
    wanted: str
    here: str
    agrees: bool


@dataclass(frozen=True)
class Report:
    dataset: DataSet
    findings: list[Finding]
    remarks: list[str]
    intact: bool
    """Whether the file is the one that was made here, as far as anyone can tell."""

    @property
    def agrees(self) -> bool:
        return self.intact and all(finding.agrees for finding in self.findings)


def check(name: str) -> Report:
    """The set that lies ready on this machine, held against what is known of it."""
    dataset = named(name)
    panel, path = load(name), locate(dataset)
    assert path is not None, "it was just loaded"
    record, digest = recall(path), checksum(path)
    intact = record is None or record.parquet == digest
    missing, cut = int(np.isnan(panel.values).sum()), outside(dataset, path)
    remarks = [
        f"missing values {missing:,}",
        f"{path.name}, sha256 {digest}" + ("" if intact else ", which is NOT the file that was made here"),
        "made elsewhere, no record of its originals" if record is None else f"made {record.made} from {record.source}",
    ]
    if cut:
        remarks.insert(0, f"{cut:,} steps of the file outside the span are left out")
    if dataset.note:
        remarks.append(dataset.note)
    return Report(dataset, compare(dataset, panel), remarks, intact)


def checked(name: str) -> Panel:
    """The set that lies ready on this machine, if it is what it must be: a result under its name is a result on it."""
    dataset, panel = named(name), load(name)
    if odd := [finding for finding in compare(dataset, panel) if not finding.agrees]:
        raise DataError(
            f"{locate(dataset)} must be the data set {dataset.name}.",
            got=", ".join(f"{one.what} = {one.here} where {one.wanted} is known" for one in odd),
            hint=f"`logsparse data check {dataset.name}` tells more; move it away: {how_to_get(dataset)}",
        )
    return panel


def compare(dataset: DataSet, panel: Panel) -> list[Finding]:
    """T counts the steps of the calendar or the observed ones: the paper does now the one, now the other.

    What lies between the two is known of every set: a file that lacks more, or less, is another one.
    """
    observed = np.array([(~np.isnan(panel[i])).sum() for i in range(len(panel))], np.int64)
    steps, seen = _distinct(panel.lengths.tolist()), _distinct(observed.tolist())
    whole = bool((panel.lengths - observed == dataset.gaps).all())
    here = _words(steps) if steps == seen else f"{_words(steps)} on the calendar, {_words(seen)} observed"
    step = Freq.parse(dataset.step)
    findings = [
        Finding("T", _words(dataset.lengths), here, whole and dataset.lengths in (steps, seen)),
        Finding("M", str(dataset.series), str(len(panel)), len(panel) == dataset.series),
        Finding("S", step_in_words(str(step)), step_in_words(str(panel.freq)), panel.freq == step),
    ]
    if dataset.span:
        span = [panel.freq.show(time) for time in (int(panel.starts.min()), int(panel.ends().max()))]
        wanted = [text.removesuffix(" 00:00") for text in dataset.span]
        findings.append(Finding("span", " to ".join(wanted), " to ".join(span), span == wanted))
    return findings


def _distinct(numbers: list[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))


def _words(numbers: tuple[int, ...]) -> str:
    """748/1008, as the paper writes two lengths; more are told by their ends."""
    return "/".join(map(str, numbers)) if len(numbers) <= 3 else f"{numbers[0]} to {numbers[-1]}"
