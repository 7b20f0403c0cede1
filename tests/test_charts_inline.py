"""A figure within a page: the page's colours, unique ids, a text for screen readers."""

from __future__ import annotations

import re

import numpy as np
from matplotlib.figure import Figure

from logsparse.pictures import FORECAST, new_figure
from logsparse.reporting import charts as module
from logsparse.reporting.charts import inline


def drawn() -> Figure:
    figure, axes = new_figure()
    axes.plot([0, 1], [0, 1.23456789], color=FORECAST, label="0.123456")
    axes.legend(frameon=False)
    return figure


def test_colours_are_those_of_the_page_so_that_a_dark_theme_changes_them() -> None:
    text = inline(drawn(), key="a", alt="")
    assert "var(--forecast)" in text
    assert FORECAST not in text
    assert "#000000" not in text
    assert "#ffffff" not in text


def test_a_foreign_figure_keeps_its_colours_and_its_white_background() -> None:
    text = inline(drawn(), key="a", alt="", foreign=True)
    assert FORECAST in text
    assert "#ffffff" in text
    assert "var(" not in text


def test_ids_of_two_pictures_differ_and_every_reference_resolves() -> None:
    first, second = (str(inline(drawn(), key=key, alt="")) for key in ("a", "b"))
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, own in zip((first, second), ids, strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text)) <= own


def test_the_text_for_screen_readers_is_escaped() -> None:
    assert 'aria-label="&lt;b&gt; &#34;x&#34;"' in inline(drawn(), key="a", alt='<b> "x"')


def test_coordinates_are_rounded_and_text_is_not() -> None:
    text = inline(drawn(), key="a", alt="")
    assert not re.search(r'\bd="[^"]*\.\d{3}', text)
    assert "0.123456" in text


def test_the_same_figure_gives_the_same_text_without_styles_or_addresses() -> None:
    text = inline(drawn(), key="a", alt="")
    assert text == inline(drawn(), key="a", alt="")
    assert not re.search(r"<style|<metadata|<\?xml|<!DOCTYPE|://", text)


def test_a_figure_of_very_many_lines_is_embedded_as_png() -> None:
    figure, axes = new_figure()
    axes.plot(np.random.default_rng(0).normal(size=(2000, 20)))
    text = inline(figure, key="a", alt="many <lines>", foreign=True)
    assert text.startswith('<img class="paper" alt="many &lt;lines&gt;" src="data:image/png;base64,')
    assert len(text) < module.LARGEST
