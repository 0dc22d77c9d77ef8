"""The launch map in a real browser: keys and clicks reach it, it fits a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from kernelwright.draw import LaunchMap
from kernelwright.draw.writers import Writes

# Two blocks of four threads: the last has nothing, one writes past the end.
WRITES = Writes(2, 4, 7, ((0,), (1,), (2,), (3,), (4, 5), (6,), (7,), ()))


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    drawn = LaunchMap("copy", WRITES)
    page.set_content(
        "<!doctype html><meta name=viewport content='width=device-width'>"
        f"{drawn._repr_html_()}{drawn._repr_html_()}"
    )
    yield page
    page.close()
    assert errors == []


def test_it_stands_alone_without_a_pointer(page: Page) -> None:
    figure = page.locator("figure").first
    assert figure.locator("svg").get_attribute("role") == "img"
    assert "outside of the array: out[7]" in figure.locator("figcaption").inner_text()
    assert figure.locator(".kw-off").count() == 0


def test_it_fits_a_phone(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_arrow_keys_follow_a_thread(page: Page) -> None:
    figure, other = page.locator("figure").first, page.locator("figure").last
    words = figure.locator("output")
    figure.locator("input").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert words.inner_text() == (
        "blockIdx.x 1 * blockDim.x 4 + threadIdx.x 0 = 4: writes out[4], out[5]"
    )
    # The thread above, and its two elements below.
    assert figure.locator(".kw-on").count() == 3
    assert other.locator(".kw-on").count() == 0
    page.keyboard.press("End")
    assert words.inner_text().endswith("= 7: writes nothing")
    page.keyboard.press("Home")
    assert words.inner_text() == "all threads"


def test_a_click_on_an_element_finds_its_writer(page: Page) -> None:
    figure = page.locator("figure").first
    figure.locator('[data-element="7"]').click()
    assert "writes out[7] (outside!)" in figure.locator("output").inner_text()
    figure.locator('[data-element="7"]').click()
    assert figure.locator("output").inner_text() == "all threads"
