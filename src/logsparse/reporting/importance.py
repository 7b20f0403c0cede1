"""Table of an importance -> the section of a report that shows what the forecast rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from logsparse.data.frame import Data
from logsparse.data.grid import from_native
from logsparse.errors import DataError
from logsparse.evaluation.importance import HIGH, INCREASE, INPUT, KIND, LOW
from logsparse.pictures import draw_importance
from logsparse.reporting.charts import NARROW, WIDE, inline

# Most inputs shown.
_ROWS_SHOWN = 12
_NEEDED = (KIND, INPUT, INCREASE, LOW, HIGH)


def rests_on(importance: Data) -> dict[str, Any]:
    """Return picture and sentence, from the frame or file that `Importance.frame` returned."""
    table, _ = from_native(importance)
    missing = [name for name in _NEEDED if name not in table.columns]
    wrong = [name for name in (INCREASE, LOW, HIGH) if not missing and not table[name].dtype.is_numeric()]
    if missing or wrong or not table.height:
        raise DataError(
            f"An importance must have rows with the columns {', '.join(_NEEDED)}.",
            got=f"no {missing[0]}" if missing else f"no numbers in {wrong[0]}" if wrong else "no rows",
            hint="pass importance(model, frame).frame(), or the file that `logsparse explain -o FILE` wrote.",
        )
    rows = table.select(pl.col(KIND, INPUT).cast(pl.String), INCREASE, LOW, HIGH).head(_ROWS_SHOWN).rows(named=True)
    sentence = _sentence(rows)
    height = 0.8 + 0.3 * len(rows)
    return {
        "sentence": sentence,
        "wide": inline(draw_importance(rows, (WIDE[0], height)), key="rests", alt=sentence),
        "narrow": inline(draw_importance(rows, (NARROW[0], height)), key="restsn", alt=sentence),
    }


def _sentence(rows: Sequence[dict[str, Any]]) -> str:
    found = [row for row in rows if row[LOW] is not None and row[LOW] > 0]
    if not found:
        return "Without any one of its inputs the forecasts are as good, as far as these windows show."
    named = [f"{100 * row[INCREASE]:.0f} % without {row[INPUT]}" for row in found[:3]]
    listed = " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
    return f"The quantile loss on held-back windows is higher by {listed}."
