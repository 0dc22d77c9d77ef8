"""Every page of the book, at both sizes and in both themes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.book.conftest import BUILT, Visit, built_pages

PAGES = built_pages() or ["book/index.html"]
CHAPTER = "chapters/01_vector_add.html"

# Contrast as WCAG 2 counts it, of text against the nearest opaque ground below it.
CONTRAST = """
() => {
  const parse = text => {
    const p = (text.match(/[\\d.]+/g) || []).map(Number);
    return p.length ? [p[0], p[1], p[2], p.length > 3 ? p[3] : 1] : [0, 0, 0, 0];
  };
  const light = c => {
    const f = c.slice(0, 3).map(v => { v /= 255;
      return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2];
  };
  const ground = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] > 0.95) return c;
    }
    return [255, 255, 255, 1];
  };
  const low = [];
  for (const e of document.querySelectorAll("main *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || e.closest("svg, mjx-container, [hidden]")) continue;
    const box = e.getBoundingClientRect();
    const style = getComputedStyle(e);
    if (!box.width || !box.height || style.visibility === "hidden") continue;
    const front = parse(style.color), back = ground(e);
    const a = light(front), b = light(back);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([e.textContent.trim().slice(0, 40), ratio.toFixed(2),
                               style.color, back.join()]);
  }
  return low;
}
"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole(name: str, visit: Visit, theme: str) -> None:
    visit.open(name)
    assert visit.outside == [], "something was fetched from outside"
    assert visit.failed == []
    assert visit.errors == []
    root = visit.page.locator("html")
    assert root.get_attribute("data-theme") == theme
    widths = visit.page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert widths[0] <= widths[1], "the page scrolls sideways"
    assert visit.page.locator("main article h1").inner_text().strip()
    visit.page.evaluate("document.querySelectorAll('details').forEach(d=>d.open=true)")
    assert visit.page.evaluate(CONTRAST) == [], "text too faint for its ground"


def test_mathematics_and_figures_are_drawn(visit: Visit) -> None:
    visit.open(CHAPTER)
    formulas = visit.page.locator("mjx-container svg")
    assert formulas.count() >= 10
    assert visit.page.locator("mjx-merror").count() == 0
    assert "\\frac" not in visit.page.locator("main").inner_text()
    for figure in visit.page.locator(".cell_output figure svg").all():
        box = figure.bounding_box()
        assert box is not None and box["width"] > 250 and box["height"] > 60
        # A launch map has a rectangle a thread, a map of memory a path a warp.
        assert figure.locator("rect, path").count() > 8


def test_the_figure_answers_the_keyboard(visit: Visit) -> None:
    visit.open(CHAPTER)
    figure = visit.page.locator("figure.kw-launch").first
    slider = figure.locator("input[type=range]")
    before = figure.inner_text()
    slider.focus()
    visit.page.keyboard.press("ArrowRight")
    visit.page.keyboard.press("ArrowRight")
    assert figure.inner_text() != before
    # The script of one figure leaves the others as they were.
    other = visit.page.locator("figure.kw-launch input[type=range]").nth(1)
    assert other.input_value() == other.get_attribute("min")


def test_an_output_keeps_the_pages_ground(visit: Visit) -> None:
    """The theme would put outputs on white in the dark; ours are drawn for both."""
    visit.open(CHAPTER)
    grounds = visit.page.eval_on_selector_all(
        ".cell_output .text_html, .cell_output img",
        "all => all.map(e => getComputedStyle(e).backgroundColor)",
    )
    assert set(grounds) == {"rgba(0, 0, 0, 0)"}


def test_cuda_cells_are_coloured_as_cuda(desktop: Visit) -> None:
    desktop.open(CHAPTER)
    cells = desktop.page.locator("div.cell_input div.highlight-cuda-cell")
    assert cells.count() >= 6
    first = cells.first
    assert first.locator("span.nd").first.inner_text() == "%%cuda"
    marked = {span.inner_text() for span in first.locator("span[class^=k]").all()}
    assert {"void", "const", "float"} <= marked


