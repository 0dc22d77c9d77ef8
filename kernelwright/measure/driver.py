"""The GPU driver's version, asked without starting CUDA."""

from __future__ import annotations

import ctypes


def driver_version() -> str | None:
    """Return the version of the NVIDIA driver, or ``None`` where there is none."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        text = ctypes.create_string_buffer(80)
        if nvml.nvmlSystemGetDriverVersion(text, 80) != 0:
            return None
        return text.value.decode("ascii", "replace")
    finally:
        nvml.nvmlShutdown()
