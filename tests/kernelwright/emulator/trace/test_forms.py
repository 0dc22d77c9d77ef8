"""A report's two forms, in a terminal and in a page."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import torch

SOURCE = """__global__ void k(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[2 * i] < 1 ? 1 : 2;  // <script>
}"""


def test_the_terminal_form_has_every_access_and_problem(trace):
    report = trace(SOURCE, "k", 1, 64, torch.randn(128), torch.zeros(60), 60)
    text = str(report)
    assert "its one block traced" in text
    assert "8 sectors per request, ideal 4" in text
    assert "outside of out, which has 60 elements" in text
    assert all(len(line) < 200 for line in text.splitlines())


def test_the_page_is_well_formed_escaped_and_names_its_figures(trace):
    report = trace(SOURCE, "k", 1, 64, torch.randn(128), torch.zeros(60), 60)
    page = report._repr_html_()
    root = ElementTree.fromstring(page.replace("<br>", "<br/>"))
    text = "".join(root.itertext())
    assert "read x: 8 sectors, ideal 4" in text
    assert "out of bounds" in text
    assert "// <script>" in text
    assert "<script" not in page
    assert "http" not in page
    assert root.get("aria-label") == "Trace of k"
    assert "var(--kw-" in page
    clean = trace(SOURCE, "k", 1, 64, torch.randn(128), torch.zeros(64), 64)
    assert "no problems" in clean._repr_html_()
    assert "no problems found" in str(clean)


def test_a_long_source_shows_the_lines_that_matter(trace):
    source = "// nothing\n" * 200 + SOURCE
    page = trace(
        source, "k", 1, 32, torch.randn(128), torch.zeros(64), 64
    )._repr_html_()
    assert ">203<" in page
    assert ">100<" not in page


def test_the_head_of_a_page_tells_what_moved_from_what_it_is_in(trace):
    source = """__global__ void k(const float* x, float* out) {
    out[threadIdx.x] = x[8 * threadIdx.x];
}"""
    page = trace(source, "k", 1, 32, torch.ones(256), torch.zeros(32))._repr_html_()
    # 32 loads touch a sector each, and 32 stores fill four together.
    assert f"{36 * 32:,} bytes in the sectors that requests touched" in page
