"""Read the truth off a GPU: ``python -m tests.golden.freeze [OUT [NAME …]]``.

Each clean kernel runs once under Nsight Compute; each kernel once under every tool of
compute-sanitizer. Counters and verdicts go to one JSON file with device, versions and
date. With names only these kernels are measured, and the rest is kept as it is stored.
Needs a GPU, ncu and compute-sanitizer; takes some minutes.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelwright.cuda.nvrtc import compile_cubin
from tests.golden.cases import CASES, CLEAN, Case

HERE = Path(__file__).parent
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
ARCH = "sm_90"

COUNTERS = {
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_load_requests": "smsp__inst_executed_op_shared_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared_store_requests": "smsp__inst_executed_op_shared_st.sum",
    "shared_load_conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
    ),
    "shared_store_conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
    ),
    "shared_ldsm": "smsp__inst_executed_op_ldsm.sum",
    # Of instructions, not of the pipe: for cp.async of 16 bytes the pipe's counter of
    # loads counts what is neither asked for nor fetched (test_disagreements.py).
    "load_sectors": "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "async_sectors": "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "async_copies": "smsp__inst_executed_op_ldgsts.sum",
    "global_atomic_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    "global_reduction_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
}
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
_KINDS = re.compile(
    r"={9} (?:Error: |Warning: )?(?:\([\w ]+\) )?("
    r"Invalid __\w+__ (?:read|write|atomic)|Misaligned \w+|Uninitialized __\w+__ memory"
    r"|Race reported between \w+ access|Potential \w+ hazard|Barrier error detected"
    r"|Invalid arguments|Divergent thread\(s\)[^.]*)"
)
_LINES = re.compile(r" in (?:\S*/)?\w+\.cu:(\d+)")


def main() -> None:
    """Compile, run, and write the frozen results."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "h200.json")
    chosen = [case for case in CASES if case.name in sys.argv[2:]] or list(CASES)
    measured = measure(chosen)
    report: dict = machine()
    kept: dict = {}
    if len(chosen) < len(CASES):
        before = json.loads((HERE / "h200.json").read_text())
        kept = before["kernels"]
        for key in ("device", "driver", "ncu", "compute_sanitizer", "arch"):
            if report[key] != before[key]:
                raise SystemExit(
                    f"{key} is {report[key]} and the rest was measured with "
                    f"{before[key]}: measure all kernels anew, without names"
                )
    kernels = {
        case.name: measured.get(case.name, kept.get(case.name)) for case in CASES
    }
    missing = [name for name, entry in kernels.items() if entry is None]
    if missing:
        raise SystemExit(f"never measured: {', '.join(missing)}")
    target.write_text(json.dumps({**report, "kernels": kernels}, indent=1) + "\n")
    print(f"measured {len(measured)} kernels, stored {len(kernels)} in {target}")


def measure(cases: list[Case]) -> dict[str, dict]:
    """Run cases under the profiler and every sanitizer; return an entry for each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compile_all(cases, folder)
        counters = read_counters([case for case in cases if case in CLEAN], folder)
        # Sanitizers wait more than they work: several at once, each in a process.
        jobs = [(case, tool) for case in cases for tool in TOOLS]
        with ThreadPoolExecutor(14) as pool:
            verdicts = list(pool.map(lambda job: judge(*job, folder), jobs))
    entries: dict[str, dict] = {}
    for case in cases:
        entries[case.name] = {"kind": case.kind}
        if case.name in counters:
            entries[case.name]["counters"] = counters[case.name]
        entries[case.name]["sanitizer"] = {
            tool: verdict
            for (judged, tool), verdict in zip(jobs, verdicts, strict=True)
            if judged.name == case.name
        }
    return entries


def compile_all(cases: list[Case], folder: Path) -> None:
    """Compile each case to a cubin that the launcher can load by its name."""
    symbols = {}
    for case in cases:
        cubin = compile_cubin(
            case.source, filename=case.path.name, kernels=(case.kernel,), arch=ARCH
        )
        (folder / f"{case.name}.cubin").write_bytes(cubin.path.read_bytes())
        symbols[case.name] = cubin.lowered[case.kernel]
    (folder / "symbols.json").write_text(json.dumps(symbols))


def launcher(folder: Path, *names: str) -> list[str]:
    """Return the command that launches cases."""
    return [sys.executable, str(HERE / "launch.py"), str(folder), *names]


def read_counters(cases: list[Case], folder: Path) -> dict[str, dict[str, float]]:
    """Run clean cases under Nsight Compute; launches come out in order."""
    if not cases:
        return {}
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw"]
    command += ["--print-units", "base", "--print-fp"]
    command += ["--metrics", ",".join(COUNTERS.values())]
    names = [case.name for case in cases]
    run = subprocess.run(
        [*command, *launcher(folder, *names)], capture_output=True, text=True
    )
    begin = run.stdout.find('"ID"')
    if run.returncode or begin < 0:
        raise RuntimeError(f"ncu failed:\n{run.stdout}\n{run.stderr}")
    rows = list(csv.DictReader(io.StringIO(run.stdout[begin:])))[1:]  # units first
    if len(rows) != len(names):
        raise RuntimeError(f"{len(names)} kernels launched, {len(rows)} in the report")
    return {
        name: {
            key: float(row[counter].replace(",", "") or 0)
            for key, counter in COUNTERS.items()
            if counter in row
        }
        for name, row in zip(names, rows, strict=True)
    }


def judge(case: Case, tool: str, folder: Path) -> dict:
    """Run one case under one sanitizer; return what it found."""
    command = ["compute-sanitizer", "--tool", tool, "--print-limit", "20"]
    if tool == "racecheck":
        command += ["--racecheck-report", "all"]
    try:
        run = subprocess.run(
            [*command, *launcher(folder, case.name)],
            capture_output=True,
            text=True,
            timeout=120,
        )
    except subprocess.TimeoutExpired:
        return {"errors": None, "kinds": ["timeout"], "lines": []}
    text = run.stdout + run.stderr
    summary = _SUMMARY.search(text)
    kinds = sorted({match.group(1) for match in _KINDS.finditer(text)})
    lines = sorted({int(line) for line in _LINES.findall(text)})
    errors = int(summary[1] or summary[2]) if summary else None
    found = {"errors": errors, "kinds": kinds, "lines": lines}
    if errors is None or (errors and not kinds):
        found["text"] = text[:600]
    return found


def machine() -> dict:
    """Say where and with what the truth was read."""

    def first(command: list[str], pattern: str) -> str:
        text = subprocess.run(command, capture_output=True, text=True).stdout
        found = re.search(pattern, text)
        return found[1] if found else "unknown"

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return {
        "device": first(query, r"^([^,\n]*)"),
        "driver": first(query, r", *([\d.]+)"),
        "ncu": first(["ncu", "--version"], r"Version ([\d.]+)"),
        "compute_sanitizer": first(
            ["compute-sanitizer", "--version"], r"Version ([\d.]+)"
        ),
        "arch": ARCH,
        "date": datetime.date.today().isoformat(),
        "command": "python -m tests.golden.freeze",
    }


if __name__ == "__main__":
    main()
