"""Small files in the exact formats of the public originals, made from known numbers."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from logsparse.paper.download import Files, find

# D days, S series, T times

Doubles = NDArray[np.float64]
HOLIDAYS = [date(2008, 1, 21), date(2008, 2, 18), date(2008, 3, 9), date(2008, 5, 26), date(2008, 7, 4)]


def comma(number: float) -> str:
    """2,53807106598985 and 0, as UCI writes them."""
    return f"{number:.15g}".replace(".", ",")


def electricity(first: datetime, values_TS: Doubles, newline: str = "\n") -> bytes:
    header = ['""', *(f'"MT_{i + 1:03d}"' for i in range(values_TS.shape[1]))]
    lines = [";".join(header)]
    for step, row in enumerate(values_TS):
        lines.append(";".join([f'"{first + step * timedelta(minutes=15)}"', *map(comma, row)]))
    return (newline.join(lines) + newline).encode()


def pems_days(last: date = date(2008, 7, 10)) -> list[date]:
    first = date(2008, 1, 2)
    calendar = [first + timedelta(days=i) for i in range((last - first).days + 1)]
    return [day for day in calendar if day not in HOLIDAYS]


def pems(days: list[date], values_DST: Doubles, seed: int = 0) -> dict[str, bytes]:
    """Line k holds day randperm[k], counted from 1; three in five lines are the training part; Sunday is 1."""
    order = np.random.default_rng(seed).permutation(len(days))
    lines = [
        "[" + ";".join(" ".join(f"{number:g}" for number in row) for row in values_DST[day]) + "]" for day in order
    ]
    labels = [days[day].isoweekday() % 7 + 1 for day in order]
    cut = 3 * len(days) // 5
    return {
        "PEMS_train": ("\n".join(lines[:cut]) + "\n").encode(),
        "PEMS_test": ("\n".join(lines[cut:]) + "\n").encode(),
        "PEMS_trainlabels": vector(labels[:cut]),
        "PEMS_testlabels": vector(labels[cut:]),
        "randperm": vector((order + 1).tolist()),
        "stations_list": vector([400000 + i for i in range(values_DST.shape[1])]),
    }


def vector(numbers: list[int]) -> bytes:
    return f"[{' '.join(map(str, numbers))}]\n".encode()


def nrel(first: datetime, values_T: Doubles) -> bytes:
    lines = ["LocalTime,Power(MW)"]
    for step, value in enumerate(values_T):
        lines.append(f"{first + step * timedelta(minutes=5):%m/%d/%y %H:%M},{value:.1f}")
    return ("\n".join(lines) + "\n").encode()


def european(values: Mapping[str, Doubles]) -> bytes:
    lines = [",".join(values), *(",".join(f"{x:.6g}" for x in row) for row in zip(*values.values(), strict=True))]
    return ("\n".join(lines) + "\n").encode()


def m4(series: Mapping[str, tuple[datetime, list[float]]]) -> dict[str, bytes]:
    """The last 48 values of each are the test part; the info file knows other frequencies too."""
    longest = max(len(values) for _, values in series.values()) - 48
    info = ["M4id,category,Frequency,Horizon,SP,StartingDate", "Y1,Macro,1,6,Yearly,1884-01-01 12:00:00"]
    train = [",".join(f'"V{i + 1}"' for i in range(longest + 1))]
    test = [",".join(f'"V{i + 1}"' for i in range(49))]
    for name, (start, values) in series.items():
        quoted = [f'"{int(value) if value == int(value) else value!r}"' for value in values]
        train.append(f'"{name}",' + ",".join(quoted[:-48]) + "," * (longest + 48 - len(values)))
        test.append(f'"{name}",' + ",".join(quoted[-48:]))
        info.append(f"{name},Other,24,48,Hourly,{start:%d-%m-%y %H:%M}")
    parts = {"Hourly-train.csv": train, "Hourly-test.csv": test, "M4-info.csv": info}
    return {name: ("\n".join(lines) + "\n").encode() for name, lines in parts.items()}


def packed(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def laid(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def found(folder: Path, files: Mapping[str, bytes], *patterns: str) -> Files:
    return find([laid(folder, files)], patterns or list(files))
