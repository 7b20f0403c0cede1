"""A folder of results -> which of its parts are done, for which input, model and settings; results of a part -> there.

    OUT/part-00003-of-00016.parquet              the results of the part of this name
    OUT/_ledger/job.json                         work, model (checksum), settings and version: one job per folder
    OUT/_ledger/model/                           the model that the workers load, without its history
    OUT/_ledger/done/part-00003-of-00016.json    checksums of input and results, series, rows, seconds, attempt

Results are written first and their entry second, each as a whole file (storage.py): after a kill at any moment, a part
is either done or made again. Only one process writes here, the one that holds the lock of OUT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from logsparse import __version__
from logsparse.errors import DataError
from logsparse.storage import (
    check_document,
    checksum,
    lock,
    make_folder,
    pack_document,
    plain,
    read_file,
    unpack_object,
    write_whole,
    writing,
)

_LEDGER, _JOB, _DONE, _MODEL = "_ledger", "job.json", "done", "model"
_RESULTS = "The folder of results"


@dataclass(frozen=True)
class Ledger:
    """The parts of one job that are done."""

    out: Path

    @classmethod
    @contextmanager
    def opened(cls, out: Path, job: Mapping[str, Any]) -> Iterator[Self]:
        """Begin or resume a job, and hold the lock of its folder; raise if the folder belongs to anything else."""
        present = plain({"version": __version__, **job}, "The settings of a job")
        self = cls(out)
        with writing(_RESULTS, out):
            names = sorted(path.name for path in out.iterdir()) if out.exists() else []
        if (self.place / _JOB).exists():
            _compare(out, self._document(self.place / _JOB), present)
        elif [name for name in names if name != _LEDGER]:
            raise DataError(
                "Results of parts must be written to a new or empty folder, or to that of the same job.",
                got=f"{out} with {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}",
                hint="give another folder.",
            )
        make_folder(self.place)
        with lock(out, wait=False) as held:
            if not held:
                raise DataError(
                    "One process at a time writes to a folder of results.",
                    got=f"{out}, which another uses",
                    hint="wait until it is done, or stop it: its finished parts stay.",
                )
            if not (self.place / _JOB).exists():
                write_whole(self.place / _JOB, pack_document(present), _RESULTS)
            yield self

    @property
    def place(self) -> Path:
        return self.out / _LEDGER

    @property
    def model(self) -> Path:
        return self.place / _MODEL

    def done(self, name: str, checksums: Callable[[str], Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the entry of a part, or None if it has to be made; raise if its input is not the one it was made of.

        `checksums` returns those of the input. A part whose results are missing or damaged is made again.
        """
        try:
            entry = self._document(self._entry(name))
        except DataError:
            return None
        if entry["inputs"] != checksums(name):
            raise DataError(
                "The parts of a job must stay as they are until it is done.",
                got=f"{name}, which has changed since its results were written to {self.out}",
                hint="give another folder for the results of the new data, or remove this one to start over.",
            )
        try:
            read_file(self.out / name, _damaged, entry["output"])
        except DataError:
            return None
        return entry

    def write(self, name: str, results: bytes, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write the results of a part, then its entry, which is returned."""
        entry = {"part": name, **facts, "output": checksum(results)}
        write_whole(self.out / name, results, _RESULTS)
        write_whole(self._entry(name), pack_document(entry), _RESULTS)
        return entry

    def check_parts(self, names: Mapping[str, Any]) -> None:
        """Raise if the ledger has a part that is not among the parts of the data."""
        root = self.place / _DONE
        for path in sorted(root.rglob("*.json")):
            name = str(path.relative_to(root).with_suffix(".parquet"))
            if name not in names:
                raise DataError(
                    "The parts of a job must stay as they are until it is done.",
                    got=f"results of {name} in {self.out}, and no such part in the data",
                    hint="give another folder for the results of other data, or remove this one to start over.",
                )

    def _entry(self, name: str) -> Path:
        return self.place / _DONE / Path(name).with_suffix(".json")

    def _document(self, path: Path) -> dict[str, Any]:
        return check_document(path, unpack_object(path, read_file(path, _damaged), _damaged), _damaged)


def _compare(out: Path, begun: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Raise if the job in the folder differs from this one."""
    then, now = ({**job, **job.get("settings", {})} for job in (begun, present))
    names = [name for name in {**then, **now} if name != "settings" and then.get(name) != now.get(name)]
    if names:
        shown = (f"{name} {_short(then.get(name))}, now {_short(now.get(name))}" for name in names)
        raise DataError(
            "A folder of results belongs to one model, one set of settings and one version.",
            got=f"{out}, begun with {'; '.join(shown)}",
            hint="repeat the command that it was begun with, or give another folder.",
        )


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text[:12] if len(text) == 64 else text


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} must be a complete file of a job.", got=reason, hint="remove the folder of results to start over."
    )