def test_an_exercise_has_its_box_hints_and_answer(desktop: Visit) -> None:
    desktop.open(CHAPTER)
    page = desktop.page
    assert page.locator(".admonition.kw-exercise").count() == 6
    assert page.locator("details.kw-hint").count() == 18
    answers = page.locator("details.kw-solution")
    assert answers.count() == 6
    assert not answers.first.locator("pre").is_visible(), "folded until it is opened"
    answers.first.locator("summary").press("Enter")
    assert answers.first.locator("pre").is_visible()
    assert "out[i] = x[i] + 1.0f" in answers.first.inner_text()
    # The cell itself shows what the learner gets, and the check what the answer earns.
    cell = page.locator("div.cell.tag_exercise").first
    assert "fill me in" in cell.inner_text()
    assert page.locator("p.kw-with-answer").count() == 6


def test_no_empty_box_is_left(desktop: Visit) -> None:
    for name in PAGES:
        desktop.open(name)
        empty = desktop.page.eval_on_selector_all(
            "main .cell, main .cell_output, main .admonition, main table, main pre,"
            " main details, main figure",
            "all => all.filter(e => !e.textContent.trim()"
            " && !e.querySelector('img, svg')).map(e => e.outerHTML.slice(0, 99))",
        )
        assert empty == [], name


def test_search_finds_a_term(desktop: Visit) -> None:
    desktop.page.goto(f"{desktop.site}/search.html?q=grid-stride")
    found = desktop.page.locator("ul.search li a")
    found.first.wait_for()
    pages = {link.get_attribute("href") or "" for link in found.all()}
    assert any("01_vector_add" in page for page in pages)
    assert desktop.outside == []


def test_the_search_button_opens_one_field(desktop: Visit) -> None:
    desktop.open("book/index.html")
    desktop.page.keyboard.press("Control+k")
    fields = desktop.page.locator("input[type=search]:visible")
    fields.first.wait_for()
    assert fields.count() == 1


def test_colab_opens_the_generated_notebook(desktop: Visit) -> None:
    desktop.open(CHAPTER)
    links = desktop.page.locator("a[href*='colab.research']")
    assert links.count() == 1
    address = links.first.get_attribute("href") or ""
    assert address.endswith("/blob/main/chapters/01_vector_add.ipynb")


def test_the_download_is_the_learners_notebook(desktop: Visit) -> None:
    ours = Path("chapters/01_vector_add.ipynb")
    served = json.loads((BUILT / "_sources" / ours).read_text())
    assert served["metadata"]["kernelwright"]["chapter"] == "01_vector_add.md"
    desktop.open(CHAPTER)
    link = desktop.page.locator("a.btn-download-notebook-button")
    assert link.count() == 1


def test_a_table_of_results_names_its_source(desktop: Visit) -> None:
    desktop.open(CHAPTER)
    for table in desktop.page.locator(".kw-results").all():
        text = table.inner_text()
        assert "Measured on" in text or "not measured" in text


IDS = re.compile(r"""\b(?:id|name)=["']([^"']+)["']""")
LINKS = re.compile(r"""<a\b[^>]*\bhref=["']([^"']+)["']""")


@pytest.mark.parametrize("name", PAGES)
def test_internal_links_resolve(name: str) -> None:
    page = BUILT / name
    if not page.exists():
        pytest.skip("THE BOOK IS NOT BUILT: run `make book` first")
    broken = []
    for link in LINKS.findall(page.read_text()):
        if re.match(r"[a-z]+:|//", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path.partition("?")[0]).resolve() if path else page
        there = target.is_file()
        if there and anchor:
            there = anchor in set(IDS.findall(target.read_text()))
        if not there:
            broken.append(link)
    assert not broken
