"""The built book in a real browser: a server of its own, Chromium, every page."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "_build/html"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {"phone": (390, 844), "desktop": (1280, 800)}


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing of it."""

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output free of one line a request."""


def built_pages() -> list[str]:
    """List the pages of text, as paths below the book's root."""
    pages = [*BUILT.glob("book/*.html"), *BUILT.glob("chapters/*.html")]
    return sorted(path.relative_to(BUILT).as_posix() for path in pages)


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """Serve the built book on a free port of this machine alone."""
    if not (BUILT / "book/index.html").exists():
        pytest.skip("THE BOOK IS NOT BUILT: run `make book` first")
    handler = partial(_Quiet, directory=str(BUILT))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start the machine's Chromium."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip(f"NO BROWSER: none of {', '.join(CHROMIUM)} is on the PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page that was opened, and what went on meanwhile."""

    page: Page
    site: str
    outside: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, name: str) -> None:
        """Go to a page of the book and wait until it has come to rest."""
        self.page.goto(f"{self.site}/{name}", wait_until="load")
        # MathJax sets after the load; a page without mathematics has none to set.
        self.page.evaluate("window.MathJax?.startup?.promise ?? null")

    def watch(self) -> None:
        """Note every request, failure and error from now on."""

        def seen(request: Request) -> None:
            ours = request.url.startswith((self.site, "data:", "blob:"))
            if not ours:
                self.outside.append(request.url)

        self.page.on("request", seen)
        self.page.on("requestfailed", lambda r: self.failed.append(r.url))
        self.page.on(
            "response",
            lambda r: self.failed.append(f"{r.status} {r.url}")
            if r.status >= 400
            else None,
        )
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on(
            "console",
            lambda m: self.errors.append(m.text) if m.type == "error" else None,
        )


@pytest.fixture(scope="session", params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> str:
    """One of the two themes, which follows what the reader's system prefers."""
    return str(request.param)


@pytest.fixture(scope="session", params=list(SIZES))
def size(request: pytest.FixtureRequest) -> str:
    """A phone's screen or a desktop's."""
    return str(request.param)


@pytest.fixture(scope="session")
def profile(browser: Browser, theme: str, size: str) -> Iterator[BrowserContext]:
    """Open a browser profile of the theme and size; its pages share a cache."""
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
    )
    yield context
    context.close()


@pytest.fixture(scope="session")
def plain_profile(browser: Browser) -> Iterator[BrowserContext]:
    """Open a profile with a desktop's screen and the light theme."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture
def visit(site: str, profile: BrowserContext) -> Iterator[Visit]:
    """Open a page in one theme and size, and watch it."""
    yield from _watched(site, profile)


@pytest.fixture
def desktop(site: str, plain_profile: BrowserContext) -> Iterator[Visit]:
    """Open a page on a desktop in the light theme, and watch it."""
    yield from _watched(site, plain_profile)


def _watched(site: str, profile: BrowserContext) -> Iterator[Visit]:
    opened = Visit(profile.new_page(), site)
    opened.watch()
    yield opened
    opened.page.close()
