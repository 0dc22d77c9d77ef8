"""Messages for learners: what was got, what was wanted, how to mend it."""

from __future__ import annotations

import math
import re
from typing import Any

from autograder.exercise import Exercise, Output
from autograder.judge.values import Wrong
from autograder.worker.tensors import dtype_name

# Terminal escapes (colours, titles, cursor moves), whole, before single controls go.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.?)")
_CONTROL = re.compile(
    "[\ud800-\udfff\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)


def clean(text: object, limit: int = 4000) -> str:
    """Return text from an untrusted process without what a terminal would obey."""
    if not isinstance(text, str):
        return ""
    if len(text) > limit:
        text = text[:limit] + " …"
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", _ESCAPE.sub("", text))


def whole(value: object) -> int:
    """Return a small whole number that an untrusted process sent, else 0."""
    return value if type(value) is int and 0 <= value < 1 << 31 else 0


def trouble_message(trouble: dict[str, Any], exercise: Exercise) -> str:
    """Say what went wrong in a worker, on the learner's line where it has one."""
    message = clean(trouble.get("message"))
    line = whole(trouble.get("line"))
    cell = clean(trouble.get("cell"), 100)
    where = f"line {line}" if line else ""
    if where and cell and cell != exercise.id:
        where += f" of the cell of {cell}, which this exercise needs"
    text = clean(trouble.get("text"), 200).strip()
    if where and text:
        where += f" (`{text}`)"
    # Compilers and the emulator name the line themselves: once is enough.
    said = where == f"line {line}" and re.search(rf"\bline {line}\b", message)
    if not where or said or message.startswith("line "):
        return message
    return f"{where}: {message}"


def show(value: float | int | bool, bits: int = 0) -> str:
    """Show a number so that two that differ look different; in hex where it is bits."""
    if bits and isinstance(value, int):
        return f"{value % 2**bits:#0{bits // 4 + 2}x}"
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            return str(value)
        return f"{value:.9g}"
    return str(value)


def wrong_message(wrong: Wrong, case: str, element: str, writer: str) -> str:
    """Say where an output is first wrong, what stands there, and who wrote it."""
    count, total = int(wrong.wrong.sum()), wrong.wrong.numel()
    expected = show(wrong.expected, wrong.bits)
    if bool(wrong.untouched[wrong.index]):
        what = f"{element} was never written; wanted {expected}"
    elif wrong.read_first:
        what = (
            f"{element} was read before it was written, as += reads it, and holds "
            f"nothing yet; wanted {expected}: write with ="
        )
    else:
        what = f"{element} is {show(wrong.got, wrong.bits)}; wanted {expected}"
    if total == 1:
        share = ""
    elif count == total:
        share = f" All {total:,} elements are wrong."
    else:
        share = (
            f" {count:,} of {total:,} elements {'is' if count == 1 else 'are'} wrong."
        )
    tail = f" {writer}" if writer else ""
    return f"With {case}: {what}.{share}{tail}"


def writer_words(writer: list[list[int]]) -> str:
    """Say which block and thread wrote the element."""
    block, thread = (_index(part) for part in writer)
    return f"Block {block}, thread {thread} wrote it."


def return_trouble(
    exercise: Exercise,
    returned: list[Any],
    wanted: dict[str, Output],
    device: str,
) -> str:
    """Say how what a function returned differs from what it should; '' if it fits."""
    if len(returned) != len(wanted):
        got = f"{len(returned)} values"
        plural = "" if len(wanted) == 1 else "s"
        return f"{exercise.name} returned {got}; wanted {len(wanted)} tensor{plural}."
    for item, (name, output) in zip(returned, wanted.items(), strict=True):
        item = item if isinstance(item, dict) else {}
        shape = "x".join(map(str, output.shape)) or "one element"
        full = (
            f"a {dtype_name(output.dtype)} tensor of shape {output.shape} on {device}"
        )
        kind = clean(item.get("type"), 100)
        if kind != "Tensor":
            article = "None" if kind == "NoneType" else f"a {kind}"
            mend = " Is there a return?" if kind == "NoneType" else ""
            return f"{exercise.name} returned {article}; wanted {full}.{mend}"
        got_dtype = clean(item.get("dtype"), 40)
        if got_dtype != dtype_name(output.dtype):
            return (
                f"{exercise.name} returned {name} as {got_dtype}; wanted "
                f"{dtype_name(output.dtype)}."
            )
        got_shape = item.get("shape")
        if got_shape != list(output.shape):
            seen = clean(str(got_shape), 100).strip("[]")
            return (
                f"{exercise.name} returned {name} with shape ({seen}); wanted "
                f"{output.shape}, {shape}."
            )
        if item.get("device") != device:
            return (
                f"{exercise.name} returned {name} on {clean(item.get('device'), 20)}; "
                f"wanted {device}, where its inputs are."
            )
    return ""


def not_by_kernels(answer: dict[str, Any], name: str, right: bool) -> str:
    """Say that something else than Triton kernels made what came back; '' if they did.

    Args:
        answer: a worker's, with its launches and where their numbers came from.
        name: the function's.
        right: whether the values are; a wrong answer has its own message, unless
            nothing was launched at all.
    """
    if not whole(answer.get("launches")):
        begin = (
            "the values are right, and no Triton kernel made them: " if right else ""
        )
        # A launch is noted, whatever its grid; it counts once a program begins.
        if answer.get("kernels"):
            return (
                f"{begin}your Triton kernel was launched on a grid of 0 programs, so "
                "nothing ran. `//` rounds down, to 0 where one program has all the "
                "work: triton.cdiv rounds up."
            )
        return (
            f"{begin}no Triton kernel was launched. Call yours with its grid, "
            "kernel[(programs,)](...), whatever the size, and return the tensor that "
            "it wrote. How many programs there are is rounded up: triton.cdiv."
        )
    found = answer.get("origins")
    if not right or not isinstance(found, dict) or not found:
        return ""
    kernel, given = clean(found.get("kernel"), 100), clean(found.get("name"), 100)
    if found.get("kind") == "argument":
        return (
            "the values are right, and your kernels did not make all of them: "
            f"{kernel} is given {given}, which is no input and which no kernel wrote. "
            "Give your kernels the inputs, and let them compute the rest."
        )
    if found.get("kind") == "numbers":
        return (
            f"the values are right, and {kernel} is handed them as numbers. Give your "
            "kernels the inputs, and let them compute what they store."
        )
    return (
        f"the values are right, and they are not what a kernel stored: {name} returns "
        "something else. Return the tensor that your kernel wrote."
    )


def not_its_own(answer: dict[str, Any], exercise: Exercise) -> str:
    """Say which of torch's operations did the exercise; '' if none did."""
    listed = answer.get("operations")
    ran = [n for n in listed if isinstance(n, str)] if isinstance(listed, list) else []
    for wanted in exercise.structure:
        for part in wanted.runs_no:
            if name := next((name for name in ran if part in name), ""):
                return wanted.message or (
                    f"the values are right, and torch's {clean(name, 100)} made them: "
                    "write out what it does."
                )
    return ""


def _index(part: list[int]) -> str:
    used = part[: 1 + max((i for i, v in enumerate(part) if v), default=0)]
    return str(used[0]) if len(used) == 1 else f"({', '.join(map(str, used))})"
