"""Ranks that share a folder of parts learn what one process learns from all of it; none waits for one that fails."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import holidays as calendars
import numpy as np
import polars as pl
import pytest
import torch

import logsparse as ls
import small
from logsparse.cluster.share import Shared, _shares
from logsparse.data.features import holidays_of, recognised_holidays
from logsparse.data.panel import Panel
from logsparse.data.sampler import Pairs, Sampler, split
from logsparse.data.scale import Scaling
from logsparse.defaults import for_amount, recommend
from logsparse.train.batches import Draws, TrainingSet
from logsparse.train.checkpoint import fingerprint
from logsparse.train.distributed import Ranks

HERE = Path(__file__).parent
QUICK = {"horizon": 6, "context": 24, "layers": 2, "width": 8, "heads": 2, "kernel": 2, "batch": 8}
HOUR = np.timedelta64(3_600_000_000, "us")
Found = TypeVar("Found")


@dataclass
class Meeting:
    """Where threads that stand for ranks exchange objects."""

    count: int
    slots: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.barrier, self.slots = threading.Barrier(self.count, timeout=60), [None] * self.count

    def exchange(self, rank: int, own: Any) -> list[Any]:
        self.slots[rank] = own
        self.barrier.wait()
        found = list(self.slots)
        self.barrier.wait()
        return found


@dataclass(frozen=True)
class Threads(Ranks):
    """A rank that is a thread of this process."""

    meeting: Meeting = field(default_factory=lambda: Meeting(1))

    def gather(self, own: Any) -> list[Any]:
        return self.meeting.exchange(self.rank, own)


def shared(panel: Panel, counts: list[int], work: Callable[[Shared, Ranks], Found]) -> list[Found]:
    """Return what each rank makes of its view of a panel, of which it holds so many series."""
    meeting, rank_S = Meeting(len(counts)), np.repeat(np.arange(len(counts)), counts)

    def one(rank: int) -> Found:
        ranks = Threads(rank, len(counts), meeting=meeting)
        try:
            return work(Shared.of(panel.keep(rank_S == rank), ranks), ranks)
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(len(counts)) as pool:
        return list(pool.map(one, range(len(counts))))


def uneven() -> Panel:
    """Series of different lengths, some shorter than a window, with gaps, also at their end."""
    lengths = [120, 9, 75, 31, 118, 1, 64, 90, 8, 101]
    panel = small.panel(series=len(lengths))
    cells = np.concatenate([np.arange(120 * i, 120 * i + n) for i, n in enumerate(lengths)])
    values = panel.values[cells]
    values[np.cumsum(lengths)[[2, 4]] - 1] = np.nan
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return replace(panel, values=values, indptr=indptr, lengths=np.array(lengths))


SHARES = {"two": [4, 6], "three, one without a window": [5, 1, 4], "one series each": [1] * 10}


@pytest.mark.parametrize("counts", SHARES.values(), ids=SHARES)
@pytest.mark.parametrize("kind", ["one-plus-mean", "deviation", None], ids=["mean", "deviation", "unweighted"])
def test_ranks_together_draw_the_windows_of_one_process(counts: list[int], kind: str | None) -> None:
    def draw(panel: Panel, _ranks: Ranks | None = None) -> tuple[Panel, Pairs]:
        training, _ = split(panel.to_last_value(), 24, 6)
        sampler = Sampler(training, None if kind is None else Scaling(training.panel, 24, kind))
        return panel, sampler.draw(3000, np.random.default_rng(3))

    _, alone = draw(uneven())
    places = []
    for panel, pairs in shared(uneven(), counts, draw):
        own = pairs.held_by(panel)
        places.append(own)
        np.testing.assert_array_equal(pairs.series_B[own], alone.series_B[own])
        np.testing.assert_array_equal(pairs.start_B[own], alone.start_B[own])
    assert sorted(np.concatenate(places).tolist()) == list(range(3000))


def test_batches_of_ranks_together_are_the_batch_of_one_process() -> None:
    config = small.config({"hidden_history": 0.3, "unknown_series": 0.4}, batch=40)

    def rows(panel: Panel, ranks: Ranks) -> list[tuple[float, ...]]:
        data = TrainingSet.of(panel, config)
        draws = Draws(data, config.train, seed=1, ranks=ranks)
        found = []
        for step in range(3):
            batch = draws(step, torch.Generator().manual_seed(step))
            sums = (batch.values_BL.sum(1), batch.lagged_BLK.sum((1, 2)))
            parts = (batch.series_B, batch.padding_B, batch.scale_B, *sums)
            found += [tuple(round(float(x), 3) for x in row) for row in zip(*parts, strict=True)]
        return found

    alone = rows(replace(uneven(), numbers=np.arange(10)), Ranks())
    together = [row for part in shared(uneven(), [4, 6], rows) for row in part]
    assert sorted(together) == sorted(alone)
    assert sum(row[0] == -1 for row in alone) > 20


def test_a_rank_without_a_window_in_the_batch_takes_part_with_an_empty_one() -> None:
    config = small.config(batch=1)

    def count(panel: Panel, ranks: Ranks) -> int:
        draws = Draws(TrainingSet.of(panel, config), config.train, seed=0, ranks=ranks)
        return int(draws(0).observed_BL.any())

    assert sorted(shared(uneven(), [4, 6], count)) == [0, 1]


def test_a_rank_holds_the_values_of_its_own_series_and_knows_the_lengths_of_all() -> None:
    def sizes(panel: Panel, _ranks: Ranks) -> tuple[int, int, int]:
        return panel.values.size, len(panel), int(panel.to_last_value().lengths.sum())

    whole = uneven()
    seen = int(whole.to_last_value().lengths.sum())
    assert shared(whole, [4, 6], sizes) == [(235, 10, seen), (382, 10, seen)]
    assert repr(shared(whole, [4, 6], lambda panel, _: repr(panel))[1]) == repr(repr(whole))


def count_series(rng: np.random.Generator, mean: float) -> np.ndarray:
    return rng.poisson(mean, 400).astype(np.float32)


FAMILIES: dict[str, Callable[[np.random.Generator], list[Any]]] = {
    "counts": lambda rng: [count_series(rng, mean) for mean in (2, 3, 40, 30, 1)],
    "large counts": lambda rng: [count_series(rng, mean) for mean in (20, 300, 40, 600, 100)],
    "zeros": lambda rng: [np.maximum(rng.normal(size=400), 0) for _ in range(5)],
    "negative in one part": lambda rng: [rng.normal(size=400) + (9 if i else 0) for i in range(5)],
    "all zero": lambda _: [np.zeros(400) for _ in range(5)],
    "few values": lambda rng: [rng.normal(size=n) for n in (30, 40, 50, 20, 60)],
}


@pytest.mark.parametrize("values", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize("freq", ["h", "D"])
def test_default_settings_follow_from_the_values_of_all_ranks(values: Callable[..., list[Any]], freq: str) -> None:
    series = values(np.random.default_rng(2))
    times = np.datetime64("2020-01-01", "us")
    step = HOUR if freq == "h" else 24 * HOUR
    frame = pl.concat(
        pl.DataFrame({"unique_id": f"s{i}", "ds": times + np.arange(len(y)) * step, "y": y.astype(np.float32)})
        for i, y in enumerate(series)
    )
    panel = ls.to_panel(frame)

    def config(panel: Panel, _ranks: Ranks | None = None) -> Any:
        return for_amount(recommend(panel, 6), panel)

    alone = config(panel)
    for counts in ([2, 3], [1, 1, 3]):
        assert shared(panel, counts, config) == [alone] * len(counts)


def test_lags_of_a_year_follow_from_the_series_of_all_ranks() -> None:
    days = np.arange(1200)
    yearly = [20 + 9 * np.sin(days * 2 * np.pi / 364) + np.random.default_rng(i).normal(size=1200) for i in range(5)]
    noise = [np.random.default_rng(i).normal(size=1200).cumsum() for i in range(4)]
    start = np.datetime64("2020-01-01", "us")
    frame = pl.concat(
        pl.DataFrame({"unique_id": f"s{i}", "ds": start + days * 24 * HOUR, "y": y})
        for i, y in enumerate([*yearly, *noise])
    )
    panel = ls.to_panel(frame)
    alone = recommend(panel, 6)
    assert 364 in alone.model.lags
    assert shared(panel, [6, 3], lambda part, _: recommend(part, 6)) == [alone, alone]


def test_all_ranks_recognise_one_country_and_the_weekday_that_its_holidays_are_like() -> None:
    days, start = np.arange(730), np.datetime64("2022-01-01", "us")
    off = [(one - date(2022, 1, 1)).days for one in calendars.country_holidays("DE", years=(2022, 2023))]
    rest = ((days + 5) % 7 == 6) | np.isin(days, off)
    noise = np.random.default_rng(4).normal(size=(5, 730))
    # Ranks would disagree: the series of the second never rest.
    levels = [np.where(rest, 5.0, 30.0)] * 3 + [np.full(730, 20.0)] * 2
    frame = pl.concat(
        pl.DataFrame({"unique_id": f"s{i}", "ds": start + days * 24 * HOUR, "y": levels[i] + noise[i]})
        for i in range(5)
    )
    panel = ls.to_panel(frame)
    alone = recognised_holidays(panel), holidays_of(panel, ["DE"])
    assert alone[0] == ("DE",)
    for found in shared(panel, [3, 2], lambda part, _: (recognised_holidays(part), holidays_of(part, ["DE"]))):
        assert found == alone


def test_the_identity_of_data_does_not_depend_on_who_holds_them() -> None:
    def mark(panel: Panel, _ranks: Ranks) -> str:
        return fingerprint(panel)

    first, *others = [found for counts in SHARES.values() for found in shared(uneven(), counts, mark)]
    assert set(others) == {first}
    changed = replace(uneven(), values=uneven().values + np.float32(1))
    assert shared(changed, [4, 6], mark)[0] != first


@pytest.mark.parametrize(
    ("rows", "count", "shares"),
    [
        ([5, 5, 5, 5], 2, [2, 2]),
        ([9, 1, 1, 1], 2, [1, 3]),
        ([1, 1, 1, 99], 3, [2, 1, 1]),
        ([7, 7, 7], 3, [1, 1, 1]),
        ([100, 1, 1], 3, [1, 1, 1]),
    ],
)
def test_every_rank_has_a_part_and_about_as_many_rows(rows: list[int], count: int, shares: list[int]) -> None:
    found = [list(range(*part.indices(len(rows)))) for part in _shares(rows, count)]
    assert [len(part) for part in found] == shares
    assert [number for part in found for number in part] == list(range(len(rows)))


def rich() -> pl.DataFrame:
    """Hourly series with gaps, some short, a covariate, one of words for the past, and a category."""
    rng = np.random.default_rng(0)
    frames = []
    for i in range(23):
        length = [400, 20, 260][i % 3] + i
        hours = np.arange(length)
        level = (1 + i) * (3 + np.sin(hours * np.pi / 12) + 0.2 * rng.normal(size=length))
        table = pl.DataFrame(
            {
                "unique_id": f"m{i}",
                "ds": np.datetime64("2024-01-01", "us") + (hours + 7 * i) * HOUR,
                "y": level.round(3),
                "price": rng.normal(size=length),
                "light": rng.choice(["red", "green", "blue"][: 1 + i % 3], length),
                "kind": "abc"[i % 3],
            }
        )
        frames.append(table.filter(pl.Series(rng.random(length) > 0.05) | pl.Series(hours == 0)))
    return pl.concat(frames)


def plain() -> pl.DataFrame:
    return rich().select("unique_id", "ds", "y")


def odd_steps(folder: Path) -> Path:
    """Write parts of which one shows no step and another seems to have steps of two hours."""
    ls.shard(plain(), folder, parts=3)
    hours = {"seldom": [0, 2, 6, 8, 12], "once": [5]}
    for name, at in hours.items():
        times = np.datetime64("2024-01-01", "us") + np.array(at) * HOUR
        table = pl.DataFrame({"unique_id": name, "ds": times, "y": np.arange(len(at)) + 1.0})
        table.write_parquet(folder / f"{name}.parquet")
    return folder


def changed(folder: Path, change: Callable[[pl.DataFrame], pl.DataFrame], part: int = -1) -> Path:
    """Write parts of plain data, one of them changed."""
    ls.shard(plain(), folder, parts=4)
    place = sorted(folder.glob("*.parquet"))[part]
    change(pl.read_parquet(place)).write_parquet(place)
    return folder


def with_half_hours(part: pl.DataFrame) -> pl.DataFrame:
    half_hours = pl.duration(minutes=30) * pl.int_range(pl.len()).over("unique_id")
    return part.with_columns(ds=pl.datetime(2024, 1, 1) + half_hours)


BAD: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], str]] = {
    "another step": (with_half_hours, "DataError: All series must share one step. Got mostly steps of h, but not"),
    "another column": (
        lambda part: part.rename({"y": "z"}),
        "DataError: The parts of a folder must agree on the column 'y'. Got it in part-00000-of-00004.parquet, but not "
        "in part-00003-of-00004.parquet.",
    ),
    "another type": (
        lambda part: part.with_columns(pl.lit("many").alias("y")),
        "DataError: The parts of a folder must agree on the column 'y'. Got Float64 in part-00002-of-00004.parquet, "
        "String in part-00003-of-00004.parquet.",
    ),
    "no rows": (lambda part: part.head(0), "DataError: Every part must have rows. Got none in"),
    "a series in two parts": (
        lambda part: pl.concat([part, plain().filter(pl.col("unique_id") == "m0")]),
        "SplitSeriesError: Each series must lie whole in one part. Got series 'm0' in part-0000",
    ),
    "a series without a value": (
        lambda part: part.with_columns(y=pl.when(pl.col("unique_id") != part["unique_id"][0]).then("y")),
        "DataError: Every series must have at least one value. Got none in series",
    ),
    "a value below the lowest": (
        lambda part: part.with_columns(y=-pl.lit(1.0)),
        "DataError: No target may lie below model.lowest. Got -1, and model.lowest 0.",
    ),
}


@dataclass(frozen=True)
class Trained:
    """Reports of each rank by name, and the models that were saved by number of ranks."""

    alone: dict[str, list[dict[str, Any]]]
    together: dict[str, list[dict[str, Any]]]
    models: dict[int, Path]


def environment(rank: int, count: int, port: int) -> dict[str, str]:
    """The variables that torchrun sets, Ray Train too, and a script of Slurm."""
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    return {**os.environ, "RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{count}", **master}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    place = tmp_path_factory.mktemp("share")
    ls.shard(rich(), place / "rich", parts=5)
    ls.shard(plain(), place / "few", parts=1)
    columns = {"covariates": ["price"], "past_covariates": ["light"], "static": ["kind"]}
    # The defaults, which hide histories and let series count as unknown, with a validation at every step.
    settings = {**QUICK, "steps": 22, "embed_series": True, "weighted": True, "validate_every": 1}
    jobs = [{"name": "rich", "folder": f"{place}/rich", "settings": settings, "fit": columns}]
    odd = {"name": "odd", "folder": f"{odd_steps(place / 'odd')}", "settings": {**QUICK, "steps": 3}}
    few = [{"name": "few parts", "folder": f"{place}/few", "settings": {**QUICK, "steps": 2}}]
    bad = []
    for name, (change, _) in BAD.items():
        folder = changed(place / name.replace(" ", "-"), change)
        lowest = {"lowest": 0.0} if name == "a value below the lowest" else {}
        bad.append({"name": name, "folder": f"{folder}", "settings": {**QUICK, **lowest, "steps": 2}})

    def started(words: list[str], many: int, save: Path) -> dict[str, list[dict[str, Any]]]:
        # A refused training comes first: the ranks that join again are not disturbed by it.
        work = [*(few + bad if many > 1 else []), odd, {**jobs[0], "save": f"{save}"}]
        command = [sys.executable, *words, str(HERE / "train_parts.py"), json.dumps(work)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        assert done.returncode == 0, done.stderr
        found: dict[str, list[dict[str, Any]]] = {}
        for line in sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda one: one["rank"]):
            found.setdefault(line["name"], []).append(line)
        return found

    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    models = {1: place / "model-1", 2: place / "model-2"}
    return Trained(started([], 1, models[1]), started(run, 2, models[2]), models)


def test_two_ranks_have_the_losses_of_one_process_that_holds_everything(trained: Trained) -> None:
    alone = trained.alone["rich"][0]["rows"]
    assert len(alone) == 22
    for rank in trained.together["rich"]:
        for loss in ("nll", "validation_nll"):
            assert [row[loss] for row in rank["rows"]] == pytest.approx([row[loss] for row in alone], rel=1e-5)


def test_two_ranks_have_the_settings_series_and_features_of_one_process(trained: Trained) -> None:
    alone = trained.alone["rich"][0]
    for rank in trained.together["rich"]:
        assert rank["config"] == alone["config"]
        assert rank["known"] == alone["known"]
        assert rank["calibration"] == alone["calibration"]
        for name, one in alone["features"].items():
            numbers = name in ("mean", "std")
            assert rank["features"][name] == (pytest.approx(one, rel=1e-9) if numbers else one)
    model = alone["config"]["model"]
    assert (model["unknown_series"], model["hidden_history"]) == (0.1, 0.1)


def test_the_model_that_the_first_rank_saves_forecasts_every_series_as_that_of_one_process(trained: Trained) -> None:
    alone, together = (ls.load(place) for place in trained.models.values())
    rows = rich().group_by("unique_id", maintain_order=True).agg(pl.col("ds").max())
    hours = [pl.col("ds").dt.offset_by(f"{hour}h") for hour in range(1, 7)]
    future = pl.concat(rows.with_columns(at, price=pl.lit(0.5)) for at in hours)
    for data in (None, rich()):
        one, other = (model.predict(data, future=future) for model in (alone, together))
        assert one["unique_id"].n_unique() == 23
        assert one.select("unique_id", "ds").equals(other.select("unique_id", "ds"))
        for name in one.columns[2:]:
            assert other[name].to_list() == pytest.approx(one[name].to_list(), rel=1e-3, abs=1e-3)


def test_a_part_whose_times_do_not_show_the_step_has_that_of_the_others(trained: Trained) -> None:
    alone = trained.alone["odd"][0]
    for rank in trained.together["odd"]:
        assert rank["known"] == alone["known"]
        assert [row["nll"] for row in rank["rows"]] == pytest.approx([row["nll"] for row in alone["rows"]], rel=1e-5)
    assert trained.together["odd"][0]["panel"].startswith("Panel(25 series, ")


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_in_one_part_is_the_error_of_every_rank(trained: Trained, name: str) -> None:
    first, second = (rank["refused"] for rank in trained.together[name])
    assert first.startswith(BAD[name][1])
    assert second == first


def test_more_processes_than_parts_are_refused_with_the_way_out(trained: Trained) -> None:
    first, second = (rank["refused"] for rank in trained.together["few parts"])
    assert first == second
    assert first.startswith("DataError: Every process must have a part of the data. Got 2 processes, and 1 parts in ")
    assert first.endswith("few-more --parts 8`.")


def test_the_command_trains_in_processes_that_any_scheduler_starts(tmp_path: Path) -> None:
    ls.shard(plain(), tmp_path / "parts", parts=3)
    words = ["fit", "parts", "-o", "model", "--horizon", "6", "--context", "24", "--steps", "2"]
    port = free_port()
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "logsparse", *words],
            cwd=tmp_path,
            env=environment(rank, 2, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    first, second = (process.communicate(timeout=600) for process in started)
    assert [process.returncode for process in started] == [0, 0], (first, second)
    assert "23 series" in first[0]
    assert "wrote model" in first[1]
    assert second[0] == ""
    assert "wrote" not in second[1]
    assert len(ls.load(tmp_path / "model").predict()) == 23 * 6
