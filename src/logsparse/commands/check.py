"""A file -> what was recognised in it, as a table."""

from __future__ import annotations

from logsparse.commands.options import (
    Data,
    DayFirst,
    FreqText,
    IdCol,
    TargetCol,
    TimeCol,
    TimeFormat,
    Tz,
    columns,
    given,
    print_rows,
    span,
)


def check(
    data: Data,
    id_col: IdCol = None,
    time_col: TimeCol = None,
    target_col: TargetCol = None,
    freq: FreqText = None,
    tz: Tz = None,
    time_format: TimeFormat = None,
    dayfirst: DayFirst = None,
) -> None:
    """Print what was recognised in DATA. This is its layout, series, step, span and missing values."""
    import numpy as np

    from logsparse.data.frame import to_panel
    from logsparse.data.times import stamps

    names = given(id_col=id_col, time_col=time_col, target_col=target_col, freq=freq)
    panel = to_panel(data, **columns(**names, tz=tz, time_format=time_format, dayfirst=dayfirst))
    missing_S = [int(np.isnan(panel[i]).sum()) for i in range(len(panel))]
    total, missing = int(panel.lengths.sum()), sum(missing_S)
    first, last = (str(stamps(panel, np.array([time]))[0]) for time in (panel.starts.min(), panel.ends().max()))
    worst = panel.ids[int(np.argmax(missing_S))]
    long = panel.origin.layout == "long"
    rows = [
        ("layout", "long: one row per series and time" if long else "wide: one column per series"),
        ("series", f"{len(panel):,} ({', '.join(map(str, panel.ids[:3]))}{', ...' if len(panel) > 3 else ''})"),
        ("step", f"{panel.freq} (season {panel.freq.season})"),
        ("span", f"{first} to {last}"),
        ("time zone", panel.origin.zone or "none"),
        ("steps per series", span(panel.lengths.tolist())),
        ("values", f"{total:,}"),
        ("missing", f"{missing:,} ({missing / total:.2%})" + (f", most in {worst}" if missing else "")),
        ("lowest, highest", f"{np.nanmin(panel.values):g}, {np.nanmax(panel.values):g}"),
    ]
    print_rows(rows)
