"""Pages in a real browser are silent, accessible, light or dark, and work by keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_samples import (
    NOW,
    app_data,
    interrupted_data,
    long_named_search,
    replica,
    rich_data,
    search_data,
)

from transload.runner import AppResults
from transload.specs import AppState
from transload.tracker import Lineage, LineageEdge
from transload_report import (
    LineageData,
    RunsData,
    app_report,
    lineage_report,
    runs_report,
    search_report,
)

KILLED = [replica(k, AppState.FAILED, "trainer", exit_code=-9, restarts=12 + k) for k in range(3)]
PAGES: dict[str, Callable[[], str]] = {
    "one": lambda: app_report(app_data()),
    "few": lambda: app_report(rich_data()),
    "interrupted": lambda: app_report(interrupted_data()),
    "killed": lambda: app_report(app_data(*KILLED, state=AppState.FAILED)),
    "two-hundred": lambda: app_report(rich_data(200)),
    "search": lambda: search_report(search_data()),
    "long names": lambda: search_report(long_named_search()),
    "runs": lambda: runs_report(RunsData("Runs", [rich_data(), app_data()], NOW)),
    "lineage": lambda: lineage_report(
        LineageData(Lineage("a", [], ["b"], [LineageEdge("b", "a", "x")]), NOW)
    ),
}
PATIENCE_MS = 60_000
CLIPPED = """[...document.querySelectorAll("main svg")].flatMap(svg => {
    const edge = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].filter(text => {
        const box = text.getBoundingClientRect();
        return box.left < edge.left - 1 || box.right > edge.right + 1
            || box.top < edge.top - 1 || box.bottom > edge.bottom + 1;
    }).map(text => text.textContent);
})"""
OVERLAPPING = """[...document.querySelectorAll("main svg")].flatMap(svg => {
    const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
    return texts.flatMap(([one, a], k) => texts.slice(k + 1)
        .filter(([, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
            && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
        .map(([other]) => `${one} / ${other}`));
})"""


@pytest.fixture(
    scope="module"
)  # Playwright's event loop runs for as long, and no test with one of its own may meet it
def chromium(needs_chromium: None) -> Iterator[Any]:
    """The system's Chromium, driven by Playwright."""
    import shutil

    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=options, timeout=2 * PATIENCE_MS
        )
        yield browser
        browser.close()


class Reader:
    """A page in a browser window of its own.

    Args:
        browser: the browser.
        file: the page.
        settings: of the window, for example ``color_scheme``.
    """

    def __init__(self, browser: Any, file: Path, **settings: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, **settings)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on(
            "console", lambda message: self.messages.append(f"{message.type}: {message.text}")
        )
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())

    def ground(self) -> str:
        """Return the colour of the page's ground."""
        return str(self.page.evaluate("getComputedStyle(document.body).backgroundColor"))


@pytest.fixture
def reader(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Reader]]:
    """Open a page in a window by ``reader(html, **settings)``.

    At the end its console must be empty, and nothing asked for.
    """
    readers: list[Reader] = []

    def read(html: str, **settings: Any) -> Reader:
        file = tmp_path / f"page-{len(readers)}.html"
        file.write_text(html, encoding="utf-8")
        readers.append(Reader(chromium, file, **settings))
        return readers[-1]

    yield read
    for each in readers:
        each.context.close()
    assert [message for each in readers for message in each.messages] == []
    assert {url.partition(":")[0] for each in readers for url in each.requests} <= {"file", "data"}


@pytest.mark.parametrize(
    ("name", "scheme"), [*((name, "light") for name in PAGES), ("few", "dark")]
)
def test_accessible_in_both_colours(name: str, scheme: str, reader: Callable[..., Reader]) -> None:
    """Axe finds no violation, and the background is light or dark as the system wants."""
    from axe_playwright_python.sync_playwright import Axe

    shown = reader(PAGES[name](), color_scheme=scheme, bypass_csp=True)
    shown.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    report = Axe().run(shown.page).response
    found = [
        (each["id"], [node["html"][:200] for node in each["nodes"]][:3])
        for each in report["violations"]
    ]
    assert found == []
    assert report["passes"]
    assert shown.ground() == ("rgb(244, 246, 249)" if scheme == "light" else "rgb(15, 20, 27)")


