"""Shared parts of the commands: options, lines and tables on the terminal, standard input and output, checkpoints."""

from __future__ import annotations

import atexit
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from logsparse.errors import ConfigError, DataError, escaped, suggest

if TYPE_CHECKING:
    import polars as pl

    from logsparse.data.columns import Columns

STREAM = Path("-")
FORMATS = ("csv", "json", "parquet", "feather")
# First bytes of a file -> ending of its name; anything else is csv.
_ENDINGS = {b"PAR1": ".parquet", b"ARROW1": ".feather"}

Format = Annotated[
    str | None, typer.Option("--format", help="of `-o -`, standard output: csv, json, parquet or feather [csv]")
]


def source(path: Path) -> Path | pl.DataFrame:
    """Return the path; for `-`, what is on standard input: a temporary file, or a frame if it is JSON.

    A file, so that the rules of files apply: ids of csv stay as written, and a table that is too large is refused.
    """
    if path != STREAM:
        return path
    blob = sys.stdin.buffer.read()
    start = blob.lstrip()[:6]
    if not start:
        raise DataError("Standard input must hold a table.", got="nothing", hint="pipe a file into the command.")
    if start[:1] in (b"[", b"{"):
        return _from_json(blob, lines=start[:1] == b"{")
    folder = Path(mkdtemp(prefix="logsparse-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ending = next((ending for magic, ending in _ENDINGS.items() if start.startswith(magic)), ".csv")
    place = folder / f"standard-input{ending}"
    place.write_bytes(blob)
    return place


def check_format(format_: str | None, out: Path | None) -> None:
    """Raise ConfigError for an unknown format, or for one beside the name of a file, whose ending is its format."""
    if format_ is not None and out != STREAM:
        raise ConfigError(
            "--format is for standard output.", got=f"--format {format_}", hint="add -o -, or end the name of -o in it."
        )
    if format_ is not None and format_ not in FORMATS:
        raise ConfigError(
            f"--format must be one of: {', '.join(FORMATS)}.",
            got=repr(format_),
            hint=suggest(format_, FORMATS, "leave it out for csv."),
        )


def write_stream(table: pl.DataFrame, format_: str | None) -> None:
    """Write to standard output, as csv unless another format is named."""
    from logsparse.data.files import encode

    sys.stdout.buffer.write(encode(table, format_ or "csv"))
    sys.stdout.buffer.flush()


def _from_json(blob: bytes, *, lines: bool) -> pl.DataFrame:
    """Read a list of records, or one record per line."""
    import polars as pl

    try:
        return pl.read_ndjson(blob) if lines else pl.read_json(blob)
    except pl.exceptions.PolarsError as error:
        raise DataError(
            "JSON on standard input must be a list of records, or one record per line.",
            got=f"what polars reports as: {str(error).splitlines()[0].rstrip('.')}",
            hint='write [{"unique_id": "a", "ds": "2024-01-01", "y": 1.0}, ...].',
        ) from error


# Exit code if findings about the data are reason enough: `check --fail-on`, `predict --on-bad skip`.
FINDINGS = 3
# Columns of scores that are printed; a file has all of them.
SHOWN = ("count", "R0.5", "R0.9", "wql", "coverage_80", "mase", "nd", "rmse")
SHOWN_OF_MODELS = ("wql", "skill", "nd", "mase", "rmse", "coverage_80", "count")


def say(text: str) -> None:
    """Print a message on the error stream, which leaves the output stream to results."""
    typer.echo(escaped(text), err=True)


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def print_rows(rows: Sequence[tuple[str, str]], *, beside: Path | None = None) -> None:
    """Print labels and values; on the error stream if the result itself goes to standard output."""
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        typer.echo(escaped(f"{label:<{width}}  {value}"), err=beside == STREAM)


_GAP = "  "
_READABLE = 24
"""Characters of a column that is still read; with less room, its text has lines of its own."""


def print_table(names: Sequence[str], rows: Sequence[Sequence[str]], *, keys: int = 1) -> None:
    """Print rows under a header: text and the first columns, the keys, aligned left, numbers right.

    On a terminal, text of the last column is wrapped where it is too wide for it.
    """
    lines = [[escaped(cell) for cell in row] for row in (names, *rows)]
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    left = [i < keys or any(cell.count(" ") > 1 for cell in column[1:]) for i, column in enumerate(columns)]
    before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    for row in lines:
        cells = [
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(row, widths, left, strict=True)
        ]
        for line in _wrapped(_GAP.join(cells[:-1]), cells[-1], before) if left[-1] else [_GAP.join(cells)]:
            typer.echo(line.rstrip())


def _wrapped(start: str, text: str, before: int) -> list[str]:
    """Add text to the start of a line, on further lines below its column where the terminal is too narrow."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    begun = start + _GAP if start else ""
    if before + len(text.rstrip()) <= width:
        return [begun + text]
    if width - before >= _READABLE:
        first, *rest = textwrap.wrap(text, width - before)
        return [begun + first, *(" " * before + line for line in rest)]
    indent = " " * 4
    return [start, *textwrap.wrap(text, max(width, _READABLE), initial_indent=indent, subsequent_indent=indent)]


def check_out(path: Path | None, format_: str | None = None) -> None:
    """Refuse a file that cannot be written, before the work starts; `-` is standard output."""
    check_format(format_, path)
    if path not in (None, STREAM):
        from logsparse.data.files import check_writable

        check_writable(path)


def write_table(table: pl.DataFrame, path: Path | None, format_: str | None = None) -> None:
    """Write to the file, or to standard output in this format if the path is `-`."""
    if path == STREAM:
        write_stream(table, format_)
    elif path is not None:
        from logsparse.data.files import write

        write(table, path)
        say(f"wrote {path}")


def print_scores(
    results: Any, *, by: str | None = None, out: Path | None = None, format_: str | None = None, **names: Any
) -> None:
    """Score the results, write all scores to `out` if given, and print them unless that is standard output."""
    from logsparse.data.columns import MODEL
    from logsparse.evaluation.metrics import ranking, score

    scores = score(results, by=by, **names)
    write_table(scores, out, format_)
    if out == STREAM:
        return
    compared = MODEL in scores.columns
    if by is None and not compared:
        print_rows([(name, number(value)) for name, value in scores.row(0, named=True).items()])
    else:
        grouped = by is not None and by != MODEL
        keys = [*scores.columns[:1], *([MODEL] if compared and grouped else [])]
        measures = SHOWN_OF_MODELS if compared else SHOWN
        shown = [*keys, *(name for name in measures if name in scores.columns)]
        if compared and not grouped and (rank := ranking(scores)):
            skill = "; skill is 1 - mae / that of seasonal naive" if "skill" in shown else ""
            say(f"models by {rank}, best first{skill}")
        rows = [[_cell(value) for value in row] for row in scores.select(shown).iter_rows()]
        print_table(shown, rows, keys=len(keys))


def _cell(value: Any) -> str:
    return number(value) if value is None or isinstance(value, float) else str(value)


def say_of_training(model: object, path: Path) -> None:
    """Print that the training of a saved model, or of a member of a saved ensemble, was too short, if it was."""
    for name, member in getattr(model, "members_", {}).items():
        say_of_training(member, path / name)
    history = getattr(model, "history_", None)
    if history is not None and history.warning:
        say(f"{path}: {history.warning}")


_FILE = "parquet, csv or feather file, folder of parquet files, or - for standard input"

Data = Annotated[Path, typer.Argument(metavar="DATA", help=_FILE)]
History = Annotated[Path | None, typer.Argument(metavar="DATA", help=f"{_FILE} [the data MODEL was fitted on]")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="folder of a fitted model")]
ResultFile = Annotated[Path, typer.Argument(metavar="RESULTS", help="result file of a backtest, or -")]
Future = Annotated[Path | None, typer.Option(help="file with the covariates over the horizon, and new series")]
Until = Annotated[str | None, typer.Option(help="time of the last step to train on [the end of each series]")]
Preset = Annotated[
    str | None, typer.Option(help="settings of the paper: a data set, such as electricity-f, or `paper` for any other")
]
Steps = Annotated[int | None, typer.Option(help="number of training steps [those of the settings]")]
Minutes = Annotated[float | None, typer.Option(help="time limit of the training in minutes [no limit]")]
MethodName = Annotated[
    str | None,
    typer.Option("--method", help="how a network forecasts: ancestral, mean-path, two-way or direct [as fitted]"),
]
Quantiles = Annotated[str | None, typer.Option(help="levels such as 0.1,0.5,0.9 [0.1 to 0.9]")]
Samples = Annotated[
    int | None, typer.Option(help="sample paths to draw per series [the model's setting, or as many as needed]")
]
Covariates = Annotated[str | None, typer.Option(help="columns whose future values are known: a,b")]
PastCovariates = Annotated[str | None, typer.Option(help="columns known for the past only: a,b")]
StaticNames = Annotated[str | None, typer.Option("--static", help="columns with one category per series: a,b")]
IdCol = Annotated[str | None, typer.Option(help="column of series ids [unique_id]")]
TimeCol = Annotated[str | None, typer.Option(help="column of times [ds]")]
TargetCol = Annotated[str | None, typer.Option(help="column of values [y]")]
FreqText = Annotated[str | None, typer.Option("--freq", help="time step, such as 15min, h, D, ME [inferred]")]

Tz = Annotated[str | None, typer.Option("--tz", help="time zone of local times, such as Europe/Berlin [none]")]
TimeFormat = Annotated[
    str | None, typer.Option("--time-format", help="how times are written, such as '%d.%m.%Y %H:%M' [year first]")
]
DayFirst = Annotated[
    bool | None,
    typer.Option("--dayfirst/--monthfirst", help="whether 01.02.2024 is in February or January [refused]"),
]

Jobs = Annotated[
    int | None,
    typer.Option(help="for a folder of parts: number of processes, with one thread each [one per core]"),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="[ADDRESS]",
        help="for a folder of parts: use the workers of a Ray cluster, by default the running one, or a new one here",
    ),
]


def folders(data: Path | None, out: Path | None, jobs: int | None, ray: str | None) -> tuple[Path, Path] | None:
    """Return DATA and -o if both are folders, so that the parts of DATA are worked off one by one; else None."""
    from logsparse.data.files import is_file_name

    into_folder = out is not None and out != STREAM and (out.is_dir() or not is_file_name(out))
    if data is not None and data.is_dir() and out is not None and into_folder:
        return data, out
    if jobs is None and ray is None:
        return None
    option = "--jobs" if ray is None else "--ray"
    if data is None or not data.is_dir():
        raise ConfigError(
            f"{option} is for DATA that is a folder of parts.",
            got="no DATA" if data is None else str(data),
            hint=f"make one: `logsparse shard {data or 'DATA'} -o parts`.",
        )
    raise ConfigError(
        f"{option} writes one file per part, into a folder.",
        got="no -o" if out is None else f"-o {out}",
        hint="give the name of a folder with -o.",
    )


def engine(ray: str | None) -> bool | str:
    """Return the address of --ray, True if it was given without one, or False."""
    return False if ray is None else ray or True


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given on the command line."""
    return {name: value for name, value in options.items() if value is not None}


def columns(**options: Any) -> Columns:
    """Return the column names that were given; the others keep their defaults."""
    return cast("Columns", given(**options))


def listed(text: str | None) -> list[str] | None:
    """Split a comma-separated list."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def levels_of(text: str | None) -> list[float] | None:
    """Return the levels of --quantiles."""
    try:
        return None if text is None else [float(part) for part in listed(text) or []]
    except ValueError as error:
        raise ConfigError(
            "--quantiles must be levels between 0 and 1.", got=repr(text), hint="write --quantiles 0.1,0.5,0.9."
        ) from error


def claim(folder: Path, seeds: Iterable[int]) -> bool:
    """Create the folder of checkpoints; return True if it has a checkpoint of one of these seeds.

    Checkpoints record their own settings and data. The folder is removed after training, so nothing else may be in it.
    """
    if folder.exists() and not folder.is_dir():
        raise _foreign(folder, "a file that no training wrote")
    folder.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in folder.iterdir()}
    if not all(re.fullmatch(r"seed-\d+", name) for name in names):
        raise _foreign(folder, "files that no training wrote")
    if names - {f"seed-{seed}" for seed in seeds}:
        raise _foreign(folder, "checkpoints of another seed")
    return any(any(path.iterdir()) for path in folder.iterdir())


def start_over(folder: Path) -> None:
    """Remove the checkpoints that unfinished trainings left; raise DataError if one of them is still running."""
    from logsparse.train.checkpoint import lock_seeds

    left = [path for path in folder.glob("seed-*") if re.fullmatch(r"seed-\d+", path.name) and path.is_dir()]
    with lock_seeds(folder, [int(path.name.removeprefix("seed-")) for path in left]):
        for path in left:
            shutil.rmtree(path)
    if left:
        say(f"removed the unfinished training in {folder}")


def _foreign(folder: Path, found: str) -> DataError:
    return DataError(
        f"Checkpoints go to {folder}, which must be new or hold checkpoints of this training only.",
        got=found,
        hint=f"repeat the earlier command to resume it, or remove {folder} to start over (fit --again does).",
    )
