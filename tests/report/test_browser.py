"""The page in a real browser: everything drawn, nothing asked for, no sideways scrolling, dark that is dark."""

import os
import shutil
from pathlib import Path

import pytest

from fedrec.report.figures import figures
from fedrec.report.page import page
from fedrec.report.sources import read_sections

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
COLOURS = """() => [document.body, document.querySelector(".plot .main-svg text, .plot text.gtitle, .plot .xtick text")]
    .map((one) => getComputedStyle(one)).map((style) => [style.backgroundColor, style.color, style.fill])"""


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("plotly")
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
def path(study, runs, tmp_path_factory):
    sections = read_sections([study, *runs.values()])
    place = tmp_path_factory.mktemp("page") / "report.html"
    place.write_text(page([(section, figures(section)) for section in sections]), encoding="utf-8")
    return place


class Visit:
    """An open page, and what it complained about and asked for."""

    def __init__(self, browser, path: Path, width=1280, scheme="light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=60_000)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_is_drawn_without_a_complaint_or_a_request(browser, path, width, scheme):
    with Visit(browser, path, width, scheme) as visit:
        assert visit.said == []
        assert visit.asked == [path.as_uri()]
        boxes = visit.page.query_selector_all(".plot")
        assert len(boxes) > 10
        for box in boxes:
            assert box.query_selector(".main-svg")
            marks = box.query_selector_all(
                ".trace path, .trace .point path, .shapelayer path, .bars path, .point, .js-line"
            )
            assert marks, box.get_attribute("aria-label")
            assert box.bounding_box()["width"] <= width
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        tops = visit.page.evaluate("[...document.querySelectorAll('figure:not(.wide)')].map((one) => one.offsetTop)")
        assert (len(set(tops)) < len(tops)) == (width == 1280), "side by side where there is room"


def test_dark_and_light_differ_and_both_can_be_read(browser, path):
    found = {}
    for scheme in ("light", "dark"):
        with Visit(browser, path, scheme=scheme) as visit:
            found[scheme] = visit.page.evaluate(COLOURS)
    (ground, _), (dark_ground, _) = (found["light"], found["dark"])
    assert luminance(ground[0]) > 0.9
    assert luminance(dark_ground[0]) < 0.05
    for body, tick in found.values():
        assert contrast(body[0], body[1]) > 7
        assert contrast(body[0], tick[2]) > 4.5
    assert found["light"][1][2] != found["dark"][1][2]


def test_a_change_of_the_scheme_redraws(browser, path):
    with Visit(browser, path) as visit:
        before = visit.page.evaluate(COLOURS)
        visit.page.emulate_media(color_scheme="dark")
        visit.page.wait_for_function(
            "([code, old]) => String(eval(code)()) !== String(old)".replace("eval(code)()", f"({COLOURS})()"),
            arg=[0, before],
        )
        visit.page.wait_for_timeout(300)
        assert visit.page.evaluate(COLOURS)[1][2] != before[1][2]


def test_a_name_in_the_legend_hides_its_series(browser, path):
    with Visit(browser, path) as visit:
        figure = visit.page.query_selector('figure[id$="-convergence"]')
        button, before = figure.query_selector(".legend button"), len(figure.query_selector_all(".js-line"))
        button.click()
        visit.page.wait_for_timeout(300)
        assert button.get_attribute("aria-pressed") == "false"
        assert len(figure.query_selector_all(".js-line")) < before
        button.press("Enter")
        visit.page.wait_for_timeout(300)
        assert len(figure.query_selector_all(".js-line")) == before
        assert visit.said == []


def test_paper_is_light_and_as_wide_as_a_sheet(browser, path):
    with Visit(browser, path, scheme="dark") as visit:
        visit.page.emulate_media(media="print")
        visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        visit.page.wait_for_timeout(500)
        assert luminance(visit.page.evaluate(COLOURS)[0][0]) > 0.9
        widths = visit.page.evaluate("[...document.querySelectorAll('.plot .main-svg')].map((one) => one.clientWidth)")
        assert max(widths) <= 650
        assert visit.page.pdf(format="A4").startswith(b"%PDF")


def test_names_that_look_like_markup_stay_text(browser, runs, tmp_path):
    from dataclasses import replace

    (section,) = read_sections([runs["mf"], runs["popular"]])
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script><a href='http://localhost'>$x$</a>"
    rows = [replace(row, name=evil + str(n)) for n, row in enumerate(section.rows)]
    section = replace(section, rows=rows)
    place = tmp_path / "report.html"
    place.write_text(page([(section, figures(section))]), encoding="utf-8")
    with Visit(browser, place) as visit:
        assert visit.said == []
        assert visit.asked == [place.as_uri()]
        assert visit.page.query_selector_all("img, .plot a") == []
        assert "<img" in visit.page.inner_text(".legend button")
        shown = visit.page.evaluate("document.querySelector('.plot .ytick text').textContent")
        assert shown.startswith("<img")


def channels(colour):
    return [float(part) / 255 for part in colour[colour.index("(") + 1 :].rstrip(")").split(",")[:3]]


def luminance(colour):
    """Relative luminance, as accessibility guidelines define it."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels(colour)]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
