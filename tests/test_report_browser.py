"""The report in a real browser: no complaint, every picture drawn, readable on a telephone, in light and in dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import logsparse as ls
from report_pages import LastWeeks, hours, results

PHONE, TABLET, DESK = 390, 768, 1280
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

# Beside the page, not in it: the page allows no script. Each frame is a screen of its own width.
LOOK = """
const screens = [];
const luminance = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).map(Number)
    .map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
window.onload = () => {
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, view = frame.contentWindow;
    page.querySelectorAll("details").forEach((part) => { part.open = true; });
    const seen = (node) => node.getBoundingClientRect().width > 0 && node.getBoundingClientRect().height > 0;
    const some = (node) => node.getBoundingClientRect().width > 0 || node.getBoundingClientRect().height > 0;
    const pictures = [...page.querySelectorAll("figure")].map((figure) => {
      const drawn = [...figure.querySelectorAll("svg, img")].filter(seen);
      const lines = drawn.flatMap((picture) => [...picture.querySelectorAll("path, use, image")].filter(some));
      return { drawn: drawn.length, lines: lines.length };
    });
    const outside = [], small = [], faint = [];
    for (const picture of page.querySelectorAll("svg")) {
      if (!seen(picture)) continue;
      const box = picture.getBoundingClientRect(), scale = box.width / picture.viewBox.baseVal.width;
      for (const text of picture.querySelectorAll("text")) {
        const place = text.getBoundingClientRect();
        if (place.left < box.left - 2 || place.right > box.right + 2 || place.top < box.top - 2
            || place.bottom > box.bottom + 2) outside.push(text.textContent);
        const size = parseFloat(view.getComputedStyle(text).fontSize) * scale;
        if (size < 9) small.push(text.textContent + " " + size);
      }
    }
    const card = view.getComputedStyle(page.querySelector("section")).backgroundColor;
    for (const node of page.querySelectorAll("section p, section h2, section th, section td, svg.drawn text")) {
      const style = view.getComputedStyle(node), ink = node.tagName === "text" ? style.fill : style.color;
      if (contrast(ink, card) < 4.5) faint.push(node.textContent.trim() + " " + ink + " on " + card);
    }
    screens.push({
      page: frame.getAttribute("src"), width: view.innerWidth,
      overflow: page.documentElement.scrollWidth - view.innerWidth,
      dark: view.matchMedia("(prefers-color-scheme: dark)").matches,
      pictures, outside, small, faint,
    });
  }
  const answer = document.createElement("pre");
  answer.textContent = JSON.stringify(screens);
  document.body.append(answer);
};
"""


@dataclass(frozen=True)
class Sight:
    """What a browser saw, a screen for each page and width, and what it said on its console."""

    screens: list[dict[str, Any]]
    console: list[str]


def look(pages: list[Path], *options: str) -> Sight:
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    folder = pages[0].parent
    frames = [f'<iframe src="{page.name}" width="{width}" height="900"></iframe>' for page in pages
              for width in (PHONE, TABLET, DESK)]  # fmt: skip
    harness = folder / "harness.html"
    harness.write_text(f"<!DOCTYPE html><body>{''.join(frames)}<script>{LOOK}</script>")
    quiet = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--no-first-run",
    )
    reach = ("--allow-file-access-from-files", f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr")
    command = [browser, *quiet, *reach, *options, "--dump-dom", harness.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    answer = re.search(r"<pre>(.*?)</pre>", done.stdout, flags=re.DOTALL)
    assert answer, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Sight(json.loads(html.unescape(answer[1])), console)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A page with everything, and one with next to nothing."""
    folder = tmp_path_factory.mktemp("pages")
    model = LastWeeks(24)
    frame = ls.backtest(model, hours(), windows=7)
    long = frame.with_columns(unique_id=pl.col("unique_id") + "_an_id_without_any_place_to_break_it" * 2)
    full = ls.report(long, folder / "full.html", model=model, title="A_title_that_cannot_be_broken_anywhere" * 3)
    bare = results(series=1, windows=1, horizon=1, mean=None, seasonal_naive=None, seasonal_error=None)
    return [full, ls.report(bare, folder / "bare.html")]


@pytest.fixture(scope="module")
def light(pages: list[Path]) -> Sight:
    return look(pages)


def test_the_browser_has_nothing_to_complain_of(light: Sight) -> None:
    assert light.console == []


def test_every_picture_is_drawn_once_at_every_width(light: Sight) -> None:
    assert [(screen["page"], screen["width"]) for screen in light.screens] == [
        (page, width) for page in ("full.html", "bare.html") for width in (PHONE, TABLET, DESK)
    ]
    for screen in light.screens:
        assert [picture["drawn"] for picture in screen["pictures"]] == [1] * (7 if screen["page"] == "full.html" else 3)
        assert min(picture["lines"] for picture in screen["pictures"]) > 5


def test_no_screen_has_to_be_moved_sideways(light: Sight) -> None:
    assert [screen["overflow"] for screen in light.screens] == [0] * 6


def test_the_words_in_pictures_are_large_enough_and_within_them(light: Sight) -> None:
    for screen in light.screens:
        assert (screen["outside"], screen["small"]) == ([], []), f"{screen['page']} at {screen['width']}"


def test_light_and_dark_are_both_readable(light: Sight, pages: list[Path]) -> None:
    dark = look(pages, "--blink-settings=preferredColorScheme=0")
    assert not any(screen["dark"] for screen in light.screens)
    assert all(screen["dark"] for screen in dark.screens)
    for screen in light.screens + dark.screens:
        assert screen["faint"] == []


def test_a_page_with_faults_is_seen_as_one(tmp_path: Path) -> None:
    page = tmp_path / "faulty.html"
    page.write_text(
        "<!DOCTYPE html><meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src"
        " 'unsafe-inline'\"><section style='background: white'><p style='width: 600px; color: #ddd'>wide</p></section>"
        "<figure><svg viewBox='0 0 400 100' style='width: 300px'><text x='390' y='50' font-size='5'>a long text</text>"
        "</svg></figure><figure><svg style='display: none'></svg></figure><script>1</script>"
    )
    seen = look([page])
    phone = seen.screens[0]
    assert any("Content Security Policy" in line for line in seen.console)
    assert phone["overflow"] > 0
    assert [picture["drawn"] for picture in phone["pictures"]] == [1, 0]
    assert phone["pictures"][0]["lines"] == 0
    assert phone["outside"] == ["a long text"]
    assert len(phone["small"]) == 1
    assert len(phone["faint"]) == 1
