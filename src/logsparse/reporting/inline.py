"""A figure -> SVG text that stands within a page: no ids or styles of its own, the page's colours, a text for ears."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from logsparse.pictures import FORECAST, INK, TRUTH, settle
from logsparse.reporting.charts import GREY, MUTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Drawn colour -> the page's, which knows light and dark.
COLOURS = {
    INK: "--ink",
    "#000000": "--ink",
    "#262626": "--ink",
    "#b0b0b0": "--naive",
    FORECAST: "--forecast",
    TRUTH: "--truth",
    GREY: "--naive",
    MUTED: "--muted",
}
# A picture of more characters than this is sent as points instead of lines.
LARGEST = 400_000


def inline(figure: Figure, *, key: str, says: str, foreign: bool = False) -> Markup:
    """The figure as it is (`foreign`, on white paper) or in the page's colours; `key` tells its ids from others'."""
    text = _svg(figure, key, transparent=not foreign)
    if len(text) > LARGEST:
        return _points(figure, says)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{key}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", text)
    text = re.sub(r'\bd="[^"]*"', _rounded, text)
    if not foreign:
        for drawn, name in COLOURS.items():
            text = text.replace(drawn, f"var({name})")
    view = re.search(r'viewBox="[^"]*"', text)
    assert view, "matplotlib always writes one"
    rest = text[text.index(">") + 1 :]
    kind = "paper" if foreign else "drawn"
    return Markup(f'<svg class="{kind}" {view[0]} role="img" aria-label="{escape(says)}">{rest.strip()}')  # noqa: S704


def _svg(figure: Figure, key: str, *, transparent: bool) -> str:
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": key, "svg.fonttype": "none"}):
        settle(figure)
        figure.savefig(file, format="svg", transparent=transparent, metadata={"Date": None})
    return file.getvalue()


def _rounded(path: re.Match[str]) -> str:
    """Hundredths of a point are enough."""
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), path[0])


def _points(figure: Figure, says: str) -> Markup:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    data = base64.b64encode(file.getvalue()).decode()
    return Markup('<img class="paper" alt="{}" src="data:image/png;base64,{}">').format(says, data)
