"""A random generator -> rows with known values, and the check that a panel holds the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from logsparse.data.frame import to_panel
from logsparse.errors import LogsparseError

# Steps that can be inferred from few times; business days need freq=.
STEPS = ("1", "7", "s", "15min", "h", "6h", "D", "W", "MS", "ME", "QS", "YE", "B")
ZONES = (None, None, None, "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")


@dataclass(frozen=True)
class Truth:
    """Rows (series, step, value): a value is a float32 or None; `times` holds the time of every step."""

    rows: list[tuple[int, int, float | None]]
    times: Any
    """Integers, or a pandas index of naive times; in a zone these are UTC."""
    zone: str | None
    freq: str
    given: bool
    """True if the step has to be given, since it cannot be inferred from the rows."""

    @property
    def series(self) -> list[int]:
        """Numbers of the series, in order of appearance."""
        return list(dict.fromkeys(number for number, _, _ in self.rows))

    def clock(self, step: int) -> int:
        """Return the time of a step on the clock of a panel."""
        time = self.times[step]
        return int(time) if self.freq.isdigit() else int(np.datetime64(time, "us").astype(np.int64))

    def check(self, data: Any, names: dict[int, str], *, wide: bool = False) -> None:
        """Assert that the data are accepted and become exactly these series."""
        freq = (int(self.freq) if self.freq.isdigit() else self.freq) if self.given else None
        try:
            panel = to_panel(data, freq=freq)
        except LogsparseError as error:
            raise AssertionError(f"refused: {error}") from error
        found = {str(name): number for number, name in enumerate(panel.ids)}
        assert sorted(found) == sorted(names.values()), f"ids {sorted(found)} for {sorted(names.values())}"
        end = max(step for _, step, _ in self.rows)
        for number, name in names.items():
            cells = {step: value for series, step, value in self.rows if series == number}
            first = min(step for step, value in cells.items() if value is not None)
            last = end if wide else max(cells)
            values = [cells.get(step) for step in range(first, last + 1)]
            wanted = np.array([np.nan if value is None else value for value in values], np.float32)
            np.testing.assert_array_equal(panel[found[name]], wanted, err_msg=name)
            assert int(panel.starts[found[name]]) == self.clock(first), f"start of {name}"


def truth(rng: np.random.Generator) -> Truth:
    """One to five series of up to 30 steps, with gaps, late starts and values of every size."""
    freq = str(rng.choice(STEPS))
    zone = rng.choice(np.array(ZONES, object)) if freq in ("s", "15min", "h", "6h") else None
    total = int(rng.integers(8, 31))
    if freq.isdigit():
        start = int(rng.choice([0, 1, -5, 10**6, 2**40, -(2**50)]))
        times: Any = start + int(freq) * np.arange(total)
    else:
        begin = str(rng.choice(["2024-01-01", "1970-01-01", "1905-03-07", "2024-03-29 22:00", "2199-12-30"]))
        times = pd.date_range(begin, periods=total, freq=freq, unit="us")
    given = freq == "B" or rng.random() < 0.4
    rows: list[tuple[int, int, float | None]] = []
    for number in range(int(rng.integers(1, 6))):
        first = int(rng.integers(0, total - 6))
        last = int(rng.integers(first + 5, total))
        for step in range(first, last + 1):
            empty = rng.random() < 0.2 and step != first + 3
            if not (empty and given and rng.random() < 0.5):
                rows.append((number, step, None if empty else value(rng)))
    if given and max(number for number, _, _ in rows) > 0 and rng.random() < 0.2:
        rows = [rows[i] for i in rng.permutation(len(rows))]
    return Truth(rows, times, zone, freq, given)


def value(rng: np.random.Generator) -> float:
    """A number that float32 holds exactly: huge, tiny, whole or ordinary."""
    size = rng.random()
    if size < 0.3:
        return float(rng.integers(-(2**24), 2**24))
    if size < 0.4:
        return float(rng.choice(np.array([0.0, 3.4028235e38, -3.4028235e38, 1e-45, 1.1754944e-38, -1e-30], np.float32)))
    return float(np.float32(rng.normal() * 10.0 ** rng.integers(-20, 20)))


def some_names(rng: np.random.Generator, series: list[int]) -> dict[int, str]:
    """A different name for each series, some of them unusual."""
    odd = [
        "a",
        "A",
        "é",
        "e\u0301",
        "北京",
        " a",
        "a ",
        "007",
        "7",
        "1.10",
        "NA",
        "None",
        "null",
        "nan",
        "x,y",
        'q"q',
        "a;b",
    ]
    odd += [
        "\x1b[2J",
        "two\nlines",
        "\u202eback",
        "tab\tbed",
        "-",
        "'",
        "\\N",
        "True",
        "1e5",
        "0x10",
        "=1+1",
        "%s",
        "{}",
    ]
    return dict(zip(series, rng.choice(np.array(odd, object), len(series), replace=False).tolist(), strict=True))
