"""The page of the service in a real browser: typed, clicked, read, wide, narrow and dark; nothing asked of anybody else."""

import os
import shutil
import socket
import threading
import time
from dataclasses import replace
from itertools import pairwise

import pytest

import fedrec
from fedrec.data import ItemTable
from fedrec.data.reading import with_items
from fedrec.serving.export import export
from fedrec.serving.model import load_model

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
TOKEN = "a token that is long enough"


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("FEDREC_BROWSER") or next(filter(None, map(shutil.which, names)), None)
    if not found:
        pytest.skip("no Chromium found: install one, or name it in FEDREC_BROWSER")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def model(small, tmp_path_factory):
    titles = ItemTable({str(k): f"{'Green' if k % 2 else 'Red'} thing {k}" for k in range(60)})
    run = fedrec.train("fedslist", replace(small, data=with_items(small.data, titles)), progress=False)
    place = tmp_path_factory.mktemp("m") / "model"
    export(run, place)
    return load_model(place)


class Served:
    """The service in a thread of its own, for as long as it is needed."""

    def __init__(self, model, **options):
        import uvicorn

        from fedrec.serving.service import service

        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(service(model, rate=0, **options), log_level="error", access_log=False, ws="none")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)

    def __enter__(self):
        self.thread.start()
        until = time.monotonic() + 30
        while not self.server.started and time.monotonic() < until:
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join(20)
        self.socket.close()


@pytest.fixture(scope="module")
def address(browser, model):
    with Served(model) as served:
        yield served.address


class Visit:
    """An open page, and what it complained about and asked for."""

    def __init__(self, browser, address, width=1280, scheme="light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def wait(self, expression):
        """Until it holds; the page's policy forbids what a browser's own waiting would evaluate in it."""
        until = time.monotonic() + 60
        while not self.page.evaluate(expression):
            assert time.monotonic() < until, (expression, self.said)
            self.page.wait_for_timeout(30)

    def texts(self, selector):
        return self.page.locator(selector).all_inner_texts()


LISTED = "document.querySelectorAll('#list li').length === 10"


def test_a_history_is_typed_and_recommendations_change(browser, address, model):
    with Visit(browser, address) as visit:
        visit.wait(LISTED)
        before = visit.texts("#list .name")
        visit.page.fill("#search", "red thing 8")
        visit.wait("[...document.querySelectorAll('#found button')].some((one) => one.textContent === 'Red thing 8')")
        visit.page.press("#search", "Enter")
        visit.wait("document.querySelectorAll('#history li').length === 1")
        visit.wait("document.getElementById('said').textContent.endsWith('history of 1.')")
        expected = [model.title(item) for item, _ in model.recommend(history=[8])]
        assert [name.split(". ", 1)[1] for name in visit.texts("#list .name")] == expected
        assert visit.texts("#list .name") != before
        assert "Because of Red thing 8" in visit.texts("#list li")[0]
        assert "of items" in visit.texts("#list li")[0]
        # A second item, and which of both is the newest.
        visit.page.fill("#search", "41")
        visit.page.get_by_role("button", name="Add Green thing 41").click()
        visit.wait("document.getElementById('said').textContent.endsWith('history of 2.')")
        assert visit.texts("#history li > span:first-child") == ["Green thing 41", "Red thing 8"]
        visit.page.get_by_role("button", name="Make Red thing 8 the newest").click()
        visit.wait("document.querySelector('#history li').textContent.startsWith('Red thing 8')")
        visit.wait("document.documentElement.dataset.shown === '4'")
        expected = [model.title(item) for item, _ in model.recommend(history=[41, 8])]
        assert [name.split(". ", 1)[1] for name in visit.texts("#list .name")] == expected
        visit.page.select_option("#popular", "0.5")
        visit.wait("document.documentElement.dataset.shown === '5'")
        assert all(int(text.split("than ")[1].split(" %")[0]) <= 50 for text in visit.texts("#list .quiet"))
        visit.page.get_by_role("button", name="Remove Red thing 8").click()
        visit.wait("document.querySelectorAll('#history li').length === 1")
        assert "Nothing." in visit.page.inner_text("#left")
        assert "a round" in visit.page.inner_text("#crossed")
        assert visit.said == []
        assert all(url.startswith((address, "data:")) for url in visit.asked)


def test_everything_can_be_reached_by_keyboard_and_has_a_name(browser, address):
    with Visit(browser, address) as visit:
        visit.wait(LISTED)
        visit.page.press("body", "Tab")
        assert visit.page.evaluate("document.activeElement.className") == "skip"
        for _ in range(2):
            visit.page.keyboard.press("Tab")
        visit.page.keyboard.press("Enter")  # the first of the found ones, or the search field, which takes the first
        visit.wait("document.querySelectorAll('#history li').length === 1")
        assert visit.page.evaluate("document.activeElement.id") == "search"
        nameless = """() => [...document.querySelectorAll("button, input, select, a")].filter((one) =>
            !(one.textContent.trim() || one.getAttribute("aria-label") || (one.labels && one.labels.length))).length"""
        assert visit.page.evaluate(nameless) == 0
        assert visit.page.locator("[role=status]").count() == 1
        levels = visit.page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((one) => Number(one.tagName[1]))")
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_and_dark_is_dark(browser, address, width, scheme):
    with Visit(browser, address, width, scheme) as visit:
        visit.wait(LISTED)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        ground, ink = visit.page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        bright = [sum(map(int, colour[4:-1].split(","))) > 384 for colour in (ground, ink)]
        assert bright == ([False, True] if scheme == "dark" else [True, False])
        for one in visit.page.locator("button:visible").all():
            assert one.bounding_box()["height"] >= 36  # a finger hits it


def test_a_token_is_asked_for(browser, model):
    with Served(model, token=TOKEN) as served, Visit(browser, served.address) as visit:
        visit.wait("!document.getElementById('gate').hidden")
        assert visit.texts("#list li") == []
        visit.page.fill("#token", TOKEN)
        visit.page.press("#token", "Enter")
        visit.wait(LISTED)
        assert not visit.page.is_visible("#gate")


def test_the_interface_is_shown(browser, address):
    with Visit(browser, f"{address}/docs") as visit:
        visit.wait("document.querySelectorAll('#calls section').length > 5")
        assert "POST /api/recommend" in visit.page.inner_text("#calls")
        assert visit.said == []
