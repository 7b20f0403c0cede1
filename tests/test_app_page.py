"""The page in a real browser: files, series, zoom, backtest, downloads, keyboard, telephone, dark, accessibility."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest

import logsparse as ls
from logsparse.data.findings import Rules
from logsparse.evaluation.check import examined, rows_of
from logsparse.serving.app import PAGE, Settings
from serving import HORIZON, Here, here, hourly, small_model

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
from axe_playwright_python.sync_playwright import Axe  # noqa: E402
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect  # noqa: E402

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser: chromium is not installed")

TOKEN = "a-token-of-many-characters"  # noqa: S105
SCREENS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
}
STORED = """async () => [
  localStorage.length, sessionStorage.length, document.cookie, (await indexedDB.databases()).length
]"""
Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def model() -> ls.LogSparse:
    return small_model()


@pytest.fixture(scope="module")
def server(model: ls.LogSparse) -> Iterator[Here]:
    with here({"net": model}) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def contexts(browser: Browser) -> dict[str, BrowserContext]:
    """Windows of each screen share a cache, which has plotly.min.js after the first."""
    return {name: browser.new_context(**screen) for name, screen in SCREENS.items()}


@pytest.fixture
def visit(contexts: dict[str, BrowserContext], server: Here) -> Iterator[Visit]:
    """Return a function that opens the page; it must store nothing, ask this server only, and leave no console error.

    A browser reports each answer from 400 on as an error; `refusals` of them are meant.
    """
    opened: list[Page] = []
    complaints: list[str] = []
    asked: list[str] = []
    expected: list[int] = []

    def open_page(url: str = "", screen: str = "desktop", refusals: int = 0) -> Page:
        page = contexts[screen].new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url or server.url)
        opened.append(page)
        expected.append(refusals)
        return page

    yield open_page
    for page in opened:
        assert page.evaluate(STORED) == [0, 0, "", 0]
        page.close()
    refused = [text for text in complaints if text.startswith("Failed to load resource:")]
    assert [text for text in complaints if text not in refused] == []
    assert len(refused) == sum(expected), refused
    assert [url for url in asked if not re.match(r"(blob:)?http://127\.0\.0\.1:|data:", url)] == []


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "loads.csv"
    hourly().write_csv(path)
    return path


def load(page: Page, path: Path) -> Page:
    page.set_input_files("#file", path)
    return drawn(page)


def drawn(page: Page) -> Page:
    """Wait until the forecast and its attention are there."""
    expect(page.locator("#caption")).to_contain_text("looks most at", timeout=20_000)
    expect(page.locator("#fan .main-svg").first).to_be_visible()
    return page


def post(server: Here, path: str, body: bytes) -> httpx.Response:
    return server.post(path, body, "text/csv")


def span(page: Page, chart: str = "fan") -> float:
    """Return the hours that a chart shows."""
    days: float = page.evaluate(
        f"() => {{ const [a, b] = document.getElementById('{chart}').layout.xaxis.range.map((x) => new Date(x)); "
        "return (b - a) / 36e5; }"
    )
    return days


def test_a_file_is_recognised_as_the_command_says_it(visit: Visit, table: Path) -> None:
    page = load(visit(), table)
    found = page.locator("#rows > div").all()
    rows = [(row.locator("dt").inner_text(), row.locator("dd").inner_text()) for row in found]
    assert rows == rows_of(examined(hourly(), None, {}, Rules(), None)[1])
    expect(page.locator("#summary")).to_have_text("Health: 3 series, nothing found.")
    expect(page.locator("#drop-title")).to_have_text("loads.csv")


def test_findings_are_listed_and_bad_series_marked(visit: Visit, tmp_path: Path) -> None:
    path = tmp_path / "flat.csv"
    late = (pl.col("unique_id") == "south") & (pl.col("ds").dt.day() >= 7)
    hourly().with_columns(y=pl.when(late).then(3.0).otherwise("y")).write_csv(path)
    page = load(visit(), path)
    expect(page.locator("#findings li")).to_have_count(1)
    expect(page.locator("#findings li")).to_contain_text("bad: flat")
    expect(page.locator("#series option")).to_have_text(["north", "south (bad)", "east"])


def test_findings_of_one_kind_do_not_push_the_chart_away(visit: Visit, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    hourly(("north", "south", "east", *(f"store {number}" for number in range(9)))).write_csv(path)
    page = load(visit(), path)
    expect(page.locator("#findings li")).to_have_count(4)
    expect(page.locator("#findings li").last).to_have_text("and 6 more: new")


def test_what_the_model_cannot_forecast_is_recognised_and_no_more(visit: Visit, table: Path, tmp_path: Path) -> None:
    path = tmp_path / "daily.csv"
    hourly().filter(pl.col("ds").dt.hour() == 0).write_csv(path)
    page = visit()
    expect(page.locator("#expects")).to_contain_text("and the columns unique_id, ds and y; or one column per series.")
    page.set_input_files("#file", path)
    expect(page.locator("#found-title")).to_have_text("Recognised, but this model cannot forecast it")
    expect(page.locator("#findings")).to_contain_text("steps of d, the model was fitted on steps of h")
    expect(page.locator("#work")).to_be_hidden()
    load(page, table)


def test_a_short_history_is_named_beside_its_forecast(visit: Visit, table: Path, tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    hourly().head(5).write_csv(path)
    page = load(visit(), path)
    expect(page.locator("#next")).to_contain_text("The history has 5 steps; with fewer than 24 the forecast is less")
    load(page, table)
    expect(page.locator("#next")).not_to_contain_text("less accurate")


def test_a_bad_file_gets_a_sentence_and_a_good_one_removes_it(visit: Visit, table: Path, tmp_path: Path) -> None:
    page = visit(refusals=2)
    bad = tmp_path / "bad.csv"
    bad.write_text("unique_id,ds,load\na,2024-01-01,1\n")
    page.set_input_files("#file", bad)
    expect(page.locator("#file-error")).to_contain_text(re.compile(r"Got .*load.* Hint: "))
    # The way out names a field, which is shown and marked.
    expect(page.locator("[name=target_col]")).to_be_visible()
    expect(page.locator("[name=target_col]")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#work")).to_be_hidden()
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing else")
    page.set_input_files("#file", broken)
    expect(page.locator("#file-error")).to_contain_text("The body must be a readable parquet file.")
    load(page, table)
    expect(page.locator("#file-error")).to_be_hidden()


def test_named_columns_are_read_and_are_in_the_command(visit: Visit, tmp_path: Path) -> None:
    path = tmp_path / "my loads.csv"
    hourly().rename({"y": "load"}).write_csv(path)
    page = visit(refusals=1)
    page.set_input_files("#file", path)
    page.fill("[name=target_col]", "load")
    page.click("text=Read again")
    drawn(page)
    command = page.locator("#command").inner_text()
    assert command.startswith("curl --data-binary '@my loads.csv' 'http://127.0.0.1:")
    assert "target_col=load" in command
    assert "logsparse predict" not in command  # it has no such option


def drop(page: Page, path: Path) -> None:
    """Drop a file on the page, as a mouse does."""
    event = """([text, name]) => {
      const dropped = new DataTransfer();
      dropped.items.add(new File([text], name));
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
    }"""
    page.evaluate(event, [path.read_text(), path.name])


def test_a_file_can_be_dropped_anywhere(visit: Visit, table: Path) -> None:
    page = visit()
    drop(page, table)
    drawn(page)
    expect(page.locator("#drop-title")).to_have_text("loads.csv")


def test_a_file_that_comes_before_the_models_waits_for_them(
    visit: Visit, contexts: dict[str, BrowserContext], table: Path
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    contexts["desktop"].route("**/v1/models", hold, times=1)
    page = visit()
    drop(page, table)
    expect(page.locator("#busy")).to_have_text("Reading loads.csv …")
    held[0].continue_()
    drawn(page)
    expect(page.locator("#file-error")).to_be_hidden()


def test_the_example_is_the_same_every_time_and_the_forecast_is_that_of_predict(
    visit: Visit, server: Here, model: ls.LogSparse
) -> None:
    page = visit()
    page.click("#example")
    drawn(page)
    expect(page.locator("#summary")).to_have_text("Health: 3 series, nothing found.")
    with server.client() as client:
        first, second = (client.get("/v1/models/net/example").content for _ in range(2))
    assert first == second
    wanted = model.predict(pl.read_parquet(first)).filter(unique_id="north")
    page.click("text=The forecast as a table")
    shown = [row.split("\t") for row in page.locator("#values tbody tr").all_inner_texts()]
    assert [row[0] for row in shown] == [f"{time:%Y-%m-%d %H:%M}" for time in wanted["ds"]]
    for column, name in enumerate(("q0.5", "q0.1", "q0.9", "mean"), start=1):
        assert [float(row[column]) for row in shown] == pytest.approx(wanted[name].to_list(), rel=1e-3)


def test_series_are_found_by_search_list_and_arrows(visit: Visit, table: Path, model: ls.LogSparse) -> None:
    page = load(visit(), table)
    page.select_option("#series", label="south")
    expect(page.locator("#fan")).to_have_attribute("aria-label", re.compile("forecast of south;"))
    median = model.predict(hourly()).filter(unique_id="south")["q0.5"][0]
    expect(page.locator("#next")).to_contain_text(f"median {median:.4g}")
    page.click("#after")
    expect(page.locator("#name")).to_have_text("east")
    expect(page.locator("#after")).to_be_disabled()
    page.fill("#search", "OR")
    expect(page.locator("#series option")).to_have_text(["north"])
    expect(page.locator("#count")).to_have_text("1 of 3 series")
    expect(page.locator("#name")).to_have_text("north")
    page.fill("#search", "")
    page.press("#search", "ArrowDown")
    expect(page.locator("#name")).to_have_text("south")
    drawn(page)


def test_the_chart_zooms_by_mouse_and_button_and_is_read_by_hovering(visit: Visit, table: Path) -> None:
    page = load(visit(), table)
    usual = span(page)
    page.click("#forecast >> text=Zoom in")
    assert span(page) == pytest.approx(usual / 2, abs=1)
    page.click("#forecast >> text=All")
    assert span(page) == 8 * 24 + HORIZON - 1
    page.locator("#fan").scroll_into_view_if_needed()
    box = page.locator("#fan .nsewdrag").first.bounding_box()
    assert box is not None
    across, down = box["x"], box["y"] + box["height"] / 2
    page.mouse.move(across + 0.5 * box["width"], down - 40)
    page.mouse.down()
    page.mouse.move(across + 0.999 * box["width"], down + 40, steps=5)
    page.mouse.up()
    page.wait_for_timeout(300)
    assert span(page) < 0.55 * (8 * 24)
    page.mouse.move(across + 0.99 * box["width"], down, steps=3)
    expect(page.locator("#fan .hoverlayer")).to_contain_text(re.compile(r"median .*80 %: .* to "))


def test_what_the_forecast_looked_at_is_under_the_history(visit: Visit, table: Path, server: Here) -> None:
    page = load(visit(), table)
    bars = "() => document.getElementById('fan').data.find((trace) => trace.type === 'bar').y"
    for step in (0, 3):
        page.fill("#step", str(step + 1))
        page.press("#step", "Enter")
        expect(page.locator("#caption")).to_contain_text(f"step {step + 1} of {HORIZON} looks most at")
        wanted = post(server, f"/v1/attention?series=north&step={step}", table.read_bytes()).json()["weights"]
        assert page.evaluate(bars) == pytest.approx(wanted)


def test_the_backtest_tab_shows_what_the_interface_answers(visit: Visit, table: Path, server: Here) -> None:
    page = load(visit(refusals=1), table)
    page.click("#tab-backtest")
    expect(page.locator("#scores tbody tr")).to_have_count(5)
    answer = post(server, "/v1/backtest?windows=3", table.read_bytes()).json()
    expect(page.locator("#verdict")).to_have_text(answer["summary"])
    assert f"{100 * answer['coverage']:.0f} % of the actual values lie in the 80 % band" in answer["summary"]
    expect(page.locator("#scores thead")).to_have_text("All seriesnetseasonal naive")
    assert [row.split("\t")[0] for row in page.locator("#scores tbody tr").all_inner_texts()] == [
        row[0] for row in answer["rows"]
    ]
    names = "() => document.getElementById('past').data.map((trace) => trace.name)"
    assert page.evaluate(names).count("seasonal naive") == 3
    page.fill("#windows", "2")
    page.press("#windows", "Enter")
    expect(page.locator("#verdict")).to_contain_text("the last 2 windows")
    assert page.evaluate(names).count("median") == 2
    # Another series: its chart, and the same scores of all.
    page.click("#after")
    expect(page.locator("#past")).to_have_attribute("aria-label", re.compile("forecasts of south "))
    expect(page.locator("#verdict")).to_contain_text("All series, the last 2 windows")
    page.fill("#windows", "1000")
    page.press("#windows", "Enter")
    expect(page.locator("#backtest-error")).to_contain_text(re.compile("Got .*Hint: "))
    expect(page.locator("#past")).to_be_hidden()


def test_a_download_is_the_answer_of_the_interface(visit: Visit, table: Path, server: Here) -> None:
    page = load(visit(), table)
    for kind in ("csv", "parquet"):
        with page.expect_download() as started:
            page.click(f"#{kind}")
        assert started.value.suggested_filename == f"forecast.{kind}"
        wanted = post(server, f"/v1/forecast?format={kind}", table.read_bytes())
        assert Path(started.value.path()).read_bytes() == wanted.content


def test_everything_works_by_keyboard(visit: Visit) -> None:
    page = visit()

    def reach(wanted: str, key: str = "Tab") -> None:
        for _ in range(40):
            page.keyboard.press(key)
            if page.evaluate("() => document.activeElement.id") == wanted:
                return
        raise AssertionError(wanted)

    reach("file")
    reach("example")
    page.keyboard.press("Enter")
    drawn(page)
    reach("series")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#name")).to_have_text("south")
    reach("tab-forecast")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#scores tbody tr")).to_have_count(5)
    reach("csv")
    with page.expect_download():
        page.keyboard.press("Enter")


@pytest.mark.parametrize("screen", SCREENS)
def test_no_accessibility_fault_and_no_sideways_scrolling(visit: Visit, screen: str, tmp_path: Path) -> None:
    page = visit(screen=screen, refusals=1)

    def look(state: str) -> None:
        found = Axe().run(page).response["violations"]
        faults = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
        assert faults == [], state
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, state

    look("empty")
    bad = tmp_path / "bad.csv"
    bad.write_text("unique_id,ds,load\na,2024-01-01,1\n")
    page.set_input_files("#file", bad)
    expect(page.locator("#file-error")).to_be_visible()
    look("refused")
    page.click("#example")
    drawn(page)
    page.click("text=The forecast as a table")
    look("forecast")
    page.click("#tab-backtest")
    expect(page.locator("#scores tbody tr")).to_have_count(5)
    look("backtest")


def test_charts_follow_when_the_screen_turns_dark(visit: Visit, table: Path) -> None:
    page = load(visit(), table)
    ink = "() => document.getElementById('fan').layout.font.color"
    before = page.evaluate(ink)
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)
    assert page.evaluate(ink) != before


def test_a_token_and_one_of_several_models_are_asked_for(visit: Visit, model: ls.LogSparse, table: Path) -> None:
    models = {"net": model, "naive": ls.SeasonalNaive(HORIZON).fit(hourly())}
    with here(models, Settings(token=TOKEN, max_body=100_000)) as server:
        page = visit(server.url, refusals=3)
        expect(page.locator("#token")).to_be_focused()
        drop(page, table)
        expect(page.locator("#busy")).to_be_empty()
        expect(page.locator("#token")).to_be_focused()
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#token-error")).to_have_text("This is not the token of the server.")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#door")).to_be_hidden()
        drawn(page)  # the file that came before the token
        assert TOKEN not in page.locator("#command").inner_text()
        page.select_option("#model", "naive")
        expect(page.locator("#look-error")).to_contain_text("SeasonalNaive has no attention that could show")
        expect(page.locator("#command")).to_contain_text("logsparse predict naive loads.csv")
        large = table.with_name("large.csv")
        large.write_bytes(b"x" * 100_001)
        page.set_input_files("#file", large)
        expect(page.locator("#file-error")).to_contain_text("A file must have at most 100,000 bytes. Got 100,001.")


def test_a_server_that_has_gone_is_said_beside_the_file(visit: Visit, table: Path) -> None:
    page = visit(refusals=1)
    expect(page.locator("#about")).to_contain_text("net forecasts the next 6 hours.")
    page.route("**/v1/check*", lambda route: route.abort())
    page.set_input_files("#file", table)
    expect(page.locator("#file-error")).to_contain_text("The server does not answer.")


def test_the_page_is_small_and_needs_no_other_address() -> None:
    texts = [(PAGE / name).read_text() for name in ("index.html", "page.js", "page.css")]
    assert sum(len(text.splitlines()) for text in texts) < 500
    assert re.findall(r"https?://|//cdn", "".join(texts)) == []
