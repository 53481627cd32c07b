"""A real browser on a real Airflow shows the button, listing and connection form."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from airflow_server import AirflowServer
from scripts import Stage

pytestmark = pytest.mark.timeout(400)
PATIENCE_MS = 120_000
TITLE = "the page of an app"


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(f"<title>{TITLE}</title>{self.path}".encode())

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def page() -> Iterator[str]:
    """Address of a page about an app."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}/app.html"
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.fixture(scope="module")  # Playwright's event loop runs for as long
def browser(needs_chromium: None) -> Iterator[Any]:
    """The system's Chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        made = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=options, timeout=2 * PATIENCE_MS
        )
        yield made
        made.close()


def _open(browser: Any, run: Any) -> Any:
    """Return the page of a task instance, once Airflow has drawn it."""
    window = browser.new_context(viewport={"width": 1400, "height": 900})
    window.set_default_timeout(PATIENCE_MS)
    shown = window.new_page()
    server = run.server
    shown.goto(
        f"http://127.0.0.1:{server.port}/dags/{run.dag_id}/runs/{run.run_id}/tasks/job/details"
    )
    shown.get_by_role("tab", name=re.compile("Details")).or_(
        shown.get_by_text("Details")
    ).first.wait_for()
    return shown


# Airflow draws its whole page, twice. That the link is there is tested by `test_endings`
@pytest.mark.slow
def test_the_button_leads_to_the_page(stage: Stage, browser: Any, page: str) -> None:
    """With a page there is a button that opens it. With a folder alone there is none."""
    with_page, without = stage.run("sync_plain", {"page": page}), stage.run("sync_plain", {})
    for run in (with_page, without):
        run.wait("success")
    shown = _open(browser, with_page)
    button = shown.get_by_role("link", name="transload app")
    button.wait_for()
    with (
        shown.expect_popup()
        if button.get_attribute("target") == "_blank"
        else shown.expect_navigation()
    ):
        button.click()
    landed = shown.context.pages[-1]
    landed.wait_for_url(page)
    assert landed.title() == TITLE
    shown.context.close()
    shown = _open(browser, without)
    with shown.expect_response(re.compile("/links")):
        shown.reload()
    shown.wait_for_load_state("networkidle")
    assert shown.get_by_role("link", name="transload app").count() == 0
    shown.context.close()


# its fields are tested by `test_form_of_the_connection`, the listing by `test_provider`
@pytest.mark.slow
def test_provider_and_connection_form(airflow: AirflowServer, browser: Any) -> None:
    """*Admin › Providers* lists the package.

    The form of a connection has the fields for a cluster.
    """
    window = browser.new_context(viewport={"width": 1400, "height": 1100})
    window.set_default_timeout(PATIENCE_MS)
    shown = window.new_page()
    shown.goto(f"http://127.0.0.1:{airflow.port}/providers")
    shown.get_by_text("transload-airflow").wait_for()
    shown.goto(f"http://127.0.0.1:{airflow.port}/connections")
    shown.get_by_role("button", name=re.compile("Add Connection")).click()
    shown.get_by_role("combobox").first.click()
    shown.keyboard.type("transload")
    shown.get_by_role("option", name="transload").click()
    shown.get_by_text("Host (Slurm by SSH, Docker)").wait_for()
    assert shown.get_by_text("Password", exact=True).count() == 0
    shown.get_by_role("button", name="Extra Fields", exact=True).click()
    for label in ("Kind of scheduler", "Context", "Kubeconfig", "Tracker base", "Run options"):
        shown.get_by_text(label, exact=True).first.wait_for()
    shown.context.close()
