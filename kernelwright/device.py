"""Which machine is this: a GPU or the emulator, and what it can do at best."""

from __future__ import annotations

import datetime
import html
import json
import os
import platform
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

import torch

from kernelwright.cache import cached, digest
from kernelwright.measure.ceilings import copy_bandwidth, matmul_rate
from kernelwright.measure.cores import (
    cache_bytes,
    cpu_cores,
    cpu_name,
    memory_available,
)
from kernelwright.measure.datasheet import Sheet, family_of, find_sheet
from kernelwright.measure.driver import driver_version
from kernelwright.measure.units import show_bytes, show_rate

_EMULATED = (
    "No GPU: kernels run under the emulator, on the CPU. Whether they are right is "
    "judged here; how fast a GPU would run them is not measured."
)


@dataclass(frozen=True)
class Ceilings:
    """What was measured on this machine, and when.

    Args:
        copy_gbps: bytes read plus bytes written by a large copy, in GB/s.
        matmul_tflops: rate of a large matrix product, in TFLOP/s.
        matmul_dtype: the type of its elements.
        measured: the day, as ``2026-11-21``.
    """

    copy_gbps: float
    matmul_tflops: float
    matmul_dtype: str
    measured: str


@dataclass(frozen=True, repr=False)
class Device:
    """The machine that runs the kernels.

    Args:
        is_gpu: whether kernels run on a GPU; else the emulator runs them.
        name: the GPU's name, or the CPU's.
        memory_bytes: the GPU's memory, or what is free of the machine's.
        cache_bytes: the GPU's L2, or the CPU's last-level cache.
        cores: CPU cores that this process may use.
        ceilings: what was measured here.
        capability: compute capability, such as (9, 0).
        sms: streaming multiprocessors.
        driver: version of the GPU's driver.
        cuda: version of CUDA that torch was built with.
        sheet: the vendor's peaks, where this GPU is known.
    """

    is_gpu: bool
    name: str
    memory_bytes: int
    cache_bytes: int
    cores: int
    ceilings: Ceilings
    capability: tuple[int, int] | None = None
    sms: int | None = None
    driver: str | None = None
    cuda: str | None = None
    sheet: Sheet | None = None

    @property
    def kind(self) -> str:
        """``GPU`` or ``emulator``."""
        return "GPU" if self.is_gpu else "emulator"

    @property
    def family(self) -> str | None:
        """The generation of the GPU, such as ``hopper``."""
        return family_of(self.capability) if self.capability else None

    @property
    def copy_gbps(self) -> float:
        """Measured copy bandwidth in GB/s: bytes read plus bytes written."""
        return self.ceilings.copy_gbps

    def rows(self) -> list[tuple[str, str]]:
        """Return what there is to say, as pairs of a name and a value."""
        ceilings = self.ceilings
        rows = [("kernels run on", self.name)]
        if not self.is_gpu:
            rows[0] = ("kernels run on", f"the emulator, on {self.name}")
        rows.append(("CPU cores", str(self.cores)))
        if self.capability and self.sms:
            major, minor = self.capability
            rows.append(("compute capability", f"{major}.{minor} ({self.family})"))
            rows.append(("multiprocessors", str(self.sms)))
            rows.append(("memory", show_bytes(self.memory_bytes)))
            rows.append(("L2 cache", show_bytes(self.cache_bytes)))
            rows.append(("driver, CUDA", f"{self.driver or 'unknown'}, {self.cuda}"))
        else:
            rows.append(("last-level cache", show_bytes(self.cache_bytes)))
        copy = show_rate(ceilings.copy_gbps * 1e9, "B")
        if self.sheet is not None:
            share = ceilings.copy_gbps / self.sheet.memory_gbps
            peak = show_rate(self.sheet.memory_gbps * 1e9, "B")
            copy += f", {share:.0%} of {peak} ({self.sheet.source})"
        rows.append(("copy bandwidth, measured", copy))
        matmul = show_rate(ceilings.matmul_tflops * 1e12, "FLOP")
        rows.append((f"matmul {ceilings.matmul_dtype}, measured", matmul))
        return rows

    def __repr__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {value}" for name, value in rows]
        if not self.is_gpu:
            lines.append(_EMULATED)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in self.rows()
        )
        note = "" if self.is_gpu else f"<p>{html.escape(_EMULATED)}</p>"
        return f"<table>{cells}</table>{note}"


def device(*, remeasure: bool = False) -> Device:
    """Say which machine this is, with its ceilings measured.

    The first call on a machine measures for about half a second and keeps the
    result in the cache on disk.

    Args:
        remeasure: measure again, as after another program has left the GPU.

    Returns:
        The GPU, or the emulator on this CPU.
    """
    if remeasure:
        _device.cache_clear()
    from kernelwright.cuda import backend

    return _device(backend() == "gpu", remeasure)


@cache
def _device(on_gpu: bool, remeasure: bool) -> Device:
    """Gather the facts once a process."""
    return _gpu(remeasure) if on_gpu else _cpu(remeasure)


def _gpu(remeasure: bool) -> Device:
    """Describe the current GPU."""
    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    driver = driver_version()
    identity = digest(
        "gpu", str(facts.uuid), facts.name, driver or "", torch.__version__
    )
    return Device(
        is_gpu=True,
        name=facts.name,
        memory_bytes=facts.total_memory,
        cache_bytes=facts.L2_cache_size,
        cores=cpu_cores(),
        ceilings=_ceilings("cuda", identity, remeasure),
        capability=(facts.major, facts.minor),
        sms=facts.multi_processor_count,
        driver=driver,
        cuda=torch.version.cuda,
        sheet=find_sheet(facts.name),
    )


def _cpu(remeasure: bool) -> Device:
    """Describe the CPU that the emulator runs on."""
    cores = cpu_cores()
    identity = digest("cpu", platform.node(), cpu_name(), str(cores), torch.__version__)
    return Device(
        is_gpu=False,
        name=cpu_name(),
        memory_bytes=memory_available(),
        cache_bytes=cache_bytes(),
        cores=cores,
        ceilings=_ceilings("cpu", identity, remeasure),
    )


def _ceilings(place: str, identity: str, remeasure: bool) -> Ceilings:
    """Return the ceilings from the disk, measured first if they are not there."""
    try:
        path = cached("device", identity, ".json", partial(_measure_into, place))
        if remeasure:
            scratch = path.with_name(f".{path.name}.{os.getpid()}")
            _measure_into(place, scratch)
            os.replace(scratch, path)
        return Ceilings(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        # No place to write, or an older edition's file: measured, and not kept.
        return measure_ceilings(place)


def _measure_into(place: str, path: Path) -> None:
    """Measure the ceilings and write them to a file."""
    path.write_text(json.dumps(asdict(measure_ceilings(place))))


def measure_ceilings(place: str) -> Ceilings:
    """Measure the copy bandwidth and the matmul rate of ``cuda`` or ``cpu``."""
    copy, matmul = copy_bandwidth(place), matmul_rate(place)
    assert copy.gbps is not None and matmul.tflops is not None
    return Ceilings(
        copy_gbps=copy.gbps,
        matmul_tflops=matmul.tflops,
        matmul_dtype=matmul.label.split()[1],
        measured=datetime.date.today().isoformat(),
    )
