"""What to do about a compiler's message: the slips that learners of CUDA make."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace

from kernelwright.errors import Diagnostic

# Names that need an #include, and which.
_HEADERS = (
    (r"(?:__)?(?:half2?|\w*half2?\w*)", "cuda_fp16.h"),
    (r"(?:__)?nv_bfloat162?|\w*bfloat16\w*", "cuda_bf16.h"),
    (r"nvcuda|wmma", "mma.h"),
    (r"cooperative_groups|cg", "cooperative_groups.h"),
    (r"CUDART_\w+", "math_constants.h"),
)
_HOST_API = re.compile(r"(?:cuda|cublas|cudnn|cu)[A-Z]\w*")
_HEADERS_HERE = (
    "cuda_fp16.h, cuda_bf16.h, mma.h, cooperative_groups.h, cuda/std/cstdint, "
    "math_constants.h and <kw/…>"
)
# An instruction of inline PTX and the wrapper that runs on both back ends.
_WRAPPERS = (
    (r"cp\.async\.bulk|wgmma|mbarrier|setmaxnreg|tensormap", None),
    (r"cp\.async", "kw::cp_async from <kw/cp_async.cuh>"),
    (r"ldmatrix", "kw::ldmatrix from <kw/ldmatrix.cuh>"),
    (r"\bmma\.", "kw::mma_sync from <kw/mma.cuh>"),
    (r"%laneid", "threadIdx.x % 32"),
    (r"%clock", "clock64()"),
)
# Macros here, which clang does not offer when a name is nearly one of them.
_MACROS = ("threadIdx", "blockIdx", "blockDim", "gridDim", "printf", "assert")
# What compiles and is hardly meant, as g++ and clang call it, and what it does.
_SLIPS = (
    (
        r"empty body",
        "the ';' ends this statement: what follows is no part of it",
    ),
    (
        r"assignment (?:used as truth value|as a condition)",
        "'=' assigns; to compare, write '=='",
    ),
    (
        r"comparisons like",
        "a < b < c compares (a < b), which is 0 or 1, with c: write a < b && b < c",
    ),
    (
        r"comparison in operand of '(?:&|\||\^)'|^[&|^] has lower precedence than",
        "'&', '|' and '^' bind weaker than a comparison: put them in parentheses",
    ),
    (
        r"logical not is only applied",
        "'!' binds stronger than a comparison: write !(a == b), or a != b",
    ),
    (
        r"ambiguous 'else'|dangling else",
        "this else belongs to the nearest if: put braces around what is meant",
    ),
    (
        r"has no effect|result unused|value computed is not used",
        "this computes a value and drops it: to store it, assign it",
    ),
)
_STYLE = (
    r"'&&' within '\|\|'|(?:inside|in operand of) '(?:<<|>>)'"
    r"|operator '(?:<<|>>)' has lower precedence"
)
_HOW_TO_SILENCE = re.compile(
    r"silence this warning|evaluate it first|evaluate the comparison first"
    r"|turn this (?:assignment|equality)|put the semicolon"
)
_UNKNOWN = re.compile(
    r"'(?P<name>[\w:]+)' (?:was not declared|does not name a type"
    r"|has not been declared|is not a (?:member|class))"
    r"|(?:undeclared identifier|unknown type name) '(?P<b>\w+)'"
)


# Names that are macros here, in the words of g++, which shows what they stand for.
_BUILT_IN = re.compile(
    r"(?:uint3|dim3)[{(]kwemu_(thread|block|block_dim|grid_dim)_x\(\)[^)}]*"
    r"(?:\(\)[^)}]*){2}[)}]"
)
_BUILT_INS = {
    "thread": "threadIdx",
    "block": "blockIdx",
    "block_dim": "blockDim",
    "grid_dim": "gridDim",
}
# `x[i]`, likewise.
_ELEMENT = re.compile(
    r"\*\((\w+) \+ \(\(sizetype\)\("
    r"(?:\(\(long unsigned int\)(.+?)\)|(.+?)) \* \d+\)\)\)"
)
# What is left of either, quoted.
_INTERNAL = re.compile(r"'[^']*(?:\bsizetype\b|\bkwemu_)[^']*'")
# What types that do not fit show, and what to do about it.
_TYPES = (
    (
        r"'(?:const )?(?:uint3|dim3)'",
        "threadIdx, blockIdx, blockDim and gridDim are three numbers each: take one, "
        "with .x, .y or .z",
    ),
    (
        r"^(?:no match for 'operator|invalid operands to binary).*"
        r"'(?:const )?(?:float|double|u?int)[234]'",
        "a vector cannot be computed with as a whole: compute with each of its parts, "
        ".x, .y and so on",
    ),
    (
        r"^request for member .* non-class type '[^']*\*'",
        "an array is given to a kernel as an address, which does not know how many "
        "elements there are",
    ),
    (
        r"^invalid operands of types '[^']*\*'|"
        r"^cannot convert '\w+' to '[^']*\*' in assignment",
        "an array's name is its address: to mean an element, index it, as x[i]",
    ),
    (
        r"^invalid types '[^']*\*\[(?:float|double)\]' for array subscript",
        "an index is a whole number: make it an int",
    ),
    (r"casts away qualifiers", "what is const stays so: cast to a const type, too"),
    (r"cannot be used as a function", "index an array with [ ], and multiply with *"),
)


def mend(diagnostic: Diagnostic, lines: list[str]) -> Diagnostic | None:
    """Return the diagnostic in a learner's words; None to leave it out.

    Args:
        diagnostic: what the compiler said, on the author's line.
        lines: the author's source.
    """
    text = _without_internals(diagnostic.message)
    if "kwemu_" in text and diagnostic.severity == "note":
        return None
    text = _INTERNAL.sub("what stands here", text)
    diagnostic = replace(diagnostic, message=text)
    if diagnostic.severity == "note" and _HOW_TO_SILENCE.search(text):
        return None
    if diagnostic.severity == "warning":
        return _remark(diagnostic)
    if diagnostic.severity != "error":
        return diagnostic
    line = lines[diagnostic.line - 1] if 0 < diagnostic.line <= len(lines) else ""
    if "<<<" in line and re.search(r"expected (?:primary-)?expression", text):
        return replace(
            diagnostic,
            message="a kernel is launched from Python here, as "
            "kernel[grid, block](…), not with <<<…>>>",
        )
    moved = _missing_semicolon(diagnostic, lines)
    if moved is not None:
        return moved
    advice = _advice(text)
    if advice:
        return replace(diagnostic, message=f"{text}: {advice}")
    return diagnostic


def _remark(diagnostic: Diagnostic) -> Diagnostic | None:
    """Say what a slip does; None where it is a matter of style."""
    if re.search(_STYLE, diagnostic.message):
        return None
    for pattern, words in _SLIPS:
        if re.search(pattern, diagnostic.message):
            return replace(diagnostic, message=words)
    return diagnostic


def about_asm(diagnostic: Diagnostic, lines: list[str]) -> Diagnostic:
    """Name the wrapper for the inline PTX on a diagnostic's line."""
    ptx = "\n".join(lines[diagnostic.line - 1 : diagnostic.line + 4])
    advice = "write it in CUDA C++"
    for pattern, wrapper in _WRAPPERS:
        if re.search(pattern, ptx):
            advice = (
                f"use {wrapper}, which runs on a GPU and here"
                if wrapper
                else "what only Hopper has runs on a GPU only"
            )
            break
    message = f"inline asm is PTX, which the emulator cannot run: {advice}"
    return replace(diagnostic, message=message)


