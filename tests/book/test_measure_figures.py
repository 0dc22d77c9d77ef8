"""Timer view and roofline in a real browser: keys move them, offline, on a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

import kernelwright as kw
from kernelwright.measure import timer_view
from kernelwright.measure.practice import PracticeKernel


def clock_only(gpu: kw.PracticeGPU, launch: PracticeKernel) -> float:
    start = gpu.perf_counter()
    launch()
    return (gpu.perf_counter() - start) * 1e3


def clock_and_wait(gpu: kw.PracticeGPU, launch: PracticeKernel) -> float:
    start = gpu.perf_counter()
    launch()
    gpu.synchronize()
    return (gpu.perf_counter() - start) * 1e3


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.context.set_offline(True)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    view = timer_view({"clock only": clock_only, "clock and wait": clock_and_wait})
    roof = kw.roofline(
        kw.Point("vector add", 2**26, 12 * 2**26, 0.19),
        kw.Point("matmul", 2 * 4096**3, 12 * 4096**2, 2.7, "fp32"),
        gbps=4000.0,
        roofs={"fp32": 50.0, "bf16": 700.0},
        name="made up",
    )
    page.set_content(
        "<!doctype html><meta name=viewport content='width=device-width'>"
        f"{view._repr_html_()}{view._repr_html_()}{roof._repr_html_()}"
    )
    yield page
    page.close()
    assert errors == []


def test_they_fit_a_phone(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_arrow_keys_leaf_through_the_timers(page: Page) -> None:
    figure, other = page.locator(".kw-timer").first, page.locator(".kw-timer").last
    assert figure.locator("svg:visible").count() == 1
    first = figure.locator("svg:visible").inner_html()
    figure.locator("input").focus()
    page.keyboard.press("ArrowRight")
    assert figure.locator("output").inner_text().startswith("clock and wait: says 1.43")
    assert figure.locator("svg:visible").inner_html() != first
    assert other.locator("output").inner_text().startswith("clock only: says 0.900")
    # All of it is said in words below, for who cannot see or has no script.
    assert figure.locator("figcaption li").count() == 2


def test_the_probe_follows_the_roof(page: Page) -> None:
    figure = page.locator(".kw-roof")
    slider, words = figure.locator("input"), figure.locator("output")
    slider.focus()
    page.keyboard.press("Home")
    assert words.inner_text().endswith("memory is the limit")
    at = figure.locator(".kw-probe circle").get_attribute("cy")
    page.keyboard.press("End")
    assert words.inner_text().endswith("arithmetic is the limit")
    assert "at most 700 TFLOP/s" in words.inner_text()
    higher = figure.locator(".kw-probe circle").get_attribute("cy")
    assert at is not None and higher is not None and float(higher) < float(at)
