"""The data sets -> the paper's table of T, M and S (table 5): its numbers beside those of the files on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logsparse.data.calendar import Freq
from logsparse.datasets.catalogue import DATASETS, DataSet, step_in_words
from logsparse.datasets.compare import compare
from logsparse.datasets.ready import how_to_get, load, locate
from logsparse.errors import DataError
from logsparse.tasks.experiment import Experiment, Table, never, nothing_known, nothing_to_run
from logsparse.tasks.ledger import Row
from logsparse.tasks.traces import Traces

_WHAT = ("T", "M", "S")
_HEAD = ["set", *(f"{what} {where}" for what in _WHAT for where in ("paper", "here")), "note"]


def tables(_rows: Sequence[Row], _traces: Traces) -> list[Table]:
    """The paper's sets all, of the others those that are here."""
    lines = [_line(one) for one in DATASETS if one.paper or locate(one) is not None]
    return [Table("Table 5, data sets: T steps, M series, S sample rate", _HEAD, lines)]


def _line(dataset: DataSet) -> list[str]:
    here, note = dict.fromkeys(_WHAT, "-"), f"the data are not here: {how_to_get(dataset)}"
    if locate(dataset) is not None:
        try:
            findings = {finding.what: finding for finding in compare(dataset, load(dataset.name))}
        except DataError as error:
            # One file that cannot be read costs its own line, not the table.
            return _told(dataset, here, str(error))
        here = {what: findings[what].here for what in _WHAT}
        differ = [what for what, finding in findings.items() if not finding.agrees]
        note = f"NOT as it must be: {', '.join(differ)}" if differ else dataset.note
    return _told(dataset, here, note)


def _told(dataset: DataSet, here: Mapping[str, str], note: str) -> list[str]:
    return [dataset.name, *(cell for what in _WHAT for cell in (_theirs(dataset, what), here[what])), note]


def _theirs(dataset: DataSet, what: str) -> str:
    if not dataset.paper:
        return "-"
    told = {"T": "/".join(map(str, dataset.lengths)), "M": str(dataset.series)}
    return told.get(what) or step_in_words(str(Freq.parse(dataset.step)))


STATISTICS = Experiment("statistics", (), nothing_to_run, nothing_known, never, tables)