def _without_internals(text: str) -> str:
    text = re.sub(
        r"[;,] did you mean '[^']*kwemu[^']*'\?|\(did you mean[^)]*kwemu[^)]*\)",
        "",
        text,
    )
    text = re.sub(r"('cuda[A-Z]\w*' was not declared .*?); did you mean.*", r"\1", text)
    text = text.replace("kwemu_printf", "printf")
    text = _BUILT_IN.sub(lambda found: _BUILT_INS[found[1]], text)
    text = re.sub(r"\.(?:uint3|dim3)::(?=[xyz]\b)", ".", text)
    text = _ELEMENT.sub(lambda f: f"{f[1]}[{(f[2] or f[3]).strip('()')}]", text)
    text = re.sub(r" \{aka '?kwemu_[^}]*\}| \(aka 'kwemu_[^)]*\)", "", text)
    text = re.sub(r"\bkwemu_\w+::", "", text)
    # clang repeats the condition; what it means stands behind the colon.
    text = re.sub(r"static assertion failed(?: due to requirement '.*')?: ", "", text)
    return text


def _advice(text: str) -> str:
    missing = re.search(r"(?:^|')([\w/.+-]+)'?(?: file not found|: No such file)", text)
    if missing:
        name = missing.group(1)
        if name in ("cuda/barrier", "cuda/pipeline", "cuda/ptx", "cudaTypedefs.h"):
            return (
                "this header runs on a GPU only; asynchronous copies are in "
                "<kw/cp_async.cuh>"
            )
        return f"the emulator has {_HEADERS_HERE}"
    unknown = _UNKNOWN.search(text)
    if unknown:
        name = unknown["name"] or unknown["b"]
        if _HOST_API.fullmatch(name):
            return "memory and launches belong to Python here; keep only device code"
        if "did you mean" not in text:
            return _about_name(name)
    for pattern, words in _TYPES:
        if re.search(pattern, text):
            return words
    if re.match(r"assignment of read-only|read-only variable", text):
        return "what is const can be read, not written"
    if "ambiguous" in text and re.search(r"half|bfloat16", text):
        return "convert one side first, with __half2float or __float2half"
    if text.startswith("no matching function for call to"):
        return "no version of it takes arguments of these types"
    if text.startswith("expected '}'"):
        return "a brace that was opened is not closed"
    return ""


def _about_name(name: str) -> str:
    for pattern, header in _HEADERS:
        if re.fullmatch(pattern, name):
            return f"add #include <{header}>"
    near = difflib.get_close_matches(name, _MACROS, 1, 0.8)
    return f"did you mean '{near[0]}'?" if near else ""


def _missing_semicolon(diagnostic: Diagnostic, lines: list[str]) -> Diagnostic | None:
    """Move ``expected ';'`` from the line after to the line that lacks it."""
    if not re.match(r"expected (?:',' or )?';'", diagnostic.message):
        return None
    number, column = diagnostic.line, diagnostic.column
    if not 0 < number <= len(lines):
        return None
    if not lines[number - 1][: max(column - 1, 0)].strip():
        before = number - 1
        while before > 0 and not lines[before - 1].strip():
            before -= 1
        if before > 0:
            number, column = before, len(lines[before - 1].rstrip()) + 1
    return replace(
        diagnostic,
        line=number,
        column=column,
        message="expected ';' at the end of the statement",
    )
