"""Launch golden cases on a GPU: ``launch.py FOLDER NAME …``, cubins in FOLDER.

The driver's own interface and NumPy, nothing else: a sanitizer instruments all that
a process does on the GPU, and torch does much.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import numpy as np
from cuda.bindings import driver

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.golden.cases import BY_NAME, Argument, Case


def checked(result: tuple) -> object:
    """Raise on the driver's error code; return what came with it."""
    code, *values = result
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA driver: {code}")
    return values[0] if values else None


def device_argument(value: Argument, written: bool) -> tuple[np.ndarray, object]:
    """Put an array on the device (or only reserve it); return its parameter."""
    if isinstance(value, np.generic):
        return np.array([value]), None
    address = checked(driver.cuMemAlloc(value.nbytes))
    if written:
        checked(driver.cuMemcpyHtoD(address, value.ctypes.data, value.nbytes))
    return np.array([int(address)], np.uint64), address


def launch(case: Case, folder: Path) -> None:
    """Load a case's cubin, launch it once and wait."""
    symbols = json.loads((folder / "symbols.json").read_text())
    module = checked(driver.cuModuleLoad(str(folder / f"{case.name}.cubin").encode()))
    function = checked(driver.cuModuleGetFunction(module, symbols[case.name].encode()))
    parameters = [
        device_argument(value, position not in case.unwritten)
        for position, value in enumerate(case.draw())
    ]
    pointers = (ctypes.c_void_p * len(parameters))(
        *(data.ctypes.data for data, _ in parameters)
    )
    checked(
        driver.cuLaunchKernel(
            function, *case.grid, *case.block, case.shared, 0,
            ctypes.addressof(pointers), 0,
        )
    )  # fmt: skip
    checked(driver.cuCtxSynchronize())
    for _, address in parameters:
        if address is not None:
            checked(driver.cuMemFree(address))


def main() -> None:
    """Launch what the command line names, in order."""
    checked(driver.cuInit(0))
    device = checked(driver.cuDeviceGet(0))
    context = checked(driver.cuDevicePrimaryCtxRetain(device))
    checked(driver.cuCtxSetCurrent(context))
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        launch(BY_NAME[name], folder)


if __name__ == "__main__":
    main()
