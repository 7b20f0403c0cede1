"""Nothing -> every experiment of the paper that can be run, by its name."""

from __future__ import annotations

from logsparse.tasks.experiment import Experiment
from logsparse.tasks.synthetic import SYNTHETIC
from logsparse.tasks.tables import TABLES_OF_THE_PAPER

EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in (SYNTHETIC, *TABLES_OF_THE_PAPER)}
