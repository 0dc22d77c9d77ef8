"""The wire: what is taken from an untrusted process, and what is refused."""

from __future__ import annotations

import json
import os

import pytest
import torch

from autograder.judge.words import clean
from autograder.supervisor.link import Capture
from autograder.worker.tensors import DTYPES, Guarded, from_bytes, span, to_bytes
from autograder.worker.wire import (
    WireError,
    pack,
    parse_header,
    read_message,
    write_message,
)


def test_a_message_comes_back_as_it_went() -> None:
    reader, writer = os.pipe()
    write_message(writer, {"op": "run", "x": [1, 2.5, "ä"]}, [b"abc", b"", b"\x00"])
    header, blobs = read_message(reader)
    assert header == {"op": "run", "x": [1, 2.5, "ä"], "blobs": [3, 0, 1]}
    assert blobs == [b"abc", b"", b"\x00"]
    os.close(writer)
    with pytest.raises(EOFError):
        read_message(reader)
    os.close(reader)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "is not an object"),
        (b"{}", "does not list its blobs"),
        (b'{"blobs": [-1]}', "does not list its blobs"),
        (b'{"blobs": [true]}', "does not list its blobs"),
        (b'{"blobs": [1.5]}', "does not list its blobs"),
        (b'{"blobs": 3}', "does not list its blobs"),
        (b"[" * 100_000, "nests too deep"),
        (b'{"a":' * 50_000, "nests too deep"),
    ],
)
def test_a_header_that_is_none(text: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        parse_header(text)


def test_brackets_in_a_string_are_no_depth() -> None:
    text = json.dumps({"blobs": [], "s": '[[{"' * 100}).encode()
    assert parse_header(text)["s"] == '[[{"' * 100


def test_nan_never_travels_as_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        pack({"x": float("nan")})


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_tensors_as_bytes(dtype: torch.dtype) -> None:
    values = torch.arange(6).to(dtype).reshape(2, 3)
    again = from_bytes(to_bytes(values), dtype, (2, 3))
    assert torch.equal(values, again) and again.dtype is dtype
    assert to_bytes(values.T) != to_bytes(values) or dtype is torch.bool
    assert from_bytes(b"", dtype, (0, 3)).shape == (0, 3)


def test_a_strided_tensor_is_laid_out_as_it_was() -> None:
    values = torch.arange(24.0).reshape(4, 6)[:, ::2].T
    stretch, length = span(values)
    assert length == 1 + 2 * 2 + 3 * 6
    spec = {
        "name": "x",
        "dtype": "float32",
        "shape": list(values.shape),
        "strides": list(values.stride()),
    }
    guarded = Guarded.place(spec, bytearray(to_bytes(stretch)), "cpu")
    assert torch.equal(guarded.tensor, values)
    assert guarded.tensor.stride() == values.stride()


def test_guards_tell_on_which_side() -> None:
    spec = {"name": "x", "dtype": "float32", "shape": [3], "strides": [1]}
    guarded = Guarded.place(spec, bytearray(12), "cpu")
    assert guarded.trespass() == []
    guarded.tensor.as_strided((4,), (1,))[3] = 1.0
    assert guarded.trespass() == ["behind"]


def test_what_is_printed_is_kept_in_part() -> None:
    capture = Capture()
    for number in range(100_000):
        capture.add(b"line %d\n" % number)
    text = capture.text()
    assert text.startswith("line 0\nline 1\n") and text.endswith("line 99999\n")
    assert "bytes left out" in text and len(text) < 70_000
    assert capture.total == sum(len(b"line %d\n" % n) for n in range(100_000))


def test_the_last_words_of_a_damaged_heap_are_not_the_answers() -> None:
    capture = Capture()
    capture.add(b"free as a bird\nfree(): invalid pointer\n")
    assert "invalid" in capture.text()
    assert capture.of_the_answer() == "free as a bird\n"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b", ""),
        ("a\rb", "a\nb"),
        ("a\x00\x08\x7f\x9b31mb", "a31mb"),
        ("ab\u202ecd\u2066", "abcd"),
        (3, ""),
        (None, ""),
    ],
)
def test_nothing_that_a_terminal_obeys_is_shown(text: object, left: str) -> None:
    assert clean(text) == left


def test_long_text_is_cut() -> None:
    assert clean("x" * 100, 10) == "x" * 10 + " …"
