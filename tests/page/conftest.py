import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "serving"))

from browser_page import opened  # noqa: E402
from sluice_server import TINY, Server  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("page") / "server.log"
    with Server(TINY, "--dtype", "float32", "--max-total-tokens", "65536", log=log) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="no `playwright` here (tests/page/requirements.txt)")
    if not BROWSER:
        pytest.skip("no `chromium` here")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def page(browser, server):
    with opened(browser, server.url) as page:
        page.wait_for_selector("#model option", state="attached")
        yield page
