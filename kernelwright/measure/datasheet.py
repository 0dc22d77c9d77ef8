"""Peak rates by the vendor's data sheets: nothing measured may lie above them."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Sheet:
    """One line of a data sheet.

    Args:
        pattern: regular expression of the name that the driver reports.
        memory_gbps: memory bandwidth in GB/s; where one name was sold with two
            memories, the faster.
        fp32_tflops: float32 outside the matrix units; ``None`` where not stated.
        half_tflops: dense float16 or bfloat16 matrix rate with float32 sums.
        source: the document.
    """

    pattern: str
    memory_gbps: float
    fp32_tflops: float | None
    half_tflops: float | None
    source: str


def _sheet(
    pattern: str, memory: float, fp32: float | None, half: float | None, source: str
) -> Sheet:
    return Sheet(pattern, memory, fp32, half, f"NVIDIA {source}")


def _geforce(name: str, memory: float, fp32: float) -> Sheet:
    # GeForce pages state matrix rates with sparsity and half sums: left out.
    return _sheet(
        rf"GeForce RTX {name}$",
        memory,
        fp32,
        None,
        f"GeForce RTX {name} specifications",
    )


# The first pattern that fits decides, so the narrower stands before the wider.
SHEETS: tuple[Sheet, ...] = (
    _sheet(r"\bGH200 144G", 4900, 67, 989.5, "GH200 data sheet"),
    _sheet(r"\bGH200\b", 4000, 67, 989.5, "GH200 data sheet"),
    _sheet(r"\bG?B200\b", 8000, 80, 2250, "DGX B200 data sheet"),
    _sheet(r"\bH200 NVL\b", 4800, 60, 835.5, "H200 data sheet"),
    _sheet(r"\bH200\b", 4800, 67, 989.5, "H200 data sheet"),
    _sheet(r"\bH100 NVL\b", 3938, 60, 835.5, "H100 NVL product brief"),
    _sheet(r"\bH100 PCIe\b", 2039, 51, 756, "H100 data sheet"),
    _sheet(r"\bH100 80GB HBM3\b", 3352, 67, 989.5, "H100 data sheet"),
    _sheet(r"\bA100-SXM4-80GB\b", 2039, 19.5, 312, "A100 data sheet"),
    _sheet(r"\bA100 80GB PCIe\b", 1935, 19.5, 312, "A100 data sheet"),
    _sheet(r"\bA100-(SXM4|PCIE)-40GB\b", 1555, 19.5, 312, "A100 data sheet"),
    _sheet(r"\bA30\b", 933, 10.3, 165, "A30 data sheet"),
    _sheet(r"\bA40\b", 696, 37.4, 149.7, "A40 data sheet"),
    _sheet(r"\bA10G\b", 600, None, None, "A10 data sheet"),
    _sheet(r"\bA10\b", 600, 31.2, 125, "A10 data sheet"),
    _sheet(r"\bL40S\b", 864, 91.6, 362, "L40S data sheet"),
    _sheet(r"\bL40\b", 864, 90.5, 181, "L40 data sheet"),
    _sheet(r"\bL4\b", 300, 30.3, 121, "L4 data sheet"),
    _sheet(r"\bT4\b", 320, 8.1, 65, "T4 data sheet"),
    _sheet(r"RTX 6000 Ada", 960, 91.1, None, "RTX 6000 Ada data sheet"),
    _sheet(r"RTX A6000$", 768, 38.7, None, "RTX A6000 data sheet"),
    _sheet(r"RTX A5000$", 768, 27.8, None, "RTX A5000 data sheet"),
    _sheet(r"RTX A4000$", 448, 19.2, None, "RTX A4000 data sheet"),
    _geforce("2080 Ti", 616, 14.2),
    _geforce("3050", 224, 9.1),
    _geforce("3060 Ti", 608, 16.2),
    _geforce("3060", 360, 12.7),
    _geforce("3070 Ti", 608, 21.7),
    _geforce("3070", 448, 20.3),
    _geforce("3080 Ti", 912, 34.1),
    _geforce("3080", 912, 30.6),
    _geforce("3090 Ti", 1008, 40.0),
    _geforce("3090", 936, 35.6),
    _geforce("4060 Ti", 288, 22.1),
    _geforce("4060", 272, 15.1),
    _geforce("4070 Ti SUPER", 672, 44.1),
    _geforce("4070 Ti", 504, 40.1),
    _geforce("4070 SUPER", 504, 35.5),
    _geforce("4070", 504, 29.1),
    _geforce("4080 SUPER", 736, 52.2),
    _geforce("4080", 717, 48.7),
    _geforce("4090", 1008, 82.6),
    _geforce("5070 Ti", 896, 43.9),
    _geforce("5070", 672, 30.9),
    _geforce("5080", 960, 56.3),
    _geforce("5090", 1792, 104.8),
)


def find_sheet(name: str) -> Sheet | None:
    """Return the data sheet of a GPU by the driver's name for it, if it is known.

    A laptop's chip shares its name with a faster desktop's, and is unknown here.
    """
    if re.search(r"laptop|mobile|max-q|\bMIG\b", name, re.I):
        return None
    for sheet in SHEETS:
        if re.search(sheet.pattern, name.strip(), re.I):
            return sheet
    return None


def family_of(capability: tuple[int, int]) -> str:
    """Name the generation of a compute capability: ``hopper`` for (9, 0)."""
    major, minor = capability
    if (major, minor) >= (10, 0):
        return "blackwell"
    if major == 9:
        return "hopper"
    if (major, minor) >= (8, 9):
        return "ada"
    if major == 8:
        return "ampere"
    if (major, minor) >= (7, 5):
        return "turing"
    return "older"
