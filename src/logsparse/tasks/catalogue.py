"""Nothing -> every experiment of the paper that can be run, by its name."""

from __future__ import annotations

from logsparse.tasks.claims import CLAIMS_TABLE
from logsparse.tasks.curves import CURVES
from logsparse.tasks.experiment import Experiment
from logsparse.tasks.kinds import ATTENTION_KINDS
from logsparse.tasks.learned import LEARNED, MATRIX
from logsparse.tasks.matching import MATCHING
from logsparse.tasks.statistics import STATISTICS
from logsparse.tasks.synthetic import SYNTHETIC
from logsparse.tasks.tables import TABLES_OF_THE_PAPER

FIGURES_OF_THE_PAPER = [MATCHING, LEARNED, ATTENTION_KINDS, CURVES, MATRIX]
EXPERIMENTS: dict[str, Experiment] = {
    one.name: one for one in (SYNTHETIC, *TABLES_OF_THE_PAPER, STATISTICS, *FIGURES_OF_THE_PAPER, CLAIMS_TABLE)
}
