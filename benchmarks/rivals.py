"""Forecasters of other libraries, our DeepAR and seasonal naive, with the same time limit -> rows of rivals.csv.

    pip install neuralforecast gluonts lightning psutil "pandas<3" .     # for the comparison only
    LOGSPARSE_DATA=folder python benchmarks/rivals.py traffic --model nhits --minutes 5 [--test]

Each has the settings that its library suggests for such data: a week of history, scaled windows, nine quantiles (NHITS,
PatchTST) or a Student-t (DeepAR), and the covariates that are known in the future, which PatchTST cannot use. Those of
NeuralForecast get as many steps as fit into the minutes, estimated by two uncounted trials, and stop when the loss on
the last week, the validation set, no longer improves, or at the time limit.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import UTC, datetime
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import logsparse as ls
from logsparse.data.panel import Panel
from logsparse.forecast import Forecast, Forecaster
from logsparse.paper.ledger import machine
from machine import RESULTS, append_row
from recipe import LEVELS, TASKS, panel_of, scores

TABLE = RESULTS / "rivals.csv"
COLUMNS = ("set", "span", "model", "seed", "R0.5", "R0.9", "wql", "mase", "coverage_80", "minutes", "steps", "threads",
           "version", "machine", "time")  # fmt: skip
QUIET: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
_TRIAL_STEPS = 40

# S series, Q quantile levels, H horizon


class Rival(Forecaster):
    """A model of another library, trained for some minutes."""

    steps: int
    trained_minutes: float

    def __init__(self, horizon: int, name: str, *, minutes: float, seed: int) -> None:
        super().__init__(horizon)
        self.name, self.minutes, self.seed = name, minutes, seed


class NeuralForecastModel(Rival):
    """NHITS or PatchTST with the quantile loss of all levels."""

    def _fit(self, panel: Panel) -> None:
        few, more = (self._seconds(panel, steps) for steps in (_TRIAL_STEPS // 2, _TRIAL_STEPS))
        # The difference of the two trials is the time of the steps alone, without the fixed cost of a training.
        self.steps = max(100, int((60 * self.minutes - few) / (more - few) * _TRIAL_STEPS / 2))
        began = time.monotonic()
        self.fitted = self._train(panel, self.steps)
        self.trained_minutes = (time.monotonic() - began) / 60
        self.steps = int(self.fitted.models[0].train_trajectories[-1][0]) + 1

    def _seconds(self, panel: Panel, steps: int) -> float:
        began = time.monotonic()
        self._train(panel, steps)
        return time.monotonic() - began

    def _train(self, panel: Panel, steps: int) -> Any:
        from neuralforecast import NeuralForecast
        from neuralforecast.losses.pytorch import MQLoss
        from neuralforecast.models import NHITS, PatchTST

        week = _week(panel)
        known = {"futr_exog_list": list(panel.ahead)} if self.name == "nhits" and panel.ahead else {}
        made = {"nhits": NHITS, "patchtst": PatchTST}[self.name](
            h=self.horizon,
            input_size=week,
            loss=MQLoss(quantiles=list(LEVELS)),
            scaler_type="standard",
            max_steps=steps,
            early_stop_patience_steps=10 if steps > _TRIAL_STEPS else -1,
            val_check_steps=100 if steps > _TRIAL_STEPS else steps,
            # A quarter of its default: on two cores, more steps help more than larger ones.
            windows_batch_size=256,
            random_seed=self.seed,
            max_time={"seconds": round(60 * self.minutes)},
            alias="m",
            **known,
            **QUIET,
        )
        network = NeuralForecast(models=[made], freq=str(panel.freq))
        network.fit(_frame(panel), val_size=week)
        return network

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        future = {"futr_df": _frame(panel, self.horizon)} if panel.ahead else {}
        found = self.fitted.predict(df=_frame(panel), **future)
        names = sorted((c for c in found.columns if c.startswith("m")), key=_level)
        order = found.groupby("unique_id", sort=False)
        by_name = {name: part[names].to_numpy(np.float32).T for name, part in order}
        quantiles_SQH = np.sort(np.stack([by_name[str(one)] for one in panel.ids]), axis=1)
        return Forecast(panel, quantiles_SQH[:, len(levels) // 2], levels, quantiles_SQH)


def _level(column: str) -> float:
    """Return the level of a column such as `m-median`, `m-lo-80.0`, `m-hi-80.0`."""
    if "-lo-" in column or "_lo" in column:
        return 0.5 - float(column.rsplit("-", 1)[1]) / 200
    if "-hi-" in column or "_hi" in column:
        return 0.5 + float(column.rsplit("-", 1)[1]) / 200
    return 0.5


class GluonDeepAR(Rival):
    """DeepAR with the lags and the Student-t that GluonTS chooses."""

    def _fit(self, panel: Panel) -> None:
        from gluonts.torch import DeepAREstimator
        from lightning.pytorch import seed_everything

        seed_everything(self.seed)
        # GluonTS loads its own checkpoint with objects that torch refuses by default.
        os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
        with TemporaryDirectory() as folder:
            estimator = DeepAREstimator(
                freq=str(panel.freq),
                prediction_length=self.horizon,
                context_length=_week(panel),
                num_feat_dynamic_real=len(panel.ahead),
                num_batches_per_epoch=100,
                trainer_kwargs={"max_epochs": 10_000, "max_time": {"seconds": round(60 * self.minutes)},
                                "default_root_dir": folder, **QUIET},
            )  # fmt: skip
            began = time.monotonic()
            trained = estimator.train_model(_list(panel))
            self.trained_minutes = (time.monotonic() - began) / 60
            self.predictor, self.steps = trained.predictor, int(trained.trainer.global_step)

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        drawn = [one.samples for one in self.predictor.predict(_list(panel, self.horizon), num_samples=200)]
        quantiles_SQH = np.stack([np.quantile(paths, levels, axis=0) for paths in drawn]).astype(np.float32)
        return Forecast(panel, np.stack([paths.mean(0) for paths in drawn]), levels, quantiles_SQH)


class OwnDeepAR(Rival):
    """DeepAR of `logsparse`, with settings chosen from the data."""

    def _fit(self, panel: Panel) -> None:
        self.fitted = ls.DeepAR(self.horizon, minutes=self.minutes, seed=self.seed, verbose=False).fit(panel)
        history = self.fitted.history_
        self.trained_minutes, self.steps = history.seconds / 60, int(history.rows[-1]["step"])

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        return self.fitted.forecast(panel, quantiles=levels)


class OwnNaive(Rival):
    """Seasonal naive, the reference of all comparisons."""

    steps = 0

    def _fit(self, panel: Panel) -> None:
        began = time.monotonic()
        self.fitted = ls.SeasonalNaive(self.horizon).fit(panel)
        self.trained_minutes = (time.monotonic() - began) / 60

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        return self.fitted.forecast(panel, quantiles=levels)


def _week(panel: Panel) -> int:
    return 7 * panel.freq.season


def _frame(panel: Panel, ahead: int = 0) -> Any:
    """Return the history in long form, or the covariates of the next `ahead` steps."""
    import pandas as pd

    parts = []
    for i, one in enumerate(panel.ids):
        end = int(panel.lengths[i])
        steps = np.arange(end, end + ahead) if ahead else np.arange(end)
        y = {} if ahead else {"y": _filled(panel[i])}
        part = {"unique_id": str(one), "ds": _times(panel, i, steps), **y, **_known(panel, i, steps)}
        parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)


def _list(panel: Panel, ahead: int = 0) -> Any:
    """Return the history, with the covariates of the next `ahead` steps."""
    import pandas as pd
    from gluonts.dataset.common import ListDataset

    freq, rows = str(panel.freq), []
    for i, one in enumerate(panel.ids):
        steps = np.arange(int(panel.lengths[i]) + ahead)
        known = list(_known(panel, i, steps).values())
        start = pd.Period(_times(panel, i, steps[:1])[0], freq=freq)
        row = {"start": start, "target": panel[i], "item_id": str(one)}
        rows.append({**row, **({"feat_dynamic_real": np.stack(known)} if known else {})})
    return ListDataset(rows, freq=freq)


def _times(panel: Panel, i: int, steps: Any) -> Any:
    return panel.freq.add(np.full_like(steps, panel.starts[i]), steps).astype("datetime64[us]").astype("datetime64[ns]")


def _known(panel: Panel, i: int, steps: Any) -> dict[str, Any]:
    return {name: _filled(panel.covariates[name][panel.indptr[i] + steps]) for name in panel.ahead}


def _filled(values: Any) -> Any:
    """Fill gaps with the last observed value: NeuralForecast accepts no missing values."""
    seen = np.where(np.isnan(values), 0, np.arange(len(values)))
    return np.nan_to_num(values[np.maximum.accumulate(seen)])


MODELS: dict[str, type[Rival]] = {
    "nhits": NeuralForecastModel,
    "patchtst": NeuralForecastModel,
    "gluonts-deepar": GluonDeepAR,
    "deepar": OwnDeepAR,
    "seasonal-naive": OwnNaive,
}
LIBRARIES = {"gluonts-deepar": "gluonts", "deepar": "logsparse", "seasonal-naive": "logsparse"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--test", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    task, span = TASKS[args.task], "test" if args.test else "validation"
    panel = panel_of(task, span)
    model = MODELS[args.model](task.horizon, args.model, minutes=args.minutes, seed=args.seed)
    model.fit(panel.cut(panel.lengths - task.horizon * task.windows))
    found = scores(ls.backtest(model, panel, windows=task.windows, quantiles=LEVELS), panel, task)
    library = LIBRARIES.get(args.model, "neuralforecast")
    row: dict[str, Any] = {
        "set": args.task,
        "span": span,
        "model": args.model,
        "seed": args.seed,
        **{name: found[name] for name in ("R0.5", "R0.9", "wql", "mase", "coverage_80")},
        "minutes": model.trained_minutes,
        "steps": model.steps,
        "threads": args.threads,
        "version": f"{library} {version(library)}",
        "machine": machine(),
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
    }
    shown = append_row(TABLE, COLUMNS, row)
    print(shown)


if __name__ == "__main__":
    main()