def test_colours_by_keyboard(reader: Callable[..., Reader]) -> None:
    """The toggle works by Tab and Enter, and the choice holds when the page is loaded again."""
    shown = reader(PAGES["few"](), color_scheme="light")
    light = shown.ground()
    shown.page.keyboard.press("Tab")
    assert shown.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    shown.page.keyboard.press("Tab")
    assert shown.page.evaluate("document.activeElement.id") == "theme"
    assert shown.page.inner_text("#theme") == "Dark colours"
    shown.page.keyboard.press("Enter")
    assert shown.page.inner_text("#theme") == "Light colours"
    dark = shown.ground()
    assert dark != light
    shown.page.reload()
    assert shown.ground() == dark
    shown.page.focus("#theme")
    shown.page.keyboard.press("Space")
    assert shown.ground() == light


def test_sections_and_logs_by_keyboard(reader: Callable[..., Reader]) -> None:
    """The skip link leads to the content, and a closed log is opened with Enter."""
    shown = reader(PAGES["few"]())
    shown.page.keyboard.press("Tab")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_function("document.activeElement.id === 'main'")
    closed = shown.page.locator("#logs details:not([open]) summary").first
    closed.focus()
    before = shown.page.locator("#logs details[open]").count()
    shown.page.keyboard.press("Enter")
    assert shown.page.locator("#logs details[open]").count() == before + 1


def test_only_what_did_not_succeed(reader: Callable[..., Reader]) -> None:
    """The box above a long table leaves what failed or was started again."""
    shown = reader(PAGES["two-hundred"]())
    rows = shown.page.locator("#replicas tbody tr:visible")
    assert rows.count() == 200
    shown.page.check("#replicas input")
    assert rows.count() == 1


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_phone(name: str, reader: Callable[..., Reader]) -> None:
    """On a narrow screen wide parts scroll inside their own boxes, the page itself does not."""
    shown = reader(PAGES[name]())
    shown.page.set_viewport_size({"width": 390, "height": 800})
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("name", PAGES)
def test_every_word_of_a_picture_is_in_it(name: str, reader: Callable[..., Reader]) -> None:
    """No label is cut off by the edge of its picture, and none lies on another one."""
    shown = reader(PAGES[name]())
    assert shown.page.locator("svg text").count() or name == "one"
    assert shown.page.evaluate(CLIPPED) == []
    assert shown.page.evaluate(OVERLAPPING) == []


def test_numbers_are_not_broken(reader: Callable[..., Reader]) -> None:
    """A number such as 1e-09 stays on one line, however narrow its column gets."""
    names = [f"r{k}" for k in range(6)]
    values = AppResults(
        "local://transload/app-1", AppState.SUCCEEDED, {"0": dict.fromkeys(names, 1.2345e-09)}
    )
    shown = reader(runs_report(RunsData("Runs", [app_data(results=values), app_data()], NOW)))
    shown.page.set_viewport_size({"width": 390, "height": 800})
    lines = """[...document.querySelectorAll("#runs td.number")].map(cell => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return new Set([...range.getClientRects()].map(box => box.top)).size;
    })"""
    assert set(shown.page.evaluate(lines)) <= {0, 1}


def test_works_without_scripts(reader: Callable[..., Reader]) -> None:
    """Without JavaScript everything but the toggle is there, and colours follow the system."""
    shown = reader(PAGES["few"](), java_script_enabled=False, color_scheme="dark")
    assert not shown.page.is_visible("#theme")
    assert shown.page.is_visible("#timeline svg")
    assert shown.page.locator("#replicas tbody tr").count() == 4


def test_hostile_text_runs_nowhere(reader: Callable[..., Reader]) -> None:
    """Hostile text opens no dialog and asks for no image, as the fixture checks."""
    shown = reader(PAGES["few"]())
    dialogs: list[Any] = []
    shown.page.on("dialog", lambda dialog: (dialogs.append(dialog), dialog.dismiss()))
    shown.page.reload()
    assert shown.page.locator("pre").first.inner_text().count("<script>alert(1)</script>") == 1
    assert dialogs == []
