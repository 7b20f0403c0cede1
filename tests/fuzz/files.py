"""A random generator -> one hostile file or folder: in an unusual dialect, damaged, or not data at all."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from fuzz.case import Case
from fuzz.truth import Truth, some_names, truth
from logsparse.data.frame import to_panel

pa: Any = import_module("pyarrow")
parquet: Any = import_module("pyarrow.parquet")
ENDINGS = ("csv", "tsv", "txt", "parquet", "pq", "feather", "arrow", "ipc", "CSV", "Parquet")


def case(rng: np.random.Generator, folder: Path) -> Case:
    """Half of the cases compare every value with a known truth; the others must only not crash."""
    make = (table_file, parts, damaged, no_data, odd_path)[rng.choice(5, p=(0.35, 0.15, 0.25, 0.15, 0.1))]
    return make(rng, folder)


def _runs(path: Any) -> Callable[[], None]:
    def run() -> None:
        panel = to_panel(path)
        assert not np.isinf(panel.values).any(), "an infinite value"
        assert len(set(panel.ids)) == len(panel.ids), "one id twice"

    return run


def _table(rng: np.random.Generator, known: Truth, names: dict[int, str]) -> pl.DataFrame:
    """The truth as a table that a columnar file can hold; in a csv file, times are text anyway."""
    times = [known.times[step] for _, step, _ in known.rows]
    if known.freq.isdigit():
        stamps = pl.Series([int(t) for t in times])
    else:
        unit: Any = rng.choice(["ms", "us", "ns"])
        stamps = pl.Series([pd.Timestamp(t).to_pydatetime() for t in times]).cast(pl.Datetime(unit))
        stamps = stamps if known.zone is None else stamps.dt.replace_time_zone("UTC").dt.convert_time_zone(known.zone)
    return pl.DataFrame(
        {
            "unique_id": [names[number] for number, _, _ in known.rows],
            "ds": stamps,
            "y": pl.Series([value for _, _, value in known.rows], dtype=pl.Float64),
        }
    )


# ---- files with a known truth


def table_file(rng: np.random.Generator, folder: Path) -> Case:
    """One file of any kind, written in one of many ways."""
    known = truth(rng)
    names = some_names(rng, known.series)
    kind = str(rng.choice(["csv", "csv", "parquet", "feather"]))
    if kind == "csv":
        names = {number: name.replace("\n", " ") if rng.random() < 0.5 else name for number, name in names.items()}
        path, how = _csv(rng, folder, known, names)
    else:
        path, how = _columns_file(rng, folder / f"data.{kind}", _table(rng, known, names))
    return Case(f"file: {kind}", f"{how}, step {known.freq}", lambda: known.check(path, names))


def _csv(rng: np.random.Generator, folder: Path, known: Truth, names: dict[int, str]) -> tuple[Path, str]:
    separator = str(rng.choice([",", ";", "\t"]))
    comma = separator != "," and rng.random() < 0.5
    end = str(rng.choice(["\n", "\r\n"]))
    quoted, mark, blank = rng.random() < 0.3, rng.random() < 0.2, rng.random() < 0.2
    missing = str(rng.choice(["", "NA", "NaN", "nan", "null", "None", "N/A", "NULL"]))
    order = rng.permutation(3)

    def field(text: str) -> str:
        plain = not (quoted or any(c in text for c in f'{separator}"\r\n') or text != text.strip() or not text)
        return text if plain else '"' + text.replace('"', '""') + '"'

    lines = [separator.join(np.array(["unique_id", "ds", "y"], object)[order])]
    for number, step, value in known.rows:
        written = repr(value).replace(".", ",") if comma and value is not None else repr(value)
        cell = missing if value is None else field(written)
        lines.append(
            separator.join(np.array([field(names[number]), field(_written(known, step)), cell], object)[order])
        )
        lines += [""] if blank and rng.random() < 0.2 else []
    path = folder / f"data.{rng.choice(['csv', 'txt', 'tsv', 'CSV'])}"
    path.write_bytes(
        (b"\xef\xbb\xbf" if mark else b"") + end.join([*lines, ""] if rng.random() < 0.8 else lines).encode()
    )
    return (
        path,
        f"{separator!r}, line end {end!r}, comma {comma}, quoted {quoted}, missing {missing!r}, blank {blank}",
    )


def _written(known: Truth, step: int) -> str:
    time = known.times[step]
    return str(time) if known.freq.isdigit() else f"{time.isoformat()}{'' if known.zone is None else 'Z'}"


def _columns_file(rng: np.random.Generator, path: Path, table: pl.DataFrame) -> tuple[Path, str]:
    if path.suffix == ".feather":
        packing: Any = rng.choice(["uncompressed", "lz4", "zstd"])
        table.write_ipc(path, compression=packing)
        return path, f"feather {packing}"
    packing = rng.choice(["uncompressed", "snappy", "gzip", "zstd", "lz4"])
    if rng.random() < 0.5:
        table.write_parquet(path, compression=packing, row_group_size=int(rng.integers(1, 40)))
        return path, f"polars' parquet {packing}"
    options = {"version": str(rng.choice(["1.0", "2.4", "2.6"])), "use_dictionary": bool(rng.random() < 0.5)}
    arrow = table.to_arrow()
    parquet.write_table(arrow, path, compression=str(rng.choice(["none", "snappy", "gzip", "zstd"])), **options)
    return path, f"pyarrow's parquet {options}"


def parts(rng: np.random.Generator, folder: Path) -> Case:
    """A folder of parts, split at random or by series, with files of other programs in it."""
    known = truth(rng)
    names = some_names(rng, known.series)
    table = _table(rng, known, names)
    root = folder / "parts"
    root.mkdir()
    hive = rng.random() < 0.4
    if hive:
        from urllib.parse import quote

        for number, (_, part) in enumerate(table.group_by("unique_id", maintain_order=True)):
            into = root / f"unique_id={quote(str(part['unique_id'][0]), safe='')}"
            into.mkdir()
            part.drop("unique_id").write_parquet(into / f"{number}.parquet")
    else:
        for number, begin in enumerate(range(0, table.height, size := int(rng.integers(1, table.height + 1)))):
            into = root / ("deep" if number % 2 else ".")
            into.mkdir(exist_ok=True)
            table[begin : begin + size].write_parquet(into / f"part {number}.parquet")
    (root / "_SUCCESS").touch()
    (root / "_notes.parquet").write_bytes(b"no parquet")
    (root / ".part.parquet").write_bytes(b"")
    (root / "readme.txt").write_text("words")
    return Case("file: parts", f"by series {hive}, step {known.freq}", lambda: known.check(root, names))


# ---- files without a known truth


def damaged(rng: np.random.Generator, folder: Path) -> Case:
    """A good file that was cut, changed or renamed."""
    known = truth(rng)
    kind = str(rng.choice(["csv", "parquet", "feather", "nested parquet"]))
    path = folder / f"data.{kind.rsplit(maxsplit=1)[-1]}"
    names = some_names(rng, known.series)
    if kind == "csv":
        path, _ = _csv(rng, folder, known, names)
    elif kind == "nested parquet":
        _nested(rng, path)
    else:
        _columns_file(rng, path, _table(rng, known, names))
    content = bytearray(path.read_bytes())
    how = str(rng.choice(["cut", "flipped", "doubled", "stuffed", "other ending", "as it is"]))
    if how == "cut":
        content = content[: int(rng.integers(0, len(content)))]
    elif how == "flipped":
        for _ in range(int(rng.integers(1, 9))):
            content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    elif how == "doubled":
        content = content * 2
    elif how == "stuffed":
        at = int(rng.integers(len(content)))
        content[at:at] = rng.bytes(int(rng.integers(1, 50)))
    elif how == "other ending":
        path = path.with_suffix(f".{rng.choice(ENDINGS)}")
    path.write_bytes(bytes(content))
    return Case(f"file: damaged {kind}", how, _runs(path))


def _nested(rng: np.random.Generator, path: Path) -> None:
    size = 6
    columns: dict[str, Any] = {"unique_id": ["a"] * size, "ds": list(range(size)), "y": [1.0] * size}
    deep: Any = [1.0]
    for _ in range(int(rng.integers(1, 30))):
        deep = [deep] if rng.random() < 0.5 else {"a": deep}
    columns[str(rng.choice(["unique_id", "ds", "y", "z"]))] = [deep] * size
    parquet.write_table(pa.table(columns), path)


def no_data(rng: np.random.Generator, folder: Path) -> Case:
    """Bytes that are not a table, or a table in an unsupported encoding or compression."""
    good = "unique_id,ds,y\n" + "".join(f"M\xfcller,{i},{i}.5\n" for i in range(20))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("data.csv", good)
    contents: dict[str, Callable[[], bytes]] = {
        "nothing": lambda: b"",
        "noise": lambda: rng.bytes(int(rng.integers(1, 5000))),
        "zeros": lambda: bytes(int(rng.integers(1, 10**6))),
        "line ends": lambda: b"\n" * int(rng.integers(1, 1000)),
        "a header": lambda: b"unique_id,ds,y",
        "a header and a line end": lambda: b"unique_id,ds,y\n",
        "one line": lambda: b"a" * int(rng.integers(1, 10**6)),
        "separators": lambda: b",;\t" * int(rng.integers(1, 1000)),
        "quotes": lambda: b'"' * int(rng.integers(1, 1000)),
        "an open quote": lambda: b'unique_id,ds,y\n"a,1,1\na,2,2\n',
        "ragged lines": lambda: b"unique_id,ds,y\na,1\na,2,2,3,4\n\na\n",
        "no names": lambda: b",,\na,1,1\n",
        "NUL": lambda: good.encode().replace(b",", b"\0,"),
        "a long header": lambda: b"x" * 200_000 + b",ds,y\na,1,1\n",
        "latin-1": lambda: good.encode("latin-1"),
        "utf-16": lambda: good.encode("utf-16"),
        "utf-16 without a mark": lambda: good.encode("utf-16-le"),
        "utf-32": lambda: good.encode("utf-32"),
        "gzip": lambda: gzip.compress(good.encode()),
        "bzip2": lambda: bz2.compress(good.encode()),
        "zlib": lambda: zlib.compress(good.encode(), int(rng.integers(0, 10))),
        "zip": packed.getvalue,
        "a page": lambda: b"<!doctype html><html><body>404</body></html>\n" * 50,
        "JSON": lambda: b'[{"unique_id": "a", "ds": 1, "y": 1}]\n',
        "parquet's mark alone": lambda: b"PAR1PAR1",
        "arrow's mark alone": lambda: b"ARROW1\0\0ARROW1",
        "huge numbers": lambda: b"unique_id,ds,y\na,99999999999999999999999,1e999\nb," + b"9" * 5000 + b",1\n",
    }
    how = str(rng.choice(list(contents)))
    path = folder / f"data.{rng.choice(ENDINGS)}"
    path.write_bytes(contents[how]())
    return Case("file: no data", f"{how} in {path.suffix}", _runs(path))


def odd_path(rng: np.random.Generator, folder: Path) -> Case:
    """Names, links and folders that lead nowhere, in circles, or to something that is not a file."""
    good = folder / "good.parquet"
    pl.DataFrame({"unique_id": "a", "ds": [1, 2, 3], "y": 1.0}).write_parquet(good)
    ending = str(rng.choice(ENDINGS))
    name = folder / f"data.{ending}"

    def linked(to: Path | str) -> Path:
        name.symlink_to(to)
        return name

    def renamed(raw: bytes) -> Path:
        return good.rename(Path(os.fsdecode(os.fsencode(folder) + b"/" + raw + f".{ending}".encode())))

    def made() -> Path:
        name.mkdir()
        (name / "part.parquet").symlink_to(good)
        return name

    def emptied() -> Path:
        (folder / "empty").mkdir()
        return linked("empty")

    def piped() -> Path:
        os.mkfifo(name)
        return name

    ways: dict[str, Callable[[], Any]] = {
        "a link": lambda: linked(good),
        "a link to nothing": lambda: linked("nowhere"),
        "a link to itself": lambda: linked(name),
        "a link to an endless device": lambda: linked("/dev/zero"),
        "a link to an empty device": lambda: linked("/dev/null"),
        "a link to a folder": lambda: linked(folder),
        "a folder with an ending": made,
        "an empty folder": emptied,
        "a pipe": piped,
        "a name that is not UTF-8": lambda: renamed(b"\xff\xfe"),
        "a name with an escape sequence": lambda: renamed(b"\x1b[2J"),
        "a name with a line end": lambda: renamed(b"a\nb"),
        "a name of wildcards": lambda: renamed(b"[ab]*?{x}"),
        "a name of a web page": lambda: f"https://example.invalid/data.{ending}",
        "a long name": lambda: folder / ("x" * 300 + f".{ending}"),
        "a NUL in the name": lambda: f"{folder}/a\0b.{ending}",
        "below a file": lambda: good / f"x.{ending}",
        "a lone surrogate": lambda: f"{folder}/\ud800.{ending}",
        "a home that is none": lambda: f"~nobody/{ending}",
    }
    how = str(rng.choice(list(ways)))
    return Case("file: odd path", f"{how}, {ending}", _runs(ways[how]()))
