"""Numbers as people read them: a unit, and no digit that means nothing."""

from __future__ import annotations

_TIMES = ((1e3, "s"), (1.0, "ms"), (1e-3, "µs"), (1e-6, "ns"))


def time_unit(ms: float) -> tuple[float, str]:
    """Return the unit in which a time reads best: its size in ms, and its name."""
    for size, name in _TIMES:
        if abs(ms) >= size:
            return size, name
    return _TIMES[-1]


def three_digits(value: float) -> str:
    """Write three significant digits, with thousands separated by commas."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.3g}"


def four_digits(value: float) -> str:
    """Write four significant digits: what a good timing resolves."""
    size = abs(value)
    if size >= 999.5:
        return f"{value:,.0f}"
    if size >= 99.95:
        return f"{value:.1f}"
    if size >= 9.995:
        return f"{value:.2f}"
    return f"{value:.3f}"


def show_time(ms: float) -> str:
    """Write a time with the unit that fits it: ``183.2 µs``."""
    size, name = time_unit(ms)
    return f"{four_digits(ms / size)} {name}"


def show_bytes(count: int) -> str:
    """Write a size in binary units, as memory is sold and cached: ``60 MiB``."""
    value = float(count)
    for name in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or name == "GiB":
            break
        value /= 1024
    text = f"{value:.1f}".removesuffix(".0") if value < 100 else f"{value:,.0f}"
    return f"{text} {name}"


def show_rate(per_second: float, unit: str) -> str:
    """Write a bandwidth or an arithmetic rate: ``4,283 GB/s``, ``51.2 TFLOP/s``.

    Args:
        per_second: bytes or floating-point operations a second.
        unit: ``B`` or ``FLOP``.
    """
    scale, prefix = (1e9, "G") if unit == "B" or per_second < 1e12 else (1e12, "T")
    return f"{three_digits(per_second / scale)} {prefix}{unit}/s"
