"""A kind of writer -> the same with each of its writes, renames, flushes and new files failing once; findings as JSON.

Run under tests/failing_disk.c. Arguments: that library, an empty folder, the writer. After each failure the old content
or the new must be there, whole; nothing but a LogsparseError may come out; the next write must succeed.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from logsparse.errors import LogsparseError

KINDS = {"write": 0, "rename": 1, "fsync": 2, "create": 3, "mkdir": 4}
TROUBLES = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EROFS": errno.EROFS, "short": -1, "full": -2}
OLD, NEW, NEXT = "old", "new", "next"

Write = Callable[[Path, str], None]
Read = Callable[[Path], str]


def _model() -> tuple[Write, Read]:
    import torch

    from logsparse import folder

    def write(path: Path, text: str) -> None:
        tensors = {"w": torch.full((5_000,), float(len(text)))}
        history = None if text == OLD else {"y": torch.ones(3)}
        folder.write(path / "new" / "model", folder.ModelFolder(text, {}, {"text": text}, tensors, history))

    def read(path: Path) -> str:
        model = folder.read(path / "new" / "model")
        assert model.series == {"text": model.kind}
        assert (model.weights["w"] == len(model.kind)).all()
        assert (model.history is None) == (model.kind == OLD)
        return model.kind

    return write, read


def _checkpoint() -> tuple[Write, Read]:
    import torch

    from logsparse.train import checkpoint

    def write(path: Path, text: str) -> None:
        checkpoint.save(path / "seed-0", {"w": torch.full((5_000,), float(ord(text[-1])))}, {"text": text})

    def read(path: Path) -> str:
        found = checkpoint.load(path / "seed-0")
        text = str(found.state["text"])
        assert (found.tensors["w"] == ord(text[-1])).all()
        return text

    return write, read


def _ledger() -> tuple[Write, Read]:
    from logsparse.paper.ledger import Identity, Run, record, rows

    facts = {"R0.5": 0.5, "R0.9": 0.5, "minutes": 1.0}
    order = [OLD, NEW, NEXT]

    def write(path: Path, text: str) -> None:
        record(path / "results", Run("waves", text, "a"), Identity({"a": "x" * 20_000}, "abc"), facts)

    def read(path: Path) -> str:
        found = [row["case"] for row in rows(path / "results", "waves")]
        assert found == [case for case in order if case in found]
        assert found[0] == OLD
        return found[-1]

    return write, read


def _trace() -> tuple[Write, Read]:
    from logsparse.paper.experiment import keep, traces
    from logsparse.paper.ledger import Run

    run = Run("waves", "x", "a")
    row = {"task": "waves", "case": "x", "model": "a", "seed": "0", "budget": "none", "validation_nll": "1"}

    def read(path: Path) -> str:
        found, refused = traces(path, [row])
        assert not refused
        return str(found["x", "a"]["text"])

    return lambda path, text: keep(path, run, {"text": text, "long": "x" * 20_000}), read


def _table(ending: str) -> tuple[Write, Read]:
    import polars as pl

    from logsparse.data import files

    def write(path: Path, text: str) -> None:
        files.write(pl.DataFrame({"x": range(5_000), "text": [text] * 5_000}), path / f"table.{ending}")

    def read(path: Path) -> str:
        table = files.read(path / f"table.{ending}")
        assert table.height == 5_000
        assert table["text"].n_unique() == 1
        return str(table[0, "text"])

    return write, read


def _report() -> tuple[Write, Read]:
    import polars as pl

    from logsparse import SeasonalNaive, backtest

    reporting: Any = import_module("logsparse.reporting.report")
    # The charts of a page take seconds and touch no file: each page is made once.
    pages: dict[Any, Any] = {}
    make = reporting.page
    reporting.page = lambda *about: pages.get(about[3]) or pages.setdefault(about[3], make(*about))

    frame = pl.DataFrame({"unique_id": 0, "ds": range(40), "y": [float(step % 7) for step in range(40)]})
    results = backtest(SeasonalNaive(3, season=7), frame, windows=1)

    def read(path: Path) -> str:
        text = (path / "report.html").read_text()
        assert text.rstrip().endswith("</html>")
        return text.split("<title>")[1].split("</title>")[0]

    return lambda path, text: reporting.report(results, path / "report.html", title=text), read


def _picture() -> tuple[Write, Read]:
    from logsparse.pictures import new_figure, save_figure

    looks: dict[bytes, str] = {}

    def write(path: Path, text: str) -> None:
        figure, axes = new_figure(1, 1)
        axes.set_axis_off()
        axes.set_title(text)
        save_figure(figure, path / "picture.svg")

    def read(path: Path) -> str:
        blob = (path / "picture.svg").read_bytes()
        if not looks:  # the same bytes every time: what each looks like is known from here on
            looks[blob] = OLD
            for text in (NEW, NEXT):
                write(path / "other", text)
                looks[(path / "other" / "picture.svg").read_bytes()] = text
            shutil.rmtree(path / "other")
        return looks[blob]

    return write, read


WRITERS: dict[str, Callable[[], tuple[Write, Read]]] = {
    "model": _model,
    "checkpoint": _checkpoint,
    "ledger": _ledger,
    "trace": _trace,
    **{f"table.{ending}": lambda ending=ending: _table(ending) for ending in ("csv", "parquet", "feather")},  # type: ignore[misc]
    "report": _report,
    "picture": _picture,
}


def fail_each(disk: Any, folder: Path, writer: str) -> dict[str, Any]:
    """Counts of what was there after a failure, and sentences on what was wrong."""
    write, read = WRITERS[writer]()
    write(folder / "first", OLD)
    assert read(folder / "first") == OLD
    counts = {OLD: 0, NEW: 0, "none": 0, "finished": 0}
    wrong: list[str] = []
    for kind in KINDS:
        troubles = ["ENOSPC", "EIO"] + (["short", "full"] if kind == "write" else [])
        for trouble in ["EROFS"] if kind in ("create", "mkdir") else troubles:
            for fresh in (False, True):
                number = 1
                while _fails(disk, folder, (write, read), (kind, trouble, number, fresh), counts, wrong):
                    number += 1
    return {"counts": counts, "wrong": wrong}


def _fails(
    disk: Any,
    folder: Path,
    writer: tuple[Write, Read],
    case: tuple[str, str, int, bool],
    counts: dict[str, int],
    wrong: list[str],
) -> bool:
    """Whether there was a call of this number to fail; `fresh`: nothing is there yet."""
    write, (kind, trouble, number, fresh) = writer[0], case
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    if not fresh:
        write(place, OLD)
    said, handles = f"{kind} {number} {trouble}{' fresh' if fresh else ''}: ", _open_files()
    disk.arm(KINDS[kind], number, TROUBLES[trouble], os.fsencode(place))
    error: BaseException | None = None
    try:
        write(place, OLD if fresh else NEW)
    except LogsparseError as refused:
        error = refused
        if "must be writable" not in str(refused) or "\n" in str(refused) or str(place) not in str(refused):
            wrong.append(said + str(refused))
    except BaseException as other:  # noqa: BLE001 (that is what is looked for)
        error = other
        wrong.append(said + repr(other))
    if not disk.disarm():
        return False
    counts[_judge(place, writer, error, fresh=fresh, note=lambda text: wrong.append(said + text))] += 1
    if litter := [path.name for path in place.rglob("*") if path.name.endswith(".part") or path.name[0] == "."]:
        wrong.append(said + f"left {litter}")
    if _open_files() > handles:
        wrong.append(said + "files left open")
    return True


def _judge(
    place: Path, writer: tuple[Write, Read], error: BaseException | None, *, fresh: bool, note: Callable[[str], object]
) -> str:
    """What is there after a write that failed or not; and whether the next one succeeds."""
    (write, read), found = writer, "none"
    try:
        found = read(place)
    except Exception as other:  # noqa: BLE001 (that is what is looked for)
        if not fresh or error is None:
            note(f"then {other!r}")
    if error is None and found != (OLD if fresh else NEW):
        note(f"reported as written, and {found} is there")
    after = OLD if found == "none" else NEXT
    try:
        write(place, after)
        if read(place) != after:
            note("the next write did nothing")
    except Exception as other:  # noqa: BLE001 (that is what is looked for)
        note(f"the next write: {other!r}")
    return found if error else "finished"


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    library, folder, writer = sys.argv[1:]
    sys.stdout.write(json.dumps(fail_each(ctypes.CDLL(library), Path(folder), writer)))
