"""The page of the ``kw::`` headers: its examples compile, its signatures are theirs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kernelwright as kw
from kernelwright.cuda.source import find_kernels

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "book/kw.md").read_text()
HEADERS = "\n".join(
    path.read_text() for path in sorted((ROOT / "kernelwright/include/kw").glob("*"))
)
EXAMPLES = re.findall(r"^```cuda\n(.*?)^```", PAGE, re.M | re.S)
SIGNATURES = [
    signature
    for block in re.findall(r"^```c\+\+\n(.*?)^```", PAGE, re.M | re.S)
    for signature in block.strip().split("\n\n")
]
# What a header's text has and the page leaves out, being the same everywhere.
NOISE = re.compile(
    r"__device__ |__forceinline__ |inline | KW_LINE_PARAMETER|"
    r", int line = __builtin_LINE\(\)"
)


def plain(text: str) -> str:
    """Return the text with each blank as one, and without what the page leaves out."""
    return re.sub(r"([(\[]) | (?=[)\]])", r"\1", " ".join(NOISE.sub("", text).split()))


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda s: find_kernels(s)[0].name)
def test_an_example_compiles_on_the_emulator_and_for_a_gpu(source: str) -> None:
    kernel = kw.cuda.compile(source, backend="emulator")[find_kernels(source)[0].name]
    try:
        assert kernel.resources("sm_90").spill_bytes == 0
    except kw.ToolchainError as error:
        pytest.skip(f"compiled on the emulator alone: {error}")


@pytest.mark.parametrize("signature", SIGNATURES)
def test_a_signature_is_the_header_s(signature: str) -> None:
    assert plain(signature) in plain(HEADERS), f"no header has: {signature}"


def test_what_the_exercises_use_is_on_it() -> None:
    cells = "".join(path.read_text() for path in (ROOT / "chapters").glob("*.md"))
    used = set(re.findall(r"\bkw::(\w+)", cells))
    assert len(used) > 20
    assert {name for name in used if not re.search(rf"\b{name}\b", PAGE)} == set()
