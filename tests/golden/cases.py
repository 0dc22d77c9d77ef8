"""The kernels of the golden set, how each is launched, and on what.

The same cases go to the GPU, under Nsight Compute and compute-sanitizer, and to the
emulator's trace. NumPy alone: under a sanitizer every import costs seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

HERE = Path(__file__).parent
KERNELS = HERE / "kernels"
SHARED_WITH_TESTS = HERE.parent / "kernels"

Kind = Literal["regular", "divergent", "broken"]
Argument = np.ndarray | np.generic
Tool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]


@dataclass(frozen=True)
class Case:
    """One launch of one kernel.

    Args:
        name: unique; also the key in the frozen results.
        file: where the kernel stands.
        kernel: its name.
        grid, block, shared: the launch.
        arguments: makes them from a fixed seed.
        kind: ``regular`` (every warp does the same), ``divergent`` or ``broken``.
        unwritten: positions of the buffers that nobody has written before.
        drop_barrier: which ``__syncthreads();`` of the file is blanked, from 1.
        tools: for a broken kernel, the sanitizers that can see what is wrong.
    """

    name: str
    file: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: Callable[[np.random.Generator], list[Argument]]
    shared: int = 0
    kind: Kind = "regular"
    unwritten: tuple[int, ...] = ()
    drop_barrier: int = 0
    tools: tuple[Tool, ...] = field(default=())

    @property
    def path(self) -> Path:
        """The file that holds the kernel."""
        folder = KERNELS if (KERNELS / self.file).exists() else SHARED_WITH_TESTS
        return folder / self.file

    @property
    def source(self) -> str:
        """The text that is compiled; a dropped barrier leaves its line in place."""
        text = self.path.read_text()
        if not self.drop_barrier:
            return text
        barriers = list(re.finditer(r"__syncthreads\(\);", text))
        gone = barriers[self.drop_barrier - 1]
        blank = ";".rjust(gone.end() - gone.start())
        return text[: gone.start()] + blank + text[gone.end() :]

    def draw(self) -> list[Argument]:
        """Draw the arguments, alike each time and everywhere."""
        return self.arguments(np.random.default_rng(seed=len(self.name)))


def barriers_of(file: str) -> int:
    """Count the barriers of a file of the test kernels."""
    text = (SHARED_WITH_TESTS / file).read_text()
    return len(re.findall(r"__syncthreads\(\);", text))


# -- what kernels are given ---------------------------------------------------

N = 4096
SIDE = 128


def _floats(*shape: int, kind: type = np.float32) -> Callable[..., np.ndarray]:
    return lambda rng: rng.standard_normal(shape).astype(kind)


def _through(
    kind: type, read: int = N, written: int = N, *scalars: int
) -> Callable[[np.random.Generator], list[Argument]]:
    """One input, one output, then ints."""

    def draw(rng: np.random.Generator) -> list[Argument]:
        x = (rng.standard_normal(read) * 50).astype(kind)
        return [x, np.zeros(written, kind), *map(np.int32, scalars)]

    return draw


def _square(half: bool = False, n: int = SIDE, extra: int = 1) -> Callable[..., list]:
    """Two square matrices, a third for the product, and its side."""

    def draw(rng: np.random.Generator) -> list[Argument]:
        kind = np.float16 if half else np.float32
        a, b = (rng.standard_normal((n, n)).astype(kind) for _ in range(2))
        return [a, b, np.zeros((n, n), np.float32), *[np.int32(n)] * extra]

    return draw


def _indexed(n: int) -> Callable[[np.random.Generator], list[Argument]]:
    def draw(rng: np.random.Generator) -> list[Argument]:
        x = rng.standard_normal(n).astype(np.float32)
        return [x, rng.permutation(n).astype(np.int32), np.zeros(n, np.float32)]

    return draw


def _layer_norm(rng: np.random.Generator) -> list[Argument]:
    rows, columns = 16, 1000
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    gamma, beta = (rng.standard_normal(columns).astype(np.float32) for _ in range(2))
    out = np.zeros_like(x)
    return [x, gamma, beta, out, np.int32(columns), np.float32(1e-5)]


def _attention(rng: np.random.Generator) -> list[Argument]:
    qkv = [rng.standard_normal((2, 96, 64)).astype(np.float32) for _ in range(3)]
    return [*qkv, np.zeros_like(qkv[0]), np.int32(96), np.int32(1)]


def _bytes(rng: np.random.Generator) -> list[Argument]:
    data = rng.integers(0, 256, 8192).astype(np.uint8)
    return [data, np.zeros(256, np.uint32), np.int32(8192)]


def _sparse(rng: np.random.Generator) -> list[Argument]:
    rows = 1024
    lengths = rng.integers(0, 12, rows)
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    column = rng.integers(0, rows, start[-1]).astype(np.int32)
    value = rng.standard_normal(start[-1]).astype(np.float32)
    x = rng.standard_normal(rows).astype(np.float32)
    return [start, column, value, x, np.zeros(rows, np.float32), np.int32(rows)]


def _search(rng: np.random.Generator) -> list[Argument]:
    ordered = np.sort(rng.standard_normal(N).astype(np.float32))
    wanted = rng.standard_normal(1024).astype(np.float32)
    return [ordered, wanted, np.zeros(1024, np.int32), np.int32(N)]


def _line(blocks: int, threads: int) -> dict[str, tuple[int, int, int]]:
    return {"grid": (blocks, 1, 1), "block": (threads, 1, 1)}


def _tiles(side: int, x: int, y: int) -> dict[str, tuple[int, int, int]]:
    return {"grid": (SIDE // side, SIDE // side, 1), "block": (x, y, 1)}


_WHOLE = _line(16, 256)
_ONE = _line(1, 256)
_MATRIX = lambda rng: [  # noqa: E731
    rng.standard_normal((SIDE, SIDE)).astype(np.float32),
    np.zeros((SIDE, SIDE), np.float32),
    np.int32(SIDE),
]
_F32 = np.float32


def _copies() -> list[Case]:
    file = "copies.cu"
    wide = {"grid": (16, 1, 1), "block": (256, 1, 1)}
    plain = [
        ("copy", _through(_F32, N, N, N - 100), wide),
        ("copy_stride_2", _through(_F32, 2 * N, 2 * N), wide),
        ("copy_stride_8", _through(_F32, 8 * N, 8 * N), wide),
        ("copy_offset_1", _through(_F32, N + 1), wide),
        ("copy_char", _through(np.int8), wide),
        ("copy_short", _through(np.int16), wide),
        ("copy_double", _through(np.float64), wide),
        ("copy_float2", _through(_F32, 2 * N, 2 * N), wide),
        ("copy_float4", _through(_F32, 4 * N, 4 * N), wide),
        ("copy_reversed", _through(_F32, N, N, N), wide),
        ("broadcast", _through(_F32), wide),
        ("gather", _indexed(N), wide),
        ("scatter", _indexed(N), wide),
        ("array_of_structs", _through(_F32, 3 * N), wide),
        (
            "struct_of_arrays",
            lambda rng: [_floats(N)(rng) for _ in range(3)] + [np.zeros(N, _F32)],
            wide,
        ),
        ("grid_stride", _through(_F32, N, N, N), _line(4, 128)),
        ("stencil", _through(_F32, N, N, N), wide),
    ]
    return [Case(name, file, name, arguments=a, **at) for name, a, at in plain]


def _tiled() -> list[Case]:
    names = ("naive", "tiled", "padded", "swizzled")
    found = [
        Case(f"transpose_{name}", "transposes.cu", f"transpose_{name}",
             arguments=_MATRIX, **_tiles(32, 32, 32))
        for name in names
    ]  # fmt: skip
    found.append(
        Case("transpose_narrow", "transposes.cu", "transpose_narrow",
             arguments=_MATRIX, **_tiles(16, 16, 16))
    )  # fmt: skip
    widths = {
        "shared_stride_2": _through(_F32, 512, 256),
        "shared_double": _through(np.float64, 256, 256),
        "shared_float4": _through(_F32, 1024, 1024),
        "shared_char": _through(np.int8, 256, 256),
        "shared_broadcast": _through(_F32, 256, 256),
        "shared_permuted": _indexed(256),
    }
    found += [
        Case(name, "shared.cu", name, arguments=a, **_ONE) for name, a in widths.items()
    ]
    found.append(
        Case("shared_dynamic", "shared.cu", "shared_dynamic", shared=1024,
             arguments=_through(_F32), **_WHOLE)
    )  # fmt: skip
    found += [
        Case(name, "reductions.cu", name, arguments=_through(_F32, N, 16), **_WHOLE)
        for name in ("sum_interleaved", "sum_sequential", "sum_shuffle")
    ]
    return found


def _families() -> list[Case]:
    return [
        Case("matmul_naive", "matmuls.cu", "matmul_naive", arguments=_square(),
             **_tiles(16, 16, 16)),
        Case("matmul_register_blocked", "matmuls.cu", "matmul_register_blocked",
             arguments=_square(), **_tiles(64, 16, 16)),
        Case("layer_norm", "layernorm_shuffle.cu", "layernorm", arguments=_layer_norm,
             **_line(16, 256)),
        Case("flash_attention", "flash_attention.cu", "flash_attention",
             arguments=_attention, grid=(3, 2, 1), block=(128, 1, 1),
             shared=2 * 32 * 64 * 4),
        Case("histogram", "histogram.cu", "histogram", arguments=_bytes,
             **_line(4, 256)),
        Case("gemm_wmma", "gemm_wmma.cu", "gemm_wmma", grid=(8, 2, 1),
             block=(128, 1, 1), arguments=_square(half=True, extra=3)),
        Case("gemm_mma", "gemm_mma.cu", "gemm_mma", grid=(2, 2, 1),
             block=(128, 1, 1), arguments=_square(half=True, extra=3)),
    ]  # fmt: skip


def _picked(rng: np.random.Generator) -> list[Argument]:
    """Values, an index into them for each, and a place for results."""
    x = rng.standard_normal(N).astype(np.float32)
    pick = rng.integers(0, N, N).astype(np.int32)
    return [x, pick, np.zeros(1024, np.float32), np.int32(N)]


def _pick_first(rng: np.random.Generator) -> list[Argument]:
    x, pick, *rest = _picked(rng)
    return [pick, x, *rest]


def _chains(rng: np.random.Generator) -> list[Argument]:
    x, following, *rest = _picked(rng)
    following[rng.random(N) < 0.15] = -1
    return [following, x, *rest]


def _divergent() -> list[Case]:
    small = _line(4, 256)
    found = {
        "uneven_loop": (_through(_F32, N, N, N), _WHOLE),
        "two_branches": (_through(_F32), _WHOLE),
        "half_a_warp": (_through(_F32), _WHOLE),
        "sparse_rows": (_sparse, small),
        "search": (_search, small),
    }
    rolled = {
        "uneven_loop_rolled": (_through(_F32, N, N, N), _WHOLE),
        "sparse_rows_rolled": (_sparse, small),
        "search_rolled": (_search, small),
        "uneven_inside_even": (_through(_F32, N, 1024, N), small),
        "uneven_inside_uneven": (_through(_F32, N, 1024, N), small),
        "branch_in_loop": (_picked, small),
        "follow_chain": (_chains, small),
        "leave_and_skip": (_pick_first, small),
        "one_long_row": (_through(_F32, N, 1024, N), small),
        "load_and_leave": (_pick_first, small),
        "leave_from_a_branch": (_pick_first, small),
        "return_from_the_loop": (_pick_first, small),
    }
    files = {"divergent.cu": found, "divergent_rolled.cu": rolled}
    return [
        Case(name, file, name, arguments=a, kind="divergent", **at)
        for file, kernels in files.items()
        for name, (a, at) in kernels.items()
    ]


# -- wide accesses to shared memory, and asynchronous copies ------------------

LANES = np.arange(32)


def _strides(rng: np.random.Generator) -> list[np.ndarray]:
    """One pattern a block: neighbours further and further apart."""
    return [LANES * stride % 512 for stride in range(1, 17)]


def _permuted(rng: np.random.Generator) -> list[np.ndarray]:
    """No two lanes alike: side by side in any order, exchanged, or anywhere."""
    found = [LANES ^ bits for bits in (1, 2, 3, 4, 8, 16, 21, 31)]
    found += [rng.permutation(32) for _ in range(4)]
    return found + [rng.permutation(512)[:32] for _ in range(4)]


def _partly(rng: np.random.Generator) -> list[np.ndarray]:
    """No two lanes alike, and some lanes off."""
    off = [LANES < 8, LANES < 16, LANES >= 16, LANES % 2 == 0, LANES % 4 != 0]
    found = [np.where(mask, -1, LANES * step) for mask in off for step in (1, 3)]
    for share in (0.2, 0.4, 0.6, 0.7, 0.8, 0.9):
        found.append(np.where(rng.random(32) < share, -1, rng.permutation(512)[:32]))
    return found


def _repeated(rng: np.random.Generator) -> list[np.ndarray]:
    """Lanes that read the same: all, groups of neighbours, groups far apart."""
    found = [LANES * 0, *(LANES // n for n in (2, 4, 8, 16))]
    found += [LANES % n for n in (2, 4, 8, 16)]
    found += [LANES & ~2, (LANES & ~2) * 8, (LANES & ~1) * 8]
    found += [np.repeat(rng.integers(0, 512, 16), 2) for _ in range(2)]
    return found + [rng.integers(0, 24, 32) for _ in range(2)]


def _repeated_partly(rng: np.random.Generator) -> list[np.ndarray]:
    """Lanes that read the same, and some lanes off."""
    found = []
    for share in (0.1, 0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95):
        off = rng.random(32) < share
        found.append(np.where(off, -1, np.repeat(rng.integers(0, 512, 16), 2)))
        found.append(np.where(off, -1, rng.integers(0, 24, 32)))
    return found


def _wide() -> list[Case]:
    apart = {"strided": _strides, "permuted": _permuted, "partly": _partly}
    alike = {"repeated": _repeated, "repeated_partly": _repeated_partly}
    rows = {"strided": _strides, "permuted": _permuted, "repeated": _repeated}
    kernels = [
        (what, kind, lanes, patterns)
        for kind, lanes in (("float2", 2), ("float4", 4))
        for what, patterns in (("load", {**apart, **alike}), ("store", apart))
    ]
    found = []
    for what, kind, lanes, patterns in [*kernels, ("ldmatrix", "at", 4, rows)]:
        for name, pattern in patterns.items():

            def draw(
                rng: np.random.Generator,
                pattern: Callable[..., list[np.ndarray]] = pattern,
                lanes: int = lanes,
            ) -> list[Argument]:
                index = np.concatenate(pattern(rng)).astype(np.int32)
                x = rng.standard_normal(512 * lanes).astype(np.float32)
                return [x, index, np.zeros(len(index) * lanes, np.float32)]

            found.append(
                Case(f"{what}_{kind}_{name}", "shared_wide.cu", f"{what}_{kind}",
                     arguments=draw, **_line(16, 32))
            )  # fmt: skip
    return found


def _asynchronous() -> list[Case]:
    sizes = {"close": 16, "padded_16": 16, "padded_32": 16, "swizzled": 16,
             "padded_8": 8, "padded_4": 4}  # fmt: skip
    found = [
        Case(f"async_{name}", "async.cu", f"async_{name}", **_line(1, 128),
             arguments=_through(np.int8, 256 * size, 256 * size))
        for name, size in sizes.items()
    ]  # fmt: skip
    zeros = _through(_F32, 4 * 1000, 4 * 1024, 1000)
    found.append(
        Case("async_zeros", "async.cu", "async_zeros", arguments=zeros, **_line(4, 256))
    )
    return found


def _broken() -> list[Case]:
    def case(file: str, name: str, tool: Tool | None, arguments: object, **more):
        tools = (tool,) if tool else ()
        return Case(name, file, name, arguments=arguments, kind="broken",
                    tools=tools, **more)  # fmt: skip

    memory, races, sync = "broken_memory.cu", "broken_races.cu", "broken_sync.cu"
    small = _line(2, 32)
    sixty = _through(_F32, 60, 60, 60)
    square = _through(_F32, 64, 64, 64)
    return [
        case(memory, "one_past_the_end", "memcheck", sixty, **small),
        case(memory, "missing_guard", "memcheck", sixty, **small),
        case(memory, "before_the_start", "memcheck", square, **small),
        case(memory, "far_away", "memcheck", _through(_F32, 64, 64), **small),
        case(memory, "shared_past_the_end", "memcheck",
             lambda rng: [np.zeros(64, _F32), np.int32(65)], **_line(1, 64)),
        case(memory, "dynamic_past_the_end", "memcheck",
             lambda rng: [np.zeros(64, _F32)], shared=256, **_line(1, 64)),
        case(memory, "misaligned", "memcheck", _through(_F32, 64, 256), **_line(1, 32)),
        case(memory, "reads_its_output", "initcheck", _through(_F32, 64, 64, 64),
             unwritten=(1,), **small),
        # No sanitizer knows where one shared array ends and the next begins.
        case(memory, "into_the_next_array", None,
             lambda rng: [np.zeros(64, _F32), np.int32(64)], **_line(1, 64)),
        case(memory, "from_the_array_before", None,
             lambda rng: [np.zeros(64, _F32)], **_line(1, 64)),
        # No sanitizer looks for reads of shared memory that nobody wrote.
        case(memory, "shared_unwritten", None, _through(_F32, 64, 64), **_line(1, 64)),
        case(races, "matmul_without_first_barrier", "racecheck", _square(),
             **_tiles(16, 16, 16)),
        case(races, "matmul_without_second_barrier", "racecheck", _square(),
             **_tiles(16, 16, 16)),
        case(races, "sum_without_barrier", "racecheck", _through(_F32, 256, 1), **_ONE),
        case(races, "histogram_without_atomics", "racecheck", _bytes, **_ONE),
        case(races, "reversed_without_barrier", "racecheck", _through(_F32, 256, 256),
             **_ONE),
        # racecheck looks at shared memory only.
        case(races, "global_race", None, lambda rng: [np.zeros(1, _F32)],
             **_line(2, 64)),
        case(sync, "divergent_barrier", "synccheck", _through(_F32, 64, 64),
             **_line(1, 64)),
        case(sync, "early_exit", None, _through(_F32, 64, 64, 48), **_line(1, 64)),
        case(sync, "absent_lane", "synccheck", _through(_F32, 32, 32), **_line(1, 32)),
    ]  # fmt: skip


def _dropped_barriers() -> list[Case]:
    found = []
    for whole in _families():
        if whole.name not in ("flash_attention", "layer_norm", "gemm_mma"):
            continue
        for number in range(1, barriers_of(whole.file) + 1):
            found.append(
                Case(f"{whole.name}_without_barrier_{number}", whole.file, whole.kernel,
                     whole.grid, whole.block, whole.arguments, whole.shared, "broken",
                     drop_barrier=number, tools=("racecheck",))
            )  # fmt: skip
    return found


CASES: tuple[Case, ...] = (
    *_copies(),
    *_tiled(),
    *_families(),
    *_wide(),
    *_asynchronous(),
    *_divergent(),
    *_broken(),
    *_dropped_barriers(),
)
BY_NAME = {case.name: case for case in CASES}
CLEAN = tuple(case for case in CASES if case.kind != "broken")
BROKEN = tuple(case for case in CASES if case.kind == "broken")
