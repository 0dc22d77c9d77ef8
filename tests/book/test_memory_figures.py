"""The figures of memory in a real browser, with the network off."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page

import kernelwright as kw
from kernelwright.draw import (
    access_map,
    bank_map,
    epilogue_map,
    expert_tiles,
    explore_blocking,
    explore_groups,
    explore_pipeline,
    explore_routing,
    explore_tile,
    explore_words,
    fusion_flows,
    im2col_tile,
    lane_map,
    look_back,
    sector_map,
    shuffle_steps,
    tile_layout,
)
from kernelwright.trace.report import TraceReport
from kernelwright.trace.triton import TritonReport
from tests.kernelwright.trace.triton import kernels

COLUMN = """
__global__ void column(const float* x, float* out) {
    __shared__ float tile[32][32];
    for (int r = threadIdx.y; r < 32; r += 8)
        tile[r][threadIdx.x] = x[r * 32 + threadIdx.x];
    __syncthreads();
    for (int r = threadIdx.y; r < 32; r += 8)
        out[threadIdx.x * 32 + r] = tile[threadIdx.x][r];
}
"""


HALVED = """
__global__ void halved(const float* x, float* out) {
    __shared__ float part[64];
    int t = threadIdx.x;
    part[t] = x[t];
    for (int stride = 32; stride > 0; stride /= 2) {
        __syncthreads();
        if (t < stride) part[t] += part[t + stride];
    }
    if (t == 0) out[0] = part[0];
}
"""


def halved() -> TraceReport:
    kernel = kw.cuda.compile(HALVED, backend="emulator")["halved"]
    return kernel.trace[1, 64](torch.arange(64.0), torch.empty(1))


def traced() -> TraceReport:
    kernel = kw.cuda.compile(COLUMN, backend="emulator")["column"]
    x = torch.arange(1024.0)
    return kernel.trace[1, (32, 8)](x, torch.empty_like(x))


def programs() -> TritonReport:
    x, out = torch.arange(30.0), torch.empty(30)
    return kw.trace_triton(kernels.twice)[(4,)](x, out, 30, BLOCK=8)


def in_words(codes: torch.Tensor) -> torch.Tensor:
    shifts = 4 * torch.arange(8)
    return (codes.view(-1, 8).long() << shifts).sum(-1).view(32, 4)


FIGURES: dict[str, Callable[[], object]] = {
    "access_map": lambda: access_map(traced()),
    "program_map": lambda: access_map(programs(), columns=8),
    "sector_map": lambda: sector_map(traced()),
    "bank_map": lambda: bank_map(traced()),
    "lane_map": lambda: lane_map(halved(), halved()),
    "fusion_flows": lambda: fusion_flows(lambda x: x.exp() + x, torch.ones(9)),
    "tile_layout": lambda: tile_layout(32, 32, padding=1),
    "shuffle_steps": lambda: shuffle_steps(range(32)),
    "explore_blocking": lambda: explore_blocking(sums=(1, 8)).figure(),
    "explore_tile": lambda: explore_tile(paddings=(0, 1)).figure(),
    "im2col_tile": lambda: im2col_tile(6, 7, 16),
    "epilogue_map": lambda: epilogue_map(HELD),
    "explore_routing": lambda: explore_routing(tokens=8).figure(),
    "explore_pipeline": lambda: explore_pipeline(cycles=9).figure(),
    "look_back": lambda: look_back([3, 1, 4, 1], [1, 3, 1, 2], window=2),
    "expert_tiles": lambda: expert_tiles([37, 37, 75]),
    "explore_words": lambda: explore_words(in_words, lanes=(0, 9)).figure(),
    "explore_groups": lambda: explore_groups(
        {"normal": torch.randn(8, 64)},
        lambda w, size: (w * 99 / size).round() * size / 99,
        (16, 64),
    ).figure(),
}
NARROW = (
    "program_map",
    "fusion_flows",
    "explore_pipeline",
    "explore_routing",
    "look_back",
    "expert_tiles",
    "explore_words",
    "explore_groups",
)
# Of a 16 x 8 product: lane 4 g + t has two neighbours of rows g and g + 8.
HELD = [[2 * lane + at for at in (0, 1, 64, 65)] for lane in range(32)]


@pytest.fixture(scope="module", params=[True, False], ids=["phone", "desktop"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    width = 390 if request.param else 1280
    context = browser.new_context(viewport={"width": width, "height": 800})
    context.set_offline(True)
    page = context.new_page()
    errors: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text))
    page.on("request", lambda request: asked.append(request.url))
    figures = "".join(
        f'<div id="{name}">{draw()._repr_html_()}</div>'  # type: ignore[attr-defined]
        for name, draw in FIGURES.items()
    )
    page.set_content(
        "<!doctype html><meta name=viewport content='width=device-width'>" + figures
    )
    yield page
    context.close()
    assert (errors, asked) == ([], [])


def seen(figure: Locator) -> str:
    """Return what is drawn: the frames that are not hidden, and how faint."""
    script = """(root) => [...root.querySelectorAll("g[data-frame]")]
      .filter((g) => getComputedStyle(g).display !== "none")
      .map((g) => g.dataset.frame + "@" + getComputedStyle(g).opacity).join()"""
    return str(figure.evaluate(script))


@pytest.mark.parametrize("name", FIGURES)
def test_the_slider_moves_and_the_figure_changes(page: Page, name: str) -> None:
    figure = page.locator(f"#{name}")
    # Of several sliders the last.
    slider = figure.locator("input[type=range]").last
    words = figure.locator("output")
    assert figure.locator("svg").get_attribute("role") == "img"
    assert len(figure.locator("svg title").text_content() or "") > 40
    assert len(figure.locator("figcaption").inner_text()) > 40
    slider.focus()
    page.keyboard.press("Home")
    drawn, said = seen(figure), words.inner_text()
    picture = figure.locator("svg").screenshot()
    page.keyboard.press("ArrowRight")
    assert seen(figure) != drawn
    assert words.inner_text() != said
    assert slider.get_attribute("aria-valuetext") == words.inner_text()
    assert figure.locator("svg").screenshot() != picture
    page.keyboard.press("Home")
    assert (seen(figure), words.inner_text()) == (drawn, said)


def test_they_fit_the_page(page: Page) -> None:
    width = page.evaluate("window.innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # On a phone the picture scrolls in its own box, and keys reach that box.
    for name in FIGURES:
        box = page.locator(f"#{name} .kw-scroll")
        drawn = box.locator("svg").bounding_box()
        # A narrow picture is whole on a phone.
        least = 350 if name in NARROW else 500
        assert drawn is not None and drawn["width"] >= least
        assert box.get_attribute("tabindex") == "0"


def test_play_goes_through_the_steps_and_pauses(page: Page) -> None:
    figure = page.locator("#access_map")
    slider, button = figure.locator("input"), figure.locator("button")
    slider.focus()
    page.keyboard.press("Home")
    assert seen(figure) == "0@1"  # the overview
    button.focus()
    page.keyboard.press("Enter")
    assert button.inner_text() == "Pause"
    page.wait_for_function(
        "(input) => Number(input.value) >= 2", arg=slider.element_handle()
    )
    page.keyboard.press("Enter")
    assert button.inner_text() == "Play"
    assert seen(figure) == "1@0.4,2@1"
    assert "step 2 of 4" in figure.locator("output").inner_text()


def test_the_last_program_s_masked_lanes_are_seen_on_every_screen(page: Page) -> None:
    figure = page.locator("#program_map")
    slider = figure.locator("input")
    slider.focus()
    page.keyboard.press("End")
    assert "2 lanes masked off" in figure.locator("output").inner_text()
    dashed = figure.locator('g[data-frame="4"] .kw-masked').bounding_box()
    frame = figure.locator(".kw-scroll").bounding_box()
    assert dashed is not None and frame is not None
    assert dashed["x"] + dashed["width"] <= frame["x"] + frame["width"]


def test_nothing_is_left_behind_in_the_page(page: Page) -> None:
    before = set(page.evaluate("Object.keys(window)"))
    blank = set(
        page.evaluate(
            """() => {
              const frame = document.createElement("iframe");
              document.body.append(frame);
              const names = Object.keys(frame.contentWindow);
              frame.remove();
              return names;
            }"""
        )
    )
    assert not {name for name in before - blank if not name.isdigit()}


def test_without_script_it_says_something_and_offers_nothing_dead(
    browser: Browser,
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_content(access_map(traced())._repr_html_())
    assert page.locator("svg .kw-used").first.is_visible()
    assert (
        "Each of 1,024 elements is stored once"
        in page.locator("figcaption").inner_text()
    )
    assert not page.locator("input").is_visible()
    assert not page.locator("button").is_visible()
    context.close()
